"""Runs one statement so that Ctrl-C cancels it on the server."""

from __future__ import annotations

import io
import logging
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import BinaryIO, TextIO, TypeVar

from tidegate.cli.arrow_files import write_batches
from tidegate.cli.formats import (
    FILE_FORMATS,
    PAGE_ROWS,
    Format,
    FormatError,
    Page,
    fitting,
    writer_of,
)
from tidegate.cli.terminal.pager import PagerClosedError, paged
from tidegate.cli.terminal.progress import progress_line
from tidegate.connection import Connection
from tidegate.cursor import Cursor
from tidegate.errors import Error, Warning
from tidegate.operation import OperationStatus

logger = logging.getLogger(__name__)

T = TypeVar("T")
Note = Callable[[OperationStatus, str], None]
Execute = Callable[[Note | None], object]
Edit = Callable[[Sequence[str], Iterable[Page]], tuple[Sequence[str], Iterable[Page]]]
"""Returns the columns and rows that are written instead of those of a result."""

_TICK_SECONDS = 0.2
_POLL_SECONDS = 0.1
_PROGRESS_AFTER_SECONDS = 1.0
_ERASE_LINE = "\r\x1b[K"


class InterruptedStatementError(Exception):
    """The user pressed Ctrl-C, and the statement was canceled on the server."""


@dataclass(slots=True)
class Display:
    """How results and notices are shown; the shell's ``!set`` changes it."""

    out: TextIO
    err: TextIO
    format: str = "table"
    header: bool = True
    quiet: bool = False
    progress: bool = False
    pager: str = ""
    """The command that shows long results on a terminal; empty for none."""
    file_written: bool = False
    """Whether ``out`` has a result in one of FILE_FORMATS, which has an end of its own."""

    def claim_file(self) -> BinaryIO:
        """Return the stream for the bytes of a result in one of FILE_FORMATS.

        :raises FormatError: if a person reads it, or if it has a result already.
        """
        if self.out.isatty():
            raise FormatError(f"A terminal cannot show {self.format}: add > FILE.")
        if self.file_written:
            raise FormatError(f"A file of {self.format} has one result: write this one to another.")
        if not isinstance(self.out, io.TextIOWrapper):
            raise FormatError(f"{self.format} cannot be recorded: leave !record out.")
        self.file_written = True
        stream: BinaryIO = self.out.buffer
        return stream

    def notice(self, text: str) -> None:
        """Write a line about a statement, on the error stream unless a person reads both."""
        if not self.quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Write a line as :meth:`notice` does, even if notices are turned off."""
        beside_the_data = self.format == "table" and self.out.isatty()
        stream = self.out if beside_the_data else self.err
        self.out.flush()
        stream.write(text + "\n")
        stream.flush()

    def count_rows(self, count: int, started: float) -> None:
        """Write how many rows a result had, and the seconds since ``started`` (monotonic)."""
        self.out.flush()
        self.notice(f"{rows_of(count)} ({time.monotonic() - started:.3f} s)")

    def write_error(self, text: str) -> None:
        """Write an error."""
        self.out.flush()
        self.err.write(text + "\n")
        self.err.flush()


def rows_of(count: int) -> str:
    """Return a number of rows in words."""
    return "1 row" if count == 1 else f"{count} rows"


def show_line(stream: TextIO, text: str) -> None:
    """Replace the line at the end of a terminal by another one; an empty text erases it."""
    stream.write(f"{_ERASE_LINE}{text}")
    stream.flush()


@dataclass(slots=True)
class _Progress:
    """One line on the error stream that says how long and what."""

    stream: TextIO
    started: float = field(default_factory=time.monotonic)
    text: str = ""
    status: OperationStatus | None = None
    shown: str = ""

    def show(self) -> None:
        elapsed = time.monotonic() - self.started
        encoding = (self.stream.encoding or "").lower().replace("-", "")
        width = shutil.get_terminal_size().columns - 1
        blocks = encoding == "utf8"
        line = progress_line(elapsed, self.status, self.text, width, blocks=blocks)
        if elapsed >= _PROGRESS_AFTER_SECONDS and line != self.shown:
            show_line(self.stream, line)
            self.shown = line

    def erase(self) -> None:
        if self.shown:
            show_line(self.stream, "")
            self.shown = ""


@dataclass(frozen=True, slots=True)
class Background:
    """Runs the driver's calls in another thread, so that Ctrl-C is seen meanwhile."""

    executor: ThreadPoolExecutor
    interrupted: threading.Event
    progress: _Progress
    shows_progress: bool

    def call(self, cursor: Cursor, call: Callable[[], T]) -> T:
        """Return what a call for a cursor returns; an interrupt cancels the cursor's statement.

        :raises InterruptedStatementError: after Ctrl-C.
        """
        tick = self.progress.show if self.shows_progress else None
        try:
            return _wait(self.executor.submit(call), cursor, self.interrupted, tick)
        finally:
            self.progress.erase()

    def pages(self, cursor: Cursor) -> Iterator[Page]:
        """Yield the rows of a cursor, a page at a time."""
        count = 0
        while page := self.call(cursor, lambda: cursor.fetchmany(PAGE_ROWS)):
            yield page
            count += len(page)
            self.progress.status, self.progress.text = None, rows_of(count)

    def note(self, status: OperationStatus, line: str) -> None:
        """Set what the line of progress says: of the server's answer and its newest log line."""
        self.progress.status = status
        self.progress.text = line or self.progress.text


@contextmanager
def background(display: Display, *signals: signal.Signals) -> Iterator[Background]:
    """Yield a thread for calls of the driver.

    :param signals: that interrupt a call as Ctrl-C does.
    """
    with (
        _interrupts(signal.SIGINT, *signals) as interrupted,
        ThreadPoolExecutor(max_workers=1, thread_name_prefix="statement") as executor,
    ):
        yield Background(executor, interrupted, _Progress(display.err), display.progress)


