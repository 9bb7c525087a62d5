"""Which failures are transient, when to retry, when to give up; pure."""

from __future__ import annotations

from datetime import timedelta

from tidegate_server.core.errors import Code
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.states import RunState

RETRIES_OPTION = "materialized-table.refresh.retries"
SUSPEND_OPTION = "materialized-table.suspend-after-failures"

DEFAULT_RETRIES = 3
DEFAULT_SUSPEND_AFTER = 5

_FIRST_PAUSE = timedelta(seconds=5)
_LONGEST_PAUSE = timedelta(minutes=5)
_TRANSIENT_CLASSES = frozenset({"08", "40", "53"})
"""SQLSTATE classes: connection, transaction rollback, insufficient resources."""
_NO_FAILURES = frozenset(
    code.name
    for code in (
        Code.AUDIT_UNAVAILABLE,
        Code.CLUSTER_NO_EXECUTORS,
        Code.ENGINE_UNAVAILABLE,
        Code.MT_VERSION_HELD,
    )
)
_TRANSIENT_PREFIX = "DELTA_CONCURRENT_"


def transient(run: RefreshRun) -> bool:
    """Say whether a failed run may succeed on retry."""
    by_state = (run.sqlstate or "")[:2] in _TRANSIENT_CLASSES
    return by_state or (run.error_class or "").startswith(_TRANSIENT_PREFIX)


def retry_pause(attempt: int) -> timedelta:
    """Return the pause after a failed attempt: 5, 10, 20 … 300 seconds."""
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * int(2 ** (min(attempt, 10) - 1)))


def retries_left(run: RefreshRun, retries: int) -> bool:
    """Say whether to retry a run."""
    return run.state is RunState.FAILED and run.attempt <= retries and transient(run)


def interrupted(run: RefreshRun) -> bool:
    """Say whether a run was interrupted: its server stopped or was presumed dead."""
    if run.state is RunState.CANCELLED:
        return run.reason_code == Reason.SERVER_STOPPED
    return run.state is RunState.ABANDONED


def counts_as_failure(run: RefreshRun) -> bool:
    """Say whether a run counts as a failure of the table.

    A missing engine or audit log does not, nor does a held version.
    """
    return run.state is RunState.FAILED and run.error_class not in _NO_FAILURES


def whole_number(text: str | None, default: int) -> int:
    """Parse an option that was validated when set; else return the default."""
    word = (text or "").strip()
    return int(word) if word.isascii() and word.isdigit() else default


def suspension_reason(failures: int, last: RefreshRun) -> str:
    """Return the status reason of a table suspended after repeated failures."""
    return (
        f"{Reason.SUSPENDED_DUE_TO_ERRORS}: {failures} refreshes failed in a row, the last with "
        f"{last.error_class}: {last.error_message}"
    )
