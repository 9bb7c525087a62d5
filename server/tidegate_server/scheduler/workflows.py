"""Workflows: made from definitions, kept in the store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidegate_server.errors import Code, error
from tidegate_server.model.states import RefreshStatus
from tidegate_server.model.table import MaterializedTable, RefreshMode
from tidegate_server.scheduler.base import Workflow
from tidegate_server.scheduler.cron import freshness_to_cron
from tidegate_server.store.database import Database
from tidegate_server.store.tables import workflows as w


def workflow_for(table: MaterializedTable, timezone: str) -> Workflow:
    """Return the standing order a definition asks for; it is active unless the table is SUSPENDED.

    :param timezone: where the table's cron is read on the clock.
    :raises ServerError: MT_FRESHNESS_* if cron cannot express a FULL table's freshness.
    """
    full = table.refresh_mode.scheduled
    return Workflow(
        table_id=table.id,
        mode=table.refresh_mode,
        freshness_seconds=table.freshness.seconds,
        cron=freshness_to_cron(table.freshness) if full else None,
        timezone=timezone,
        active=table.refresh_status is not RefreshStatus.SUSPENDED,
    )


class WorkflowStore:
    """One row per table; every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, workflow: Workflow) -> None:
        """:raises ServerError: MT_ALREADY_EXISTS if the table has a workflow."""
        try:
            with self._database.begin() as connection:
                connection.execute(insert(w).values(**_values(workflow)))
        except IntegrityError as failure:
            raise error(
                Code.MT_ALREADY_EXISTS, kind="Workflow", table=workflow.table_id
            ) from failure

    def replace(self, workflow: Workflow) -> None:
        """:raises ServerError: MT_NOT_FOUND if the table has no workflow."""
        change = update(w).where(w.c.table_id == workflow.table_id).values(**_values(workflow))
        with self._database.begin() as connection:
            if connection.execute(change).rowcount == 0:
                raise error(Code.MT_NOT_FOUND, table=workflow.table_id)

    def remove(self, table_id: str) -> None:
        """Delete a workflow; one that is gone is harmless."""
        with self._database.begin() as connection:
            connection.execute(delete(w).where(w.c.table_id == table_id))

    def find(self, table_id: str) -> Workflow | None:
        """Return the workflow of a table, or None."""
        with self._database.read() as connection:
            row = connection.execute(select(w).where(w.c.table_id == table_id)).one_or_none()
        return None if row is None else _workflow(row)

    def due(self, now: datetime) -> tuple[Workflow, ...]:
        """Return the active workflows whose fire has come, longest due first."""
        waiting = select(w).where(w.c.active, w.c.next_fire <= now).order_by(w.c.next_fire)
        with self._database.read() as connection:
            return tuple(_workflow(row) for row in connection.execute(waiting))

    def claim(self, workflow: Workflow, following: datetime) -> bool:
        """Move a due workflow on to its following fire; False if someone else did."""
        move = (
            update(w)
            .where(
                w.c.table_id == workflow.table_id,
                w.c.next_fire == workflow.next_fire,
                w.c.active,
            )
            .values(next_fire=following)
        )
        with self._database.begin() as connection:
            return connection.execute(move).rowcount == 1


def _values(workflow: Workflow) -> Mapping[str, object]:
    return {
        "table_id": workflow.table_id,
        "mode": workflow.mode.value,
        "freshness_seconds": workflow.freshness_seconds,
        "cron": workflow.cron,
        "timezone": workflow.timezone,
        "active": workflow.active,
        "next_fire": workflow.next_fire,
    }


def _workflow(row: Row[Any]) -> Workflow:
    return Workflow(
        table_id=row.table_id,
        mode=RefreshMode(row.mode),
        freshness_seconds=row.freshness_seconds,
        cron=row.cron,
        timezone=row.timezone,
        active=row.active,
        next_fire=row.next_fire,
    )
