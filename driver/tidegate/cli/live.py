"""Follows the result of a query on one table: its changes, or a view that is shown again.

The table is asked for its newest version once per second; rows are read when there is a new one.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import tidegate
from tidegate.cli.formats import Page, writer_of
from tidegate.cli.live_query import (
    OP,
    LiveQuery,
    NotLiveError,
    is_query,
    parse_query,
    require_rows,
)
from tidegate.cli.run import (
    Background,
    Display,
    InterruptedStatementError,
    background,
    run_statement,
    show_messages,
)
from tidegate.cli.screen import SHOWN_ROWS, clear, first_rows
from tidegate.cli.settings import ResultMode
from tidegate.connection import Connection
from tidegate.cursor import Cursor

POLL_SECONDS = 1.0
_TICK_SECONDS = 0.1
_POSITION = re.compile(r" \(line \d+, column \d+\)")
_PLACE = "SELECT current_catalog(), current_schema()"

Sleep = Callable[[float], None]


class LiveQueryEndedError(InterruptedStatementError):
    """The user ended a live query."""


@dataclass(frozen=True, slots=True)
class _Version:
    """A version of a table, with the time of its commit."""

    number: int
    time: object

    def follows(self, earlier: _Version) -> bool:
        """Say whether this is a later version of the same table, as far as can be seen."""
        return self.number > earlier.number


@dataclass(slots=True)
class _Client:
    """Runs statements one after the other."""

    connection: Connection
    display: Display
    work: Background
    sleep: Sleep

    def pages(self, sql: str) -> Iterator[Page]:
        """Yield the rows of a query."""
        with self.connection.cursor() as cursor:
            self._execute(cursor, sql)
            show_messages(cursor.messages, self.display)
            yield from self.work.pages(cursor)

    def rows(self, sql: str) -> Page:
        """Return the rows of a query that has few of them."""
        return [row for page in self.pages(sql) for row in page]

    def names(self, sql: str) -> list[str]:
        """Return the columns of a query."""
        with self.connection.cursor() as cursor:
            self._execute(cursor, sql)
            return [str(column[0]) for column in cursor.description or ()]

    def version(self, query: LiveQuery) -> _Version:
        """Return the newest version of the table.

        :raises NotLiveError: if the table has none.
        """
        rows = self.rows(query.version_sql())
        if not rows or len(rows[0]) < 2:
            raise NotLiveError(f"{query.name} has no versions")
        return _Version(int(str(rows[0][0])), rows[0][1])

    def key(self, query: LiveQuery) -> tuple[str, ...]:
        """Return the columns of the table's primary key; none if it has none."""
        *place, table = query.table
        if len(place) < 2:
            [(catalog, schema)] = self.rows(_PLACE)
            place = [str(catalog), *(place or [str(schema)])]
        catalog, schema = place[-2:]
        with self.connection.cursor() as cursor:
            self.work.call(cursor, lambda: cursor.primary_keys(schema, table, catalog=catalog))
            found = [row for page in self.work.pages(cursor) for row in page]
        exact = [row for row in found if _same(row[1], schema) and _same(row[2], table)]
        # Names of tables are patterns in this call.
        return tuple(str(row[3]) for row in sorted(exact, key=lambda row: int(str(row[4]))))

    def wait_after(self, query: LiveQuery, seen: _Version) -> _Version:
        """Return the newest version as soon as it is another one.

        :raises InterruptedStatementError: after Ctrl-C.
        """
        while True:
            self.sleep(POLL_SECONDS)
            if self.work.interrupted.is_set():
                raise InterruptedStatementError
            newest = self.version(query)
            if newest != seen:
                return newest

    def _execute(self, cursor: Cursor, sql: str) -> None:
        self.work.call(cursor, lambda: cursor.execute(sql))


@dataclass(slots=True)
class _Changelog:
    """The rows of a query, and then their changes, without end."""

    client: _Client
    query: LiveQuery
    version: _Version
    names: Sequence[str]
    key: Sequence[str]
    count: int = field(default=0, init=False)
    """Of the rows written so far."""

    def pages(self) -> Iterator[Page]:
        """Yield pages until Ctrl-C."""
        try:
            yield from self._pages()
        except (InterruptedStatementError, KeyboardInterrupt):
            return

    def _pages(self) -> Iterator[Page]:
        yield from self._written(self.query.rows_sql(self.version.number))
        while True:
            newest = self.client.wait_after(self.query, self.version)
            problem = yield from self._changes(newest)
            if problem is not None:
                self.client.display.warn(
                    f"[WARN] The changes of {self.query.name} after version {self.version.number} "
                    f"cannot be read: {problem} All its rows of version {newest.number} follow."
                )
                yield from self._written(self.query.rows_sql(newest.number))
            self.version = newest

    def _changes(self, newest: _Version) -> Generator[Page, None, str | None]:
        """Yield the changes up to a version; return why they cannot be read, if so."""
        if not newest.follows(self.version):
            return "the table was replaced."
        after = self.version.number
        sql = self.query.changes_sql((after + 1, newest.number), after, self.names, self.key)
        try:
            yield from self._written(sql)
        except tidegate.Error as error:
            return _headline(error)
        return None

    def _written(self, sql: str) -> Iterator[Page]:
        for page in self.client.pages(sql):
            yield page
            # Whoever reads the output need not wait for a full buffer.
            self.client.display.out.flush()
            self.count += len(page)


