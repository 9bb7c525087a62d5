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
from tidegate_server.core.model.result import Result
from tidegate_server.core.model.states import OPERATION_MOVES, OperationState, allowed
from tidegate_server.gateway.context import NOTE, WARNING
from tidegate_server.gateway.session.cursor import FetchOrientation, Measure, Page, ResultCursor
from tidegate_server.gateway.session.handle import Handle

LOG_LINES = 10_000
"""Lines an operation keeps; older ones are dropped."""
MESSAGES = 100
"""Warnings and notes an operation keeps for its client; the log has the further ones."""
MESSAGE_LENGTH = 2_000
"""Characters of a message that a client gets; the log has the whole line."""
SHOWN_STEP = 10
"""Percent that progress must gain to be logged again."""


class OperationKind(Enum):
    """What was asked (Hive's TOperationType)."""

    EXECUTE_STATEMENT = "EXECUTE_STATEMENT"
    GET_TYPE_INFO = "GET_TYPE_INFO"
    GET_CATALOGS = "GET_CATALOGS"
    GET_SCHEMAS = "GET_SCHEMAS"
    GET_TABLES = "GET_TABLES"
    GET_TABLE_TYPES = "GET_TABLE_TYPES"
    GET_COLUMNS = "GET_COLUMNS"
    GET_FUNCTIONS = "GET_FUNCTIONS"


