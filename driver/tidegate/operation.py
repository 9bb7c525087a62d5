"""One operation on the server: its state, results, log, end."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from enum import Enum
from time import monotonic
from typing import Any, Final, Protocol
from uuid import UUID

from tidegate.errors import (
    Error,
    InternalError,
    NotSupportedError,
    Warning,
    server_error,
    server_message,
)
from tidegate.result import Pause
from tidegate.status import check
from tidegate.wire.columns import decode_column
from tidegate.wire.schema import WireColumn, read_table_schema
from tidegate.wire.service import ttypes

logger = logging.getLogger(__name__)

_FETCH_LOG: Final = 1
_LOG_LINES: Final = 1000


class OperationState(Enum):
    """The state of an operation; values are the protocol's numbers."""

    INITIALIZED = ttypes.TOperationState.INITIALIZED_STATE
    RUNNING = ttypes.TOperationState.RUNNING_STATE
    FINISHED = ttypes.TOperationState.FINISHED_STATE
    CANCELED = ttypes.TOperationState.CANCELED_STATE
    CLOSED = ttypes.TOperationState.CLOSED_STATE
    ERROR = ttypes.TOperationState.ERROR_STATE
    UNKNOWN = ttypes.TOperationState.UKNOWN_STATE
    PENDING = ttypes.TOperationState.PENDING_STATE
    TIMEDOUT = ttypes.TOperationState.TIMEDOUT_STATE


_UNFINISHED: Final = frozenset(
    {OperationState.INITIALIZED, OperationState.RUNNING, OperationState.PENDING}
)
_ENDED_BADLY: Final = {
    OperationState.CANCELED: ("the operation was canceled", "57014"),
    OperationState.TIMEDOUT: ("the operation ran longer than its timeout", "57014"),
    OperationState.CLOSED: ("the operation was closed on the server", "HY010"),
    OperationState.UNKNOWN: ("the server does not know the operation's state", "HY000"),
}


