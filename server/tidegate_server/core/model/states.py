"""Life cycles: states and the transitions allowed between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar


class OperationState(Enum):
    """State of an operation in a session (Hive's TOperationState)."""

    INITIALIZED = "INITIALIZED"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    CLOSED = "CLOSED"
    ERROR = "ERROR"
    TIMEDOUT = "TIMEDOUT"

    @property
    def terminal(self) -> bool:
        """Whether the operation has ended."""
        return self not in _UNFINISHED


_UNFINISHED = frozenset(
    {OperationState.INITIALIZED, OperationState.PENDING, OperationState.RUNNING}
)


class RefreshStatus(Enum):
    """Status of a materialized table's refresh pipeline (Flink's RefreshStatus)."""

    INITIALIZING = "INITIALIZING"
    ACTIVATED = "ACTIVATED"
    SUSPENDED = "SUSPENDED"


class RunState(Enum):
    """State of one refresh run."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"
    UPSTREAM_FAILED = "UPSTREAM_FAILED"
    ABANDONED = "ABANDONED"


_ENDED = frozenset({OperationState.CLOSED})

OPERATION_MOVES: Mapping[OperationState, frozenset[OperationState]] = {
    OperationState.INITIALIZED: frozenset(
        {OperationState.PENDING, OperationState.CANCELED, OperationState.CLOSED}
    ),
    OperationState.PENDING: frozenset(
        {
            OperationState.RUNNING,
            OperationState.ERROR,
            OperationState.CANCELED,
            OperationState.TIMEDOUT,
            OperationState.CLOSED,
        }
    ),
    OperationState.RUNNING: frozenset(
        {
            OperationState.FINISHED,
            OperationState.ERROR,
            OperationState.CANCELED,
            OperationState.TIMEDOUT,
            OperationState.CLOSED,
        }
    ),
    OperationState.FINISHED: _ENDED,
    OperationState.ERROR: _ENDED,
    OperationState.CANCELED: _ENDED,
    OperationState.TIMEDOUT: _ENDED,
    OperationState.CLOSED: frozenset(),
}

REFRESH_MOVES: Mapping[RefreshStatus, frozenset[RefreshStatus]] = {
    RefreshStatus.INITIALIZING: frozenset({RefreshStatus.ACTIVATED}),
    RefreshStatus.ACTIVATED: frozenset({RefreshStatus.SUSPENDED}),
    RefreshStatus.SUSPENDED: frozenset({RefreshStatus.ACTIVATED}),
}

RUN_MOVES: Mapping[RunState, frozenset[RunState]] = {
    RunState.QUEUED: frozenset(
        {RunState.RUNNING, RunState.SKIPPED, RunState.CANCELLED, RunState.UPSTREAM_FAILED}
    ),
    RunState.RUNNING: frozenset(
        {RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.ABANDONED}
    ),
    RunState.SUCCEEDED: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.SKIPPED: frozenset(),
    RunState.CANCELLED: frozenset(),
    RunState.UPSTREAM_FAILED: frozenset(),
    # An abandoned run may still have committed.
    RunState.ABANDONED: frozenset({RunState.SUCCEEDED}),
}

S = TypeVar("S", bound=Enum)


def allowed(moves: Mapping[S, frozenset[S]], start: S, end: S) -> bool:
    """Say whether the transition from ``start`` to ``end`` is allowed."""
    return end in moves[start]