class OperationLog:
    """Bounded lines with one reading position."""

    def __init__(self, limit: int = LOG_LINES) -> None:
        self._lines: deque[str] = deque(maxlen=limit)
        self._lock = threading.Lock()
        self._written = 0
        self._read = 0
        self._news = 0

    def append(self, line: str, *, is_news: bool = True) -> None:
        """Add a line; the oldest one goes when the buffer is full.

        :param is_news: whether clients that wait for the end should hear of it before.
        """
        with self._lock:
            self._lines.append(line)
            self._written += 1
            if is_news:
                self._news = self._written

    def read(self, max_rows: int, *, from_start: bool = False) -> tuple[int, list[str]]:
        """Return the number of the first line and at most ``max_rows`` lines not yet read."""
        with self._lock:
            oldest = self._written - len(self._lines)
            start = oldest if from_start else max(self._read, oldest)
            lines = list(self._lines)[start - oldest : start - oldest + max_rows]
            self._read = start + len(lines)
            return start, lines

    @property
    def unread(self) -> bool:
        """Whether lines wait to be read."""
        return self._read < self._written

    @property
    def has_news(self) -> bool:
        """Whether lines with news wait to be read."""
        return self._read < self._news


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationView:
    """An operation as it was at one moment."""

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
    """One thing asked in a session.

    Threads race on it: a runner, cancels, timeouts, closes. Whoever moves the state first wins;
    the others learn that they lost from a False.
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
        on_end: Callable[[OperationKind, OperationState, float], None] | None = None,
    ) -> None:
        """Take what names it; ``on_end`` is told its kind, how it ended and after how many
        seconds."""
        self.handle = handle
        self.id = str(handle)
        self.kind = kind
        self.statement = statement
        self.overlay = dict(overlay or {})
        self.log = OperationLog()
        self.more_follow = False
        """Whether the last reply to a fetch said that more rows follow."""
        self.work_ended = threading.Event()
        """Set when no thread works for this operation any more, whatever its state."""
        self._clock = clock
        self._predicted_result_set = has_result_set
        self._lock = threading.Lock()
        self._state = OperationState.INITIALIZED
        self._result: Result | None = None
        self._cursor: ResultCursor | None = None
        self._error: ServerError | None = None
        self._progress: Progress | None = None
        self._started_at = self._last_used = clock.now()
        self._ended_at: datetime | None = None
        self._on_end = on_end
        self._listeners: set[Callable[[], None]] = set()
        self._messages: list[str] = []
        self._shown_percent = -1
        self._started = False

    @property
    def state(self) -> OperationState:
        """The present state."""
        return self._state

    @property
    def started(self) -> bool:
        """Whether a thread ever began to work for it."""
        return self._started

    def touch(self) -> None:
        """Note that a client asked for it."""
        self._last_used = self._clock.now()

    def idle_since(self) -> datetime | None:
        """Return when it ended or a client asked for it last, None while it runs."""
        ended = self._ended_at
        return None if ended is None else max(ended, self._last_used)

    def view(self, *, with_progress: bool = False) -> OperationView:
        """Return state, error, counts and, if asked for, progress as they are together.

        The progress of an operation that has ended is told once: Hive's JDBC driver 2.3 asks again
        before each row, and beeline draws what it is told, over the rows it has just printed.
        """
        with self._lock:
            result = self._result
            progress = self._progress if with_progress else None
            if with_progress and self._state.terminal:
                self._progress = None
            return OperationView(
                state=self._state,
                error=self._error,
                # Clients that were told of rows fetch them, if only to find that there are none.
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
        """Whether there is progress to tell."""
        return self._progress is not None

    def move(self, to: OperationState) -> bool:
        """Change the state; False when the life cycle does not lead there from here."""
        return self._settle(to, None, None)

    def finish(self, result: Result) -> bool:
        """End well with ``result``, which the operation owns from then on if this is True."""
        return self._settle(OperationState.FINISHED, result, None)

    def fail(self, reason: ServerError) -> bool:
        """End with an error."""
        return self._settle(OperationState.ERROR, None, reason)

    def cancel(self, by: str = "") -> bool:
        """End as canceled; ``by`` completes the sentence that clients read."""
        reason = error(Code.OPERATION_CANCELED, by=by)
        return self._settle(OperationState.CANCELED, None, reason)

    def require_wanted(self) -> None:
        """:raises ServerError: why it is over, if it was ended before its work was done."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._state is OperationState.CLOSED:
                raise error(Code.INVALID_OPERATION_HANDLE, handle=self.id)

    def time_out(self, seconds: float) -> bool:
        """End because it ran longer than ``seconds``."""
        reason = error(Code.OPERATION_TIMEOUT, seconds=f"{seconds:g}")
        return self._settle(OperationState.TIMEDOUT, None, reason)

    def close(self) -> None:
        """End for good and free the result; later calls are harmless."""
        self.move(OperationState.CLOSED)
        with self._lock:
            result, self._result, self._cursor = self._result, None, None
        if result is not None:
            result.close()

    def result(self) -> Result:
        """Return the result of a finished operation.

        :raises ServerError: the operation's own error; INVALID_OPERATION_HANDLE once closed;
            INVALID_REQUEST while it still runs.
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
        self, orientation: FetchOrientation, max_rows: int, max_bytes: int, measure: Measure
    ) -> Page:
        """Return the next rows; blocks while the result is read. Raises as :meth:`result`."""
        result = self.result()
        with self._lock:
            if self._cursor is None:
                self._cursor = ResultCursor(result)
            cursor = self._cursor
        return cursor.fetch(orientation, max_rows, max_bytes, measure)

    def put_back(self, page: Page) -> None:
        """Undo the fetch that returned ``page``, unless another one came after it."""
        with self._lock:
            cursor = self._cursor
        if cursor is not None:
            cursor.put_back(page)

    def write_log(self, line: str) -> None:
        """Add a line for people in Hive's form; a warning or a note also becomes a message."""
        level = "WARN" if line.startswith(WARNING) else "INFO"
        self.log.append(f"{level:<5} : {line.removeprefix(WARNING).removeprefix(NOTE)}")
        if line.startswith((WARNING, NOTE)):
            with self._lock:
                if len(self._messages) < MESSAGES:
                    self._messages.append(line[:MESSAGE_LENGTH])
        self._notify()

    def log_start(self) -> None:
        """Log that the statement begins, as Hive does."""
        text = shortened(self.statement)
        self.log.append(f"INFO  : Executing command(queryId={self.id}): {text}", is_news=False)

    def _log_end(self, reason: ServerError | None, seconds: float) -> None:
        if reason is not None:
            for number, line in enumerate(reason.headline.splitlines()):
                self.log.append(f"ERROR : {'' if number else 'FAILED: '}{line}", is_news=False)
        taken = f"(queryId={self.id}); Time taken: {seconds:.3f} seconds"
        self.log.append(f"INFO  : Completed executing command{taken}", is_news=False)

    def report(self, progress: Progress) -> None:
        """Keep the newest progress and log it in the words that Superset reads."""
        with self._lock:
            if self._state.terminal:
                return  # tasks that were stopped count as done
            self._progress = progress
            percent = percent_done(progress)
            first = self._shown_percent < 0
            changed = first or percent >= min(self._shown_percent + SHOWN_STEP, 100)
            changed = changed and percent > self._shown_percent
            self._shown_percent = percent if changed else self._shown_percent
        if first:
            self.log.append("INFO  : Total jobs = 1")
            self.log.append("INFO  : Launching Job 1 out of 1")
            if progress.tracking_url:
                self.log.append(f"INFO  : Tracking URL = {progress.tracking_url}")
        if changed:
            self._log_percent(percent)
        self._notify()

    def _log_percent(self, percent: int) -> None:
        self.log.append(f"INFO  : Stage-1 map = {percent}%,  reduce = {percent}%")

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` from any thread after each change; returns the way to end that."""
        with self._lock:
            self._listeners.add(listener)

        def unsubscribe() -> None:
            with self._lock:
                self._listeners.discard(listener)

        return unsubscribe

    def _settle(
        self, to: OperationState, result: Result | None, reason: ServerError | None
    ) -> bool:
        with self._lock:
            if not allowed(OPERATION_MOVES, self._state, to):
                return False
            self._result = result or self._result
            self._error = reason or self._error
            self._started = self._started or to is OperationState.RUNNING
            if to is OperationState.FINISHED and self._progress is not None:
                self._progress = _completed(self._progress)
                if self._shown_percent < 100:
                    self._log_percent(100)
            ended = to.terminal and self._ended_at is None
            if ended:
                self._ended_at = self._clock.now()
                if self._started and self.kind is OperationKind.EXECUTE_STATEMENT:
                    self._log_end(reason, self._seconds(self._ended_at))
            # Last, since it is read without the lock, and some clients read the log once after it.
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


def _completed(progress: Progress) -> Progress:
    """Return the progress of what finished: Spark leaves out tasks and stages it can do without."""
    return replace(
        progress,
        stages_total=progress.stages_done or progress.stages_total,
        stages_done=progress.stages_done or progress.stages_total,
        tasks_total=progress.tasks_done or progress.tasks_total,
        tasks_done=progress.tasks_done or progress.tasks_total,
        tasks_running=0,
    )


def shortened(statement: str, limit: int = 200) -> str:
    """Return a statement in one line of about ``limit`` characters."""
    line = " ".join(statement.split())
    return line if len(line) <= limit else line[:limit] + "..."


def percent_done(progress: Progress) -> int:
    """Return finished tasks as whole percent, 0 while nothing is known."""
    return 100 * progress.tasks_done // progress.tasks_total if progress.tasks_total else 0
