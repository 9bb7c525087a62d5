"""The interface of workflow schedulers and their requests (after Flink's ``WorkflowScheduler``).

Guarantees of the embedded scheduler: schedules, leases and epochs are stored and survive restarts;
a table is refreshed by one run at a time; a fire is acquired once. A fire may start late, but is
never lost (misfire policy ONCE: one catch-up run).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.table import MaterializedTable, RefreshMode
from tidegate_server.core.refresh.request import RefreshRequest

DEFINITION_LEASE = "definition/"
"""Prefix of a table's id in the key of its definition's lease; also marks the owner of a lease that
a statement holds while it changes a table."""
ROLLBACK_LEASE = "rollback/"
"""Prefix of a table's id in the lease key of a ROLLBACK of its rows and definition."""

CREATION_LEASE = "creation/"
"""Prefix of a table's id in the lease key of the CREATE that is making it."""

RunRefresh = Callable[[RefreshRequest], RefreshRun]
"""Runs a refresh to its end and returns its record, which also reports failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A table's periodic refresh.

    ``cron`` is a Quartz expression of seven fields, or None for a table that is refreshed when its
    sources change. ``freshness_seconds`` limits how long changes are collected.
    """

    table_id: str
    mode: RefreshMode
    freshness_seconds: int
    cron: str | None = None
    timezone: str = "UTC"
    active: bool = True
    next_fire: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateWorkflow:
    """Schedule the refreshes of a table; ``table`` is its new definition."""

    workflow: Workflow
    table: MaterializedTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifyWorkflow:
    """Replace a table's workflow; used by SUSPEND, RESUME and ALTER."""

    workflow: Workflow
    table: MaterializedTable


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteWorkflow:
    """Delete a table's workflow; a missing one is ignored."""

    table_id: str


class WorkflowScheduler(Protocol):
    """Creates, modifies and deletes workflows and runs them while open."""

    def open(self) -> None:
        """Start the scheduler."""
        ...

    def close(self) -> None:
        """Stop the scheduler and wait until running refreshes have ended or been abandoned."""
        ...

    def create(self, request: CreateWorkflow) -> None:
        """:raises ServerError: if the table has a workflow already."""
        ...

    def modify(self, request: ModifyWorkflow) -> None:
        """:raises ServerError: MT_NOT_FOUND if the table has no workflow."""
        ...

    def delete(self, request: DeleteWorkflow) -> None:
        """Delete the table's workflow."""
        ...

    def workflow(self, table_id: str) -> Workflow | None:
        """Return the table's workflow with its next fire, or None."""
        ...


class Ledger(Protocol):
    """Leases, epochs and the history of runs, in the store."""

    def claim(self, table_id: str, owner: str, now: datetime, seconds: float) -> int | None:
        """Acquire the table's lease and return a new epoch; None while another owner holds it."""
        ...

    def extend(self, table_id: str, owner: str, now: datetime, seconds: float) -> bool:
        """Renew a lease; False if it was lost."""
        ...

    def release(self, table_id: str, owner: str) -> None:
        """Release a lease; one that was lost is ignored."""
        ...

    def holder(self, table_id: str, now: datetime) -> str | None:
        """Return the owner of the table's unexpired lease, or None."""
        ...

    def raise_epoch(self, table_id: str, epoch: int) -> None:
        """Make every later epoch of the table exceed ``epoch``; used after the store was lost."""
        ...

    def record(self, run: RefreshRun) -> None:
        """Insert a run, or replace the one with the same refresh_id.

        A run that has ended is not replaced, unless it was abandoned but succeeded after all.
        """
        ...

    def request_cancel(self, refresh_id: str) -> None:
        """Ask the server that executes a run, whichever that is, to cancel it."""
        ...

    def is_cancel_requested(self, refresh_id: str) -> bool:
        """Return whether cancellation of a run was requested."""
        ...

    def find(self, refresh_id: str) -> RefreshRun | None:
        """Return the run with that id, or None."""
        ...

    def last_success(self, table_id: str) -> RefreshRun | None:
        """Return the newest successful run whose vector covers the whole table, or None."""
        ...

    def runs(self, table_id: str | None = None, limit: int = 1000) -> tuple[RefreshRun, ...]:
        """Return runs newest first, of one table or of all."""
        ...

    def commits(self, table_id: str | None, limit: int) -> tuple[RefreshRun, ...]:
        """Return the successful runs of one table or of all that made a version, newest first."""
        ...

    def unfinished_runs(self) -> tuple[RefreshRun, ...]:
        """Return runs that are still QUEUED or RUNNING, for recovery at startup."""
        ...

    def forget(self, before: datetime) -> int:
        """Delete the runs that ended before a moment; return how many.

        The run that a table's vector comes from is kept, whatever its age.
        """
        ...
