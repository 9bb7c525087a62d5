"""Pages of FetchResults as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic, sleep
from typing import Any, Final, Protocol

from tidegate.rows import RowMaker, Values, rows_of
from tidegate.types import CONVERTERS
from tidegate.wire.columns import column_length, decode_column
from tidegate.wire.schema import WireColumn

_HELD: Final = 0.2
"""Seconds; a server that takes longer to answer holds such calls until there is news."""


class Pause:
    """Sleeps between calls that a server answers immediately although it has nothing yet.

    There is no sleep for a server that holds such calls.
    """

    def __init__(self, shortest: float = 0.002, longest: float = 0.1) -> None:
        self._shortest = shortest
        self._longest = longest
        self._next = shortest

    def after(self, started: float) -> None:
        """Sleep unless the call that began at ``started`` (monotonic seconds) was held."""
        if seconds := self.seconds(started):
            sleep(seconds)

    def seconds(self, started: float) -> float:
        """Return how long to sleep after the call that began at ``started``."""
        if monotonic() - started > _HELD:
            self._next = self._shortest
            return 0.0
        now, self._next = self._next, min(self._next * 2, self._longest)
        return now


class Page(Protocol):
    """The rows of one FetchResults."""

    @property
    def length(self) -> int: ...
    def rows(self) -> list[Values]: ...
    def table(self) -> Any: ...


class ColumnPage:
    """A page in Thrift's columns."""

    def __init__(self, encoded: Sequence[Any], columns: Sequence[WireColumn]) -> None:
        self.length = column_length(encoded[0]) if encoded else 0
        self._encoded = encoded
        self._columns = columns

    def rows(self) -> list[Values]:
        values = [
            decode_column(content, CONVERTERS.get(column.type.name))
            for content, column in zip(self._encoded, self._columns, strict=True)
        ]
        return rows_of(values)

    def table(self) -> Any:
        from tidegate import arrow  # needs the optional pyarrow

        return arrow.table_of([decode_column(c) for c in self._encoded], self._columns)


class ArrowPage:
    """A page in Arrow's columns."""

    def __init__(self, streams: Sequence[bytes], columns: Sequence[WireColumn]) -> None:
        from tidegate import arrow  # needs the optional pyarrow

        self._table: Any = arrow.read_streams(streams)
        self.length = 0 if self._table is None else self._table.num_rows
        self._columns = columns

    def rows(self) -> list[Values]:
        from tidegate import arrow

        return arrow.table_rows(self._table, self._columns)

    def table(self) -> Any:
        return self._table.rename_columns([column.name for column in self._columns])


class ResultSet:
    """The rows of one operation, with one page of them in memory at a time."""

    def __init__(
        self,
        columns: Sequence[WireColumn],
        *,
        fetch: Callable[[int, int], Any],
        fetch_size: int,
        table_fetch_size: int | None = None,
        make_row: RowMaker[Any] | None,
        native: bool,
        arrow: bool,
    ) -> None:
        """Page through ``fetch``, which asks for a number of rows and answers TFetchResultsResp.

        Its second argument is the number of rows that were received before. ``table_fetch_size``
        is the number of rows to ask for where a whole table is wanted.

        ``native`` says that the server's ``hasMoreRows`` can be trusted; of others only an empty
        page marks the end. ``arrow`` says that it sends Arrow streams in one binary column.
        ``make_row`` is None where tuples are wanted.
        """
        self.columns = columns
        self._fetch = fetch
        self._fetch_size = fetch_size
        self._table_fetch_size = table_fetch_size or fetch_size
        self._make_row = make_row
        self._native = native
        self._arrow = arrow
        self._page: Page | None = None
        self._rows: list[Values] | None = None
        self._at = 0
        self._received = 0
        self._ended = False
        self.streamed = False
        """Whether a reader has come to the end."""

    @property
    def ready(self) -> bool:
        """Whether ``fetchone`` returns a row without a call to the server."""
        return self._rows is not None and self._at < len(self._rows)

    def fetchone(self) -> Any | None:
        """Return the next row, None at the end."""
        if self._rows is None or self._at >= len(self._rows):
            if not self._more():
                return None
            self._rows = self._page_rows()
        row = self._rows[self._at]
        self._at += 1
        return row if self._make_row is None else self._make_row(row)

    def fetchmany(self, size: int) -> list[Any]:
        """Return the next ``size`` rows, fewer at the end."""
        found: list[Any] = []
        while len(found) < size and self._more():
            taken = self._page_rows()[self._at : self._at + size - len(found)]
            self._at += len(taken)
            found += taken if self._make_row is None else map(self._make_row, taken)
        return found

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""
        found: list[Any] = []
        while self._more():
            taken = self._page_rows()[self._at :]
            self._at += len(taken)
            found += taken if self._make_row is None else map(self._make_row, taken)
        return found

    def table(self, size: int | None = None) -> Any:
        """Return the next ``size`` rows, or all that are left, as a pyarrow Table."""
        import pyarrow as pa

        from tidegate import arrow

        pieces, wanted = [], size
        if size is None:
            self._fetch_size = self._table_fetch_size
        while (wanted is None or wanted > 0) and self._more():
            piece = self._page_table().slice(self._at, wanted)
            self._at += (count := piece.num_rows)
            pieces.append(piece)
            wanted = None if wanted is None else wanted - count
        return pa.concat_tables(pieces) if pieces else arrow.empty_table(self.columns)

    def reader(self) -> Any:
        """Return a pyarrow RecordBatchReader of all rows that are left, with one page in memory.

        The first page is fetched now, since it has the types of the columns, but no row is taken
        until the reader is read.
        """
        import pyarrow as pa

        from tidegate import arrow

        self._fetch_size = self._table_fetch_size
        example = self._page_table() if self._more() else arrow.empty_table(self.columns)
        return pa.RecordBatchReader.from_batches(example.schema, self._batches())

    def _batches(self) -> Iterator[Any]:
        while self._more():
            rest = self._page_table().slice(self._at)
            self._at += rest.num_rows
            yield from rest.to_batches()
        self.streamed = True

    def _page_table(self) -> Any:
        assert self._page is not None
        return self._page.table()

    def _more(self) -> bool:
        """Make sure that the page has a row left, fetching the next one if need be."""
        if self._page is not None and self._at < self._page.length:
            return True
        self._page, self._rows, self._at = None, None, 0
        pause = Pause()
        while not self._ended:
            started = monotonic()
            reply = self._fetch(self._fetch_size, self._received)
            page = self._read(reply.results)
            if page is not None and page.length:
                self._ended = self._native and not reply.hasMoreRows
                self._page = page
                self._received += page.length
                return True
            self._ended = not reply.hasMoreRows
            if not self._ended:
                pause.after(started)
        return False

    def _read(self, row_set: Any) -> Page | None:
        if row_set is None or not row_set.columns:
            return None
        encoded = row_set.columns
        if self._arrow and len(encoded) == 1 and encoded[0].binaryVal is not None:
            return ArrowPage(encoded[0].binaryVal.values, self.columns)
        return ColumnPage(encoded, self.columns)

    def _page_rows(self) -> list[Values]:
        assert self._page is not None
        if self._rows is None:
            self._rows = self._page.rows()
        return self._rows


def concatenated(tables: Sequence[Any]) -> Any:
    """Return the rows of several pyarrow Tables as one, without copying them."""
    import pyarrow as pa

    return pa.concat_tables(tables)
