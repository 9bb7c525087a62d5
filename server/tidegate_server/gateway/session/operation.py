"""An operation: its state machine, its outcome and its log."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Progress
from tidegate_server.core.model.clock import Clock
from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.model.states import OPERATION_MOVES, OperationState, allowed
from tidegate_server.core.sql.redact import redact_start
from tidegate_server.gateway.context import NOTE, WARNING
from tidegate_server.gateway.session.cursor import FetchOrientation, Measure, Page, ResultCursor
from tidegate_server.gateway.session.handle import Handle

LOG_LINES = 10_000
"""Maximum number of log lines per operation; older ones are dropped."""
MESSAGES = 100
"""Maximum number of warnings and notes that a client gets; the log has the others."""
MESSAGE_LENGTH = 2_000
"""Maximum length of a message that a client gets; the log has the whole line."""
SMALL_BYTES = 16 << 10
"""Maximum size of a result that is encoded faster than a thread is woken to do it."""
LOGGED_STEP = 10
"""Percent of progress after which it is logged again."""


class OperationKind(Enum):
    """The kind of an operation (Hive's TOperationType)."""

    EXECUTE_STATEMENT = "EXECUTE_STATEMENT"
    GET_TYPE_INFO = "GET_TYPE_INFO"
    GET_CATALOGS = "GET_CATALOGS"
    GET_SCHEMAS = "GET_SCHEMAS"
    GET_TABLES = "GET_TABLES"
    GET_TABLE_TYPES = "GET_TABLE_TYPES"
    GET_COLUMNS = "GET_COLUMNS"
    GET_FUNCTIONS = "GET_FUNCTIONS"


class OperationLog:
    """A bounded list of lines with one reading position."""

    def __init__(self, limit: int = LOG_LINES) -> None:
        self._lines: deque[str] = deque(maxlen=limit)
        self._lock = threading.Lock()
        self._written = 0
        self._read = 0
        self._news = 0

    def append(self, line: str, *, is_news: bool = True) -> None:
        """Add a line; if the buffer is full, the oldest one is dropped.

        :param is_news: whether the line is worth waking clients that wait for the end.
        """
        with self._lock:
            self._lines.append(line)
            self._written += 1
            if is_news:
                self._news = self._written

    def read(self, max_rows: int, *, start: int | None = None) -> tuple[int, list[str]]:
        """Return the number of the first line and at most ``max_rows`` lines.

        :param start: the number of the line to begin with; by default the first unread one. Lines
            that were dropped are left out.
        """
        with self._lock:
            oldest = self._written - len(self._lines)
            start = min(max(self._read if start is None else start, oldest), self._written)
            lines = list(self._lines)[start - oldest : start - oldest + max_rows]
            self._read = start + len(lines)
            return start, lines

    @property
    def unread(self) -> bool:
        """Whether there are unread lines."""
        return self._read < self._written

    @property
    def has_news(self) -> bool:
        """Whether there are unread lines with news."""
        return self._read < self._news


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationView:
    """A consistent view of an operation at one moment."""

    state: OperationState
    error: ServerError | None
    has_result_set: bool
    modified_rows: int | None
    progress: Progress | None
    messages: tuple[str, ...]
    """Warnings and notes, each beginning with ``Warning: `` or ``Note: ``."""
    started_at: datetime
    ended_at: datetime | None


class Operation:
    """A statement or metadata call of a session.

    Several threads change it concurrently: its worker, cancel, timeout and close. The first one
    to change the state wins; the others get False.
    """

    def __init__(
        self,
        *,
        handle: Handle,
        kind: OperationKind,
        clock: Clock,
        statement: str = "",
        has_result_set: bool = True,
        overlay: Mapping[str, str] | None = None,
        statement_kind: str = "",
        on_end: Callable[[OperationKind, OperationState, float], None] | None = None,
    ) -> None:
        """``on_end`` is called with its kind, its final state and its duration in seconds.

        ``statement_kind`` is the kind of a statement in its own words, such as ``SELECT``.
        """
        self.handle = handle
        self.id = str(handle)
        self.kind = kind
        self.statement = statement
        self.statement_kind = statement_kind
        self.overlay = dict(overlay or {})
        self.log = OperationLog()
        self.more_follow = False
        """Whether the last reply to a fetch announced more rows."""
        self.work_ended = threading.Event()
        """Set when no thread works for this operation any longer, whatever its state."""
        self._clock = clock
        self._predicted_result_set = has_result_set
        self._lock = threading.Lock()
        self._state = OperationState.INITIALIZED
        self._result: Result | None = None
        self._cursor: ResultCursor | None = None
        self._error: ServerError | None = None
        self._progress: Progress | None = None
        self._message = ""
        self._started_at = self._last_used = clock.now()
        self._ended_at: datetime | None = None
        self._on_end = on_end
        self._listeners: set[Callable[[], None]] = set()
        self._messages: list[str] = []
        self._logged_percent = -1
        self._started = False

    @property
    def state(self) -> OperationState:
        """The current state."""
        return self._state

    @property
    def started(self) -> bool:
        """Whether a thread has ever worked for it."""
        return self._started

    @property
    def is_small(self) -> bool:
        """Whether it has ended, and can be fetched from and closed without blocking."""
        if not self._state.terminal:
            return False
        result = self._result
        return result is None or (
            isinstance(result, RowsResult) and result.num_bytes <= SMALL_BYTES
        )

    def touch(self) -> None:
        """Record that a client used it."""
        self._last_used = self._clock.now()

    def idle_since(self) -> datetime | None:
        """Return when it ended or was last used, whichever is later; None while it runs."""
        ended = self._ended_at
        return None if ended is None else max(ended, self._last_used)

    def view(self, *, with_progress: bool = False) -> OperationView:
        """Return a consistent view of state, error, counts and, on request, progress.

        The progress of an operation that has ended is only returned once: Hive's JDBC driver 2.3
        requests it before each row, and beeline would draw it over the rows it has just printed.
        """
        with self._lock:
            result = self._result
            progress = self._progress if with_progress else None
            if with_progress and self._state.terminal:
                self._progress = None
            return OperationView(
                state=self._state,
                error=self._error,
                # Clients that were promised rows try to fetch them, so the promise has to be kept.
                has_result_set=self._predicted_result_set
                or (result is not None and result.has_result_set),
                modified_rows=None if result is None else result.modified_rows,
                progress=progress,
                messages=tuple(self._messages),
                started_at=self._started_at,
                ended_at=self._ended_at,
            )

    @property
    def has_progress(self) -> bool:
        """Whether there is progress to return."""
        return self._progress is not None

    def move(self, to: OperationState) -> bool:
        """Change the state; False if the life cycle does not allow it."""
        return self._transition(to, None, None)

    def finish(self, result: Result) -> bool:
        """End successfully; if this returns True, the operation owns ``result``."""
        return self._transition(OperationState.FINISHED, result, None)

    def fail(self, reason: ServerError) -> bool:
        """End with an error."""
        return self._transition(OperationState.ERROR, None, reason)

    def cancel(self, by: str = "") -> bool:
        """End as canceled; ``by`` completes the error message."""
        reason = error(Code.OPERATION_CANCELED, by=by)
        return self._transition(OperationState.CANCELED, None, reason)

    def require_wanted(self) -> None:
        """:raises ServerError: the reason, if it was ended before its work was done."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._state is OperationState.CLOSED:
                raise error(Code.INVALID_OPERATION_HANDLE, handle=self.id)

    def time_out(self, seconds: float) -> bool:
        """End because it exceeded its timeout of ``seconds``."""
        reason = error(Code.OPERATION_TIMEOUT, seconds=f"{seconds:g}")
        return self._transition(OperationState.TIMEDOUT, None, reason)

    def close(self) -> None:
        """Close it and free the result; later calls have no effect."""
        self.move(OperationState.CLOSED)
        with self._lock:
            result, self._result, self._cursor = self._result, None, None
        if result is not None:
            result.close()

    def result(self) -> Result:
        """Return the result of a finished operation.

        :raises ServerError: the operation's error; INVALID_OPERATION_HANDLE if it is closed;
            INVALID_REQUEST while it is running.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._state is OperationState.CLOSED:
                raise error(Code.INVALID_OPERATION_HANDLE, handle=self.id)
            if self._result is None:
                raise error(Code.INVALID_REQUEST, reason=f"operation {self.id} has not finished")
            return self._result

    def fetch(
        self,
        orientation: FetchOrientation,
        max_rows: int,
        max_bytes: int,
        measure: Measure,
        *,
        start_row: int = 0,
    ) -> Page:
        """Return the next rows; blocks while the result is read. Raises as :meth:`result`."""
        result = self.result()
        with self._lock:
            if self._cursor is None:
                self._cursor = ResultCursor(result)
            cursor = self._cursor
        return cursor.fetch(orientation, max_rows, max_bytes, measure, start_row=start_row)

    def put_back(self, page: Page) -> None:
        """Undo the fetch that returned ``page``, unless another fetch followed it."""
        with self._lock:
            cursor = self._cursor
        if cursor is not None:
            cursor.put_back(page)

    def write_log(self, line: str) -> None:
        """Add a log line in Hive's format; a warning or a note also becomes a message."""
        level = "WARN" if line.startswith(WARNING) else "INFO"
        self.log.append(f"{level:<5} : {line.removeprefix(WARNING).removeprefix(NOTE)}")
        if line.startswith((WARNING, NOTE)):
            with self._lock:
                if len(self._messages) < MESSAGES:
                    self._messages.append(line[:MESSAGE_LENGTH])
        self._notify()

    def log_start(self) -> None:
        """Log that the statement begins, as Hive does."""
        text = shorten(self.statement)
        self.log.append(f"INFO  : Executing command(queryId={self.id}): {text}", is_news=False)

    def _log_end(self, reason: ServerError | None, seconds: float) -> None:
        if reason is not None:
            for number, line in enumerate(reason.headline.splitlines()):
                self.log.append(f"ERROR : {'' if number else 'FAILED: '}{line}", is_news=False)
        taken = f"(queryId={self.id}); Time taken: {seconds:.3f} seconds"
        self.log.append(f"INFO  : Completed executing command{taken}", is_news=False)

    def report(self, progress: Progress) -> None:
        """Store the newest progress and log it in the format that Superset parses."""
        with self._lock:
            if self._state.terminal:
                return  # Spark would count canceled tasks as done
            self._progress = progress
            percent = percent_done(progress)
            first = self._logged_percent < 0
            waits = progress.message if progress.message != self._message else ""
            self._message = progress.message
            changed = first or percent >= min(self._logged_percent + LOGGED_STEP, 100)
            changed = changed and percent > self._logged_percent
            self._logged_percent = percent if changed else self._logged_percent
        if first:
            self.log.append("INFO  : Total jobs = 1")
            self.log.append("INFO  : Launching Job 1 out of 1")
            if progress.tracking_url:
                self.log.append(f"INFO  : Tracking URL = {progress.tracking_url}")
        if waits:
            self.write_log(WARNING + waits)
        if changed:
            self._log_percent(percent)
        self._notify()

    def _log_percent(self, percent: int) -> None:
        self.log.append(f"INFO  : Stage-1 map = {percent}%,  reduce = {percent}%")

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` from any thread after each change; return a function to stop that."""
        with self._lock:
            self._listeners.add(listener)

        def unsubscribe() -> None:
            with self._lock:
                self._listeners.discard(listener)

        return unsubscribe

    def _transition(
        self, to: OperationState, result: Result | None, reason: ServerError | None
    ) -> bool:
        with self._lock:
            if not allowed(OPERATION_MOVES, self._state, to):
                return False
            self._result = result or self._result
            self._error = reason or self._error
            self._started = self._started or to is OperationState.RUNNING
            if to is OperationState.FINISHED and self._progress is not None:
                self._progress = _as_completed(self._progress)
                if self._logged_percent < 100:
                    self._log_percent(100)
            ended = to.terminal and self._ended_at is None
            if ended:
                self._ended_at = self._clock.now()
                if self._started and self.kind is OperationKind.EXECUTE_STATEMENT:
                    self._log_end(reason, self._seconds(self._ended_at))
            # Last: the state is read without the lock, and some clients read the log once after it.
            self._state = to
        if ended and self._on_end is not None and self._ended_at is not None:
            self._on_end(self.kind, to, self._seconds(self._ended_at))
        self._notify()
        return True

    def _seconds(self, until: datetime) -> float:
        return (until - self._started_at).total_seconds()

    def _notify(self) -> None:
        with self._lock:
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()


def _as_completed(progress: Progress) -> Progress:
    """Return the progress of a finished operation: Spark may have skipped tasks and stages."""
    return replace(
        progress,
        stages_total=progress.stages_done or progress.stages_total,
        stages_done=progress.stages_done or progress.stages_total,
        tasks_total=progress.tasks_done or progress.tasks_total,
        tasks_done=progress.tasks_done or progress.tasks_total,
        tasks_running=0,
    )


def shorten(statement: str, limit: int = 200) -> str:
    """Return a statement, redacted, on one line of about ``limit`` characters."""
    line = " ".join(redact_start(statement).split())
    return line if len(line) <= limit else line[:limit] + "..."


def percent_done(progress: Progress) -> int:
    """Return the percentage of finished tasks, 0 while their number is unknown."""
    return 100 * progress.tasks_done // progress.tasks_total if progress.tasks_total else 0
