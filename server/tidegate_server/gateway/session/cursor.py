"""Pages through a result; safe for concurrent fetches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.result import Result

Measure = Callable[[pa.RecordBatch], int]
"""Estimates the bytes of a batch in a reply; monotone in the number of rows."""


class FetchOrientation(Enum):
    """The direction of FetchResults."""

    NEXT = "FETCH_NEXT"
    PRIOR = "FETCH_PRIOR"
    RELATIVE = "FETCH_RELATIVE"
    ABSOLUTE = "FETCH_ABSOLUTE"
    FIRST = "FETCH_FIRST"
    LAST = "FETCH_LAST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Consecutive rows of a result; ``batch`` is None when there are none."""

    start_row: int
    batch: pa.RecordBatch | None
    has_more: bool
    before: int = 0
    """Start row of the page fetched before this one."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return 0 if self.batch is None else int(self.batch.num_rows)

    @property
    def end_row(self) -> int:
        """The row after its last one."""
        return self.start_row + self.num_rows


class ResultCursor:
    """The one reading position of an operation's result."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self._lock = threading.Lock()
        self._position = 0
        self._page_start = 0
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._pending: pa.RecordBatch | None = None

    def fetch(
        self,
        orientation: FetchOrientation,
        max_rows: int,
        max_bytes: int,
        measure: Measure,
        *,
        start_row: int = 0,
    ) -> Page:
        """Move and return rows: at most ``max_rows``, about ``max_bytes``, but at least one.

        ``start_row`` is the first one with ABSOLUTE.

        :raises ServerError: FETCH_ORIENTATION, or an error of reading the result; the position
            does not change then, so that the call can be repeated.
        """
        with self._lock:
            limit = self._seek(orientation, max_rows, start_row)
            start = self._position
            try:
                parts = self._take(limit, max_bytes, measure)
                has_more = self._peek() is not None
            except BaseException:
                self._reposition(start)
                raise
            before, self._page_start = self._page_start, start
        return Page(start_row=start, batch=_join(parts), has_more=has_more, before=before)

    def put_back(self, page: Page) -> None:
        """Undo the fetch that returned ``page``, unless another fetch followed it."""
        with self._lock:
            if self._page_start == page.start_row and self._position == page.end_row:
                self._reposition(page.start_row)
                self._page_start = page.before

    def _seek(self, orientation: FetchOrientation, max_rows: int, start_row: int) -> int:
        match orientation:
            case FetchOrientation.NEXT:
                return max_rows
            case FetchOrientation.FIRST:
                self._reposition(0)
                return max_rows
            case FetchOrientation.ABSOLUTE:
                if start_row != self._position:
                    self._reposition(start_row)
                return max_rows
            case FetchOrientation.PRIOR:
                end = self._page_start
                self._reposition(max(0, end - max_rows))
                return end - self._position
            case _:
                raise error(Code.FETCH_ORIENTATION, orientation=orientation.value)

    def _reposition(self, row: int) -> None:
        self._position = row
        self._batches = None
        self._pending = None

    def _peek(self) -> pa.RecordBatch | None:
        if self._batches is None:
            self._batches = self._result.batches(self._position)
        while self._pending is None:
            batch = next(self._batches, None)
            if batch is None:
                return None
            if batch.num_rows:
                self._pending = batch
        return self._pending

    def _take(self, limit: int, max_bytes: int, measure: Measure) -> list[pa.RecordBatch]:
        parts: list[pa.RecordBatch] = []
        room = max_bytes
        while limit > 0 and (batch := self._peek()) is not None:
            wanted = min(batch.num_rows, limit)
            fitting = _rows_fitting(batch, wanted, room, measure)
            if fitting == 0 and parts:
                break
            part = batch.slice(0, max(fitting, 1))
            parts.append(part)
            self._consume(batch, part.num_rows)
            limit -= part.num_rows
            room -= measure(part)
            if part.num_rows < wanted:
                break
        return parts

    def _consume(self, batch: pa.RecordBatch, rows: int) -> None:
        self._position += rows
        self._pending = batch.slice(rows) if rows < batch.num_rows else None


def _rows_fitting(batch: pa.RecordBatch, wanted: int, room: int, measure: Measure) -> int:
    if measure(batch.slice(0, wanted)) <= room:
        return wanted
    fits, too_many = 0, wanted
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if measure(batch.slice(0, middle)) <= room:
            fits = middle
        else:
            too_many = middle
    return fits


def _join(parts: list[pa.RecordBatch]) -> pa.RecordBatch | None:
    if len(parts) > 1:
        return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
    return parts[0] if parts else None