def run_statement(
    connection: Connection, sql: str, display: Display, edit: Edit | None = None
) -> None:
    """Run a statement, write its result, which ``edit`` may change, and how it went.

    :raises tidegate.Error: if the statement fails.
    :raises InterruptedStatementError: after Ctrl-C.
    """
    with connection.cursor() as cursor:
        _run(cursor, lambda note: _execute(cursor, sql, note), display, edit)


def run_metadata(
    connection: Connection,
    call: Callable[[Cursor], object],
    display: Display,
    columns: Sequence[str],
) -> None:
    """Run one of the cursor's metadata calls and write these columns of its result.

    :raises tidegate.Error: if the call fails.
    :raises InterruptedStatementError: after Ctrl-C.
    """
    with connection.cursor() as cursor:
        _run(cursor, lambda note: call(cursor), display, chosen=columns)


def _run(
    cursor: Cursor,
    execute: Execute,
    display: Display,
    edit: Edit | None = None,
    chosen: Sequence[str] | None = None,
) -> None:
    started = time.monotonic()
    with background(display) as work:
        note = work.note if display.progress else None
        work.call(cursor, lambda: execute(note))
        show_messages(cursor.messages, display)
        if cursor.description is None:
            _report_success(cursor, display)
            return
        if display.format in FILE_FORMATS and edit is None and chosen is None:
            count = _write_file(work, cursor, display)
        else:
            names: Sequence[str] = [str(column[0]) for column in cursor.description]
            pages: Iterable[Page] = work.pages(cursor)
            if edit is not None:
                names, pages = edit(names, pages)
            if chosen is not None:
                names, pages = _project(names, pages, chosen)
            pager = "" if edit is not None else display.pager
            try:
                with paged(display.out, pager) as out:
                    count = _writer(display, pager)(names, pages, out, display.header)
            except PagerClosedError:
                return
    display.count_rows(count, started)


def _writer(display: Display, pager: str) -> Format:
    """Return what writes a result: for people, without columns beyond the edge of the screen."""
    if pager and display.format == "table" and display.out.isatty():
        return fitting(shutil.get_terminal_size().columns)
    return writer_of(display.format)


def _write_file(work: Background, cursor: Cursor, display: Display) -> int:
    out = display.claim_file()
    batches = work.call(cursor, cursor.fetch_record_batches)
    one_by_one = iter(lambda: work.call(cursor, lambda: next(batches, None)), None)
    return write_batches(display.format, batches.schema, one_by_one, out)


def _execute(cursor: Cursor, sql: str, note: Note | None) -> None:
    cursor.execute_async(sql)
    if note is not None:
        _follow(cursor, note)
    cursor.wait()


def _follow(cursor: Cursor, note: Note) -> None:
    """Hand the lines of the statement's log on while it runs."""
    while True:
        asked = time.monotonic()
        status = cursor.poll()
        if status.finished:
            return
        note(status, next(reversed(cursor.fetch_logs()), ""))
        # Some servers answer a poll immediately: do not flood them.
        time.sleep(max(0.0, _POLL_SECONDS - (time.monotonic() - asked)))


def _wait(
    future: Future[T],
    cursor: Cursor,
    interrupted: threading.Event,
    tick: Callable[[], None] | None,
) -> T:
    """Wait for a call that runs in the background; an interrupt cancels the statement.

    The call is never interrupted in the middle of a reply, so the connection stays usable.
    """
    while not future.done():
        wait([future], timeout=_TICK_SECONDS)
        if interrupted.is_set():
            # At every tick: at first the statement may not have a handle yet.
            _cancel(cursor)
        elif tick is not None:
            tick()
    if interrupted.is_set():
        raise InterruptedStatementError from future.exception()
    return future.result()


@contextmanager
def _interrupts(*signals: signal.Signals) -> Iterator[threading.Event]:
    """Turn Ctrl-C and other signals into an event; a second one has its usual effect.

    An exception at an arbitrary point would break the driver's calls and the thread pool.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def take(number: int, frame: FrameType | None) -> None:
        event.set()
        restore()

    def restore() -> None:
        for each, handler in before.items():
            signal.signal(each, handler)

    before = {each: signal.signal(each, take) for each in signals}
    try:
        yield event
    finally:
        restore()


def _cancel(cursor: Cursor) -> None:
    try:
        cursor.cancel()
    except Error as error:
        # Where the connection is gone, the call that is waited for ends with that error.
        logger.debug("The statement could not be canceled: %s", error)


def _project(
    names: Sequence[str], pages: Iterable[Page], chosen: Sequence[str]
) -> tuple[list[str], Iterable[Page]]:
    """Keep the chosen columns, in their order; all of them if the server uses other names."""
    places = [names.index(name) for name in chosen if name in names]
    if not places:
        return list(names), pages
    kept = ([[row[place] for place in places] for row in page] for page in pages)
    return [names[place] for place in places], kept


def show_messages(messages: Iterable[tuple[type[Warning], Warning]], display: Display) -> None:
    """Write the server's warnings and notes about a statement, or about a new session."""
    for _, message in messages:
        if message.severity == "warning":
            display.warn(f"[WARN] {message}")
        else:
            display.notice(f"[INFO] {message}")


def _report_success(cursor: Cursor, display: Display) -> None:
    if cursor.rowcount >= 0:
        display.notice(f"[INFO] Execute statement succeeded: {rows_of(cursor.rowcount)}.")
    else:
        display.notice("[INFO] Execute statement succeeded.")