def run_live(
    connection: Connection,
    sql: str,
    display: Display,
    mode: ResultMode,
    *,
    sleep: Sleep | None = None,
) -> None:
    """Run a statement; if it is a query that can be followed, until Ctrl-C.

    Any other query runs once, after a warning.

    :raises tidegate.Error: if a statement fails.
    :raises LiveQueryEndedError: after Ctrl-C.
    """
    if mode is ResultMode.TABLEAU or not is_query(sql):
        run_statement(connection, sql, display)
        return
    follow = _follow_changes if mode is ResultMode.CHANGELOG else _follow_table
    try:
        with background(display, signal.SIGTERM) as work:
            client = _Client(connection, display, work, sleep or _sleeper(work))
            follow(client, sql)
    except NotLiveError as error:
        display.warn(f"[WARN] The query runs once, since {error}.")
        run_statement(connection, sql, display)
    except (InterruptedStatementError, KeyboardInterrupt):
        raise LiveQueryEndedError from None


def _follow_changes(client: _Client, sql: str) -> None:
    query = parse_query(sql)
    require_rows(query)
    display, started = client.display, time.monotonic()
    changelog = _begin(client, query)
    names = [OP, *changelog.names]
    writer_of(display.format)(names, changelog.pages(), display.out, display.header)
    display.count_rows(changelog.count, started)
    raise LiveQueryEndedError


def _begin(client: _Client, query: LiveQuery) -> _Changelog:
    """Return the changelog of a query, once it is known that the changes can be read.

    :raises NotLiveError: if they cannot.
    """
    try:
        version = client.version(query)
        number = version.number
        if query.stars:
            query = query.expand(client.names(query.columns_sql(number)))
        names = client.names(query.names_sql(number))
        key = client.key(query)
        # It reads no row, but fails if it has an aggregate, or if changes are not recorded.
        client.rows(query.changes_sql((number, number), number, names, key))
    except tidegate.Error as error:
        raise NotLiveError(_reason(error)) from error
    return _Changelog(client, query, version, names, key)


def _follow_table(client: _Client, sql: str) -> None:
    query, display = parse_query(sql), client.display
    try:
        version = client.version(query)
    except tidegate.Error as error:
        raise NotLiveError(_reason(error)) from error
    more = False

    def limit(names: Sequence[str], pages: Iterable[Page]) -> tuple[Sequence[str], Iterable[Page]]:
        nonlocal more
        rows, more = first_rows(pages)
        return names, [rows]

    while True:
        clear(display)
        text = " ".join(sql.split())
        display.notice(f"{time.strftime('%H:%M:%S')}, version {version.number}: {text}")
        run_statement(client.connection, sql, display, limit)
        if more:
            display.notice(f"[INFO] Only the first {SHOWN_ROWS} rows are shown.")
        version = client.wait_after(query, version)


def _sleeper(work: Background) -> Sleep:
    """Return a function that sleeps until Ctrl-C at most."""

    def sleep(seconds: float) -> None:
        end = time.monotonic() + seconds
        # Waiting for the event itself could block its signal handler, which runs in this thread.
        while not work.interrupted.is_set() and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _TICK_SECONDS))

    return sleep


def _reason(error: tidegate.Error) -> str:
    """Return why a query cannot be followed, to continue a sentence."""
    match error.code:
        case "MISSING_GROUP_BY" | "MISSING_AGGREGATION":
            return "it has an aggregate function"
        case "DELTA_MISSING_CHANGE_DATA":
            return (
                "the changes of the table are not recorded: ALTER TABLE … SET TBLPROPERTIES "
                "('delta.enableChangeDataFeed' = 'true') records them from now on"
            )
    return f"the table cannot be followed: {_headline(error).removesuffix('.')}"


def _headline(error: tidegate.Error) -> str:
    # The place is one in the client's own statement.
    return _POSITION.sub("", str(error).partition("\n")[0])


def _same(name: object, other: object) -> bool:
    return str(name).casefold() == str(other).casefold()