_DONE_OF_ALL: Final = re.compile(r"(\d+)/(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCounts:
    """The tasks of an operation, as far as the server knows them yet."""

    total: int
    completed: int
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationStatus:
    """How far an operation is.

    ``progress`` counts from 0.0 to 1.0 where the server reports it, as ``tasks`` do, and
    ``stages``, those that are done and all; ``modified_rows`` is None for
    anything but DML, or where the server does not count. ``messages`` are the server's warnings
    and notes.
    """

    state: OperationState
    has_result_set: bool
    modified_rows: int | None = None
    progress: float | None = None
    tasks: TaskCounts | None = None
    stages: tuple[int, int] | None = None
    messages: tuple[Warning, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether the operation is done."""
        return self.state not in _UNFINISHED


class Caller(Protocol):
    """The part of a connection that an operation uses."""

    def call(self, name: str, request: Any) -> Any: ...
    def call_aside(self, name: str, request: Any) -> Any: ...
    @property
    def resumable(self) -> bool: ...


class Operation:
    """An operation by its handle; knows nothing of rows."""

    def __init__(self, caller: Caller, handle: Any) -> None:
        self._caller = caller
        self.handle = handle
        self._query_id: str | None = None
        self._next_line = 0
        self._closed = False

    @property
    def query_id(self) -> str:
        """The server's id of the operation, the id in its handle where it gives no other."""
        if self._query_id is None:
            try:
                reply = self._caller.call("GetQueryId", ttypes.TGetQueryIdReq(self.handle))
                self._query_id = reply.queryId
            except Error as error:
                logger.debug("the server gives no query id: %s", error)
            self._query_id = self._query_id or str(UUID(bytes=self.handle.operationId.guid))
        return self._query_id

    @property
    def portable_handle(self) -> str:
        """The handle as text, by which another connection can name the operation."""
        identifier = self.handle.operationId
        return f"{identifier.guid.hex()}.{identifier.secret.hex()}"

    def poll(self) -> OperationStatus:
        """Ask for the state once; the server may hold the answer until the state changes.

        :raises Error: if the operation failed, was canceled or ran into its timeout.
        """
        request = ttypes.TGetOperationStatusReq(self.handle, getProgressUpdate=True)
        reply = self._caller.call("GetOperationStatus", request)
        check(reply.status)
        state = _state(reply.operationState)
        if state is OperationState.ERROR:
            raise server_error(
                reply.errorMessage,
                sqlstate=reply.sqlState,
                error_code=reply.errorCode,
                info=reply.status.infoMessages,
                query_id=self.query_id,
            )
        if state in _ENDED_BADLY:
            message, sqlstate = _ENDED_BADLY[state]
            raise server_error(
                reply.errorMessage or message,
                sqlstate=reply.sqlState or sqlstate,
                error_code=reply.errorCode,
                query_id=self.query_id,
            )
        has_result_set = reply.hasResultSet
        if has_result_set is None:
            has_result_set = self.handle.hasResultSet
        return OperationStatus(
            state=state,
            has_result_set=has_result_set,
            modified_rows=reply.numModifiedRows,
            progress=_progress(reply.progressUpdateResponse),
            tasks=_tasks(reply.progressUpdateResponse),
            stages=_stages(reply.progressUpdateResponse),
            messages=tuple(map(server_message, reply.status.infoMessages or ())),
        )

    def wait(self) -> OperationStatus:
        """Poll until the operation is done.

        :raises Error: if it failed, was canceled or ran into its timeout.
        """
        pause = Pause()
        while True:
            started = monotonic()
            status = self.poll()
            if status.finished:
                return status
            pause.after(started)

    def columns(self) -> tuple[WireColumn, ...]:
        """Ask for the columns of the result."""
        request = ttypes.TGetResultSetMetadataReq(self.handle)
        reply = self._caller.call("GetResultSetMetadata", request)
        check(reply.status, query_id=self._query_id)
        return read_table_schema(reply.schema) if reply.schema else ()

    def fetch(self, max_rows: int, start_row: int) -> Any:
        """Ask for the rows of the result that follow; returns TFetchResultsResp.

        :param start_row: the number of rows that were received before.
        """
        request = ttypes.TFetchResultsReq(
            self.handle, ttypes.TFetchOrientation.FETCH_NEXT, max_rows
        )
        reply = self._fetch(request, start_row)
        found = reply.results.startRowOffset if reply.results else start_row
        if self._caller.resumable and found != start_row:
            raise InternalError(
                f"the server sent the rows from {found} on instead of those from {start_row} on",
                sqlstate="XX000",
                query_id=self._query_id,
            )
        return reply

    def fetch_log(self) -> list[str]:
        """Ask for the lines of the log that were not fetched yet."""
        request = ttypes.TFetchResultsReq(
            self.handle, ttypes.TFetchOrientation.FETCH_NEXT, _LOG_LINES, _FETCH_LOG
        )
        results = self._fetch(request, self._next_line).results
        if not results or not results.columns:
            return []
        lines = [line or "" for line in decode_column(results.columns[0])]
        self._next_line = (results.startRowOffset or 0) + len(lines)
        return lines

    def _fetch(self, request: Any, start: int) -> Any:
        if self._caller.resumable:
            # Its place makes the request repeatable: "next" means others after a lost reply.
            request.orientation = ttypes.TFetchOrientation.FETCH_ABSOLUTE
            request.startRow = start
        reply = self._caller.call("FetchResults", request)
        check(reply.status, query_id=self._query_id)
        return reply

    def cancel(self) -> None:
        """Cancel the operation, even while another thread waits for it on the connection."""
        request = ttypes.TCancelOperationReq(self.handle)
        check(self._caller.call_aside("CancelOperation", request).status)

    def close(self) -> None:
        """Free what the server keeps for the operation; cancels it if it still runs."""
        if self._closed:
            return
        self._closed = True
        request = ttypes.TCloseOperationReq(self.handle)
        try:
            check(self._caller.call("CloseOperation", request).status)
        except NotSupportedError:
            raise
        except Error as error:
            # It may be gone: closed with its session, expired, or lost with the connection.
            logger.debug("the operation could not be closed: %s", error)


def cancel_request(portable_handle: str) -> Any:
    """Return the request that cancels an operation of any connection.

    :raises ValueError: if the text is not a handle.
    """
    guid, _, secret = portable_handle.partition(".")
    identifier = ttypes.THandleIdentifier(bytes.fromhex(guid), bytes.fromhex(secret))
    kind = ttypes.TOperationType.EXECUTE_STATEMENT
    return ttypes.TCancelOperationReq(ttypes.TOperationHandle(identifier, kind, False))


def _state(number: int | None) -> OperationState:
    return OperationState.UNKNOWN if number is None else OperationState(number)


def _progress(update: Any) -> float | None:
    if update is None or update.status == ttypes.TJobExecutionStatus.NOT_AVAILABLE:
        return None
    return float(update.progressedPercentage)


def _tasks(update: Any) -> TaskCounts | None:
    """Sum up the rows that beeline draws, which Hive's servers and Tidegate's have in common."""
    names = list(update.headerNames or ()) if update is not None else []
    try:
        places = [names.index(name) for name in ("TOTAL", "COMPLETED", "RUNNING")]
        rows = [[int(row[place]) for place in places] for row in update.rows]
    except (ValueError, IndexError):
        return None
    if not rows:
        return None
    total, completed, running = map(sum, zip(*rows, strict=True))
    return TaskCounts(total=total, completed=completed, running=running)


def _stages(update: Any) -> tuple[int, int] | None:
    """Read the footer, such as ``STAGES: 01/02`` or ``VERTICES: 01/02``."""
    found = _DONE_OF_ALL.search((update.footerSummary or "") if update is not None else "")
    return None if found is None else (int(found[1]), int(found[2]))
