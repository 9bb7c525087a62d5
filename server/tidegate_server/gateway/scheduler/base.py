"""What a workflow scheduler promises, and the requests it takes (after Flink's
``WorkflowScheduler``).

Guarantees of the embedded one: schedules, leases and epochs live in the store and survive
restarts; one table is refreshed by one run at a time; a fire is claimed once. Not guaranteed: that
a fire runs at its very second, only that it is not lost (misfire policy ONCE: one catch-up run).
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
"""Marks the owner of a lease that a statement holds while it changes a table; before a table's id,
the key of the lease of its definition."""
ROLLBACK_LEASE = "rollback/"
"""Before a table's id, the key of the lease of a ROLLBACK of its rows and definition."""

CREATION_LEASE = "creation/"
"""Before a table's id, the key of the lease of the CREATE that is making it."""

RunRefresh = Callable[[RefreshRequest], RefreshRun]
"""Carries a request out to its end and returns its record; failures are in the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """The standing order to keep one table fresh.

    ``cron`` is a Quartz expression of seven fields, or None for a table that is refreshed when its
    sources change. ``freshness_seconds`` bounds how long changes gather.
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
    """Order periodic refreshes of a table; ``table`` is its definition as it is to be."""

    workflow: Workflow
    table: MaterializedTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifyWorkflow:
    """Replace a table's workflow; used by SUSPEND, RESUME and ALTER."""

    workflow: Workflow
    table: MaterializedTable


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteWorkflow:
    """Withdraw the order; one that is gone already is harmless."""

    table_id: str


class WorkflowScheduler(Protocol):
    """Creates, modifies and deletes workflows and runs them while open."""

    def open(self) -> None:
        """Start firing."""
        ...

    def close(self) -> None:
        """Stop firing and wait for running refreshes to end or be abandoned."""
        ...

    def create(self, request: CreateWorkflow) -> None:
        """:raises ServerError: if the table has a workflow already."""
        ...

    def modify(self, request: ModifyWorkflow) -> None:
        """:raises ServerError: MT_NOT_FOUND if the table has no workflow."""
        ...

    def delete(self, request: DeleteWorkflow) -> None:
        """Withdraw the order."""
        ...

    def workflow(self, table_id: str) -> Workflow | None:
        """Return the table's workflow with its next fire, or None."""
        ...


class Ledger(Protocol):
    """Leases, epochs and the history of runs, in the store."""

    def claim(self, table_id: str, owner: str, now: datetime, seconds: float) -> int | None:
        """Take the table's lease and a fresh epoch; None while another owner holds it."""
        ...

    def extend(self, table_id: str, owner: str, now: datetime, seconds: float) -> bool:
        """Prolong a lease; False if it was lost."""
        ...

    def release(self, table_id: str, owner: str) -> None:
        """Give a lease back; one that was lost already is harmless."""
        ...

    def holder(self, table_id: str, now: datetime) -> str | None:
        """Return the owner of the table's unexpired lease, or None."""
        ...

    def raise_epoch(self, table_id: str, epoch: int) -> None:
        """Make every later epoch of the table greater than ``epoch``; for a store that was lost."""
        ...

    def record(self, run: RefreshRun) -> None:
        """Insert a run, or replace the one of the same refresh_id.

        A run that ended stays, unless it was given up for dead and succeeded.
        """
        ...

    def ask_cancel(self, refresh_id: str) -> None:
        """Leave word, for whichever server carries a run out, that it is to stop."""
        ...

    def cancel_asked(self, refresh_id: str) -> bool:
        """Say whether someone left word that a run is to stop."""
        ...

    def find(self, refresh_id: str) -> RefreshRun | None:
        """Return the run of that id, or None."""
        ...

    def last_success(self, table_id: str) -> RefreshRun | None:
        """Return the newest run whose vector holds for the whole table, or None."""
        ...

    def runs(self, table_id: str | None = None, limit: int = 1000) -> tuple[RefreshRun, ...]:
        """Return runs newest first, of one table or of all."""
        ...

    def commits(self, table_id: str, limit: int) -> tuple[RefreshRun, ...]:
        """Return a table's runs that succeeded and made a version, newest first."""
        ...

    def unfinished(self) -> tuple[RefreshRun, ...]:
        """Return runs still QUEUED or RUNNING, to be settled at start."""
        ...

    def forget(self, before: datetime) -> int:
        """Delete the runs that ended before a moment; return how many.

        A table keeps the run its vector comes from, however old that is.
        """
        ...
