"""Workflows: derived from definitions, and stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.freshness import Freshness
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import MaterializedTable, RefreshMode
from tidegate_server.core.model.zones import SESSION_ZONE, parse_zone
from tidegate_server.gateway.scheduler.base import Workflow
from tidegate_server.gateway.scheduler.cron import (
    CRON_OPTION,
    TIMEZONE_OPTION,
    freshness_to_cron,
    interval_schedule,
)
from tidegate_server.gateway.store.database import Database
from tidegate_server.gateway.store.tables import workflows as w

ALIGNMENT_OPTION = "materialized-table.schedule.alignment"

Option = Callable[[str], str | None]
"""Looks an option up by its key."""


def schedule_for(freshness: Freshness, option: Option) -> str:
    """Return the schedule of a table: its own cron expression, else one from its freshness.

    :raises ServerError: MT_FRESHNESS_* if cron cannot express the freshness and the alignment is
        not ``interval``.
    """
    if (cron := option(CRON_OPTION)) is not None:
        return cron.strip()
    if (option(ALIGNMENT_OPTION) or "").strip().upper() == "INTERVAL":
        return interval_schedule(freshness)
    return freshness_to_cron(freshness)


def workflow_for(
    table: MaterializedTable, timezone: str, options: Mapping[str, str] | None = None
) -> Workflow:
    """Return the workflow of a definition; it is active unless the table is SUSPENDED.

    :param timezone: the server's, see :func:`schedule_timezone`.
    :param options: the server's defaults of the tables' options.
    :raises ServerError: MT_FRESHNESS_* if cron cannot express a scheduled table's freshness,
        MT_OPTION_VALUE for a cron expression on a table that has no schedule.
    """
    option = table_option(table, options or {})
    return Workflow(
        table_id=table.id,
        mode=table.definition.refresh_mode,
        freshness_seconds=table.definition.freshness.seconds,
        cron=_schedule_of(table, option),
        timezone=schedule_timezone(table, timezone, options),
        active=table.state.status is not RefreshStatus.SUSPENDED,
    )


def schedule_timezone(
    table: MaterializedTable, timezone: str, options: Mapping[str, str] | None = None
) -> str:
    """Return the time zone of a table's schedule, and of its partitions' date-formatters.

    It is the table's own option, else the zone of the session that created it, else the server's.

    :param timezone: the server's, unless ``options`` has one.
    :param options: the server's defaults of the tables' options.
    """
    own = table_option(table, {})(TIMEZONE_OPTION)
    if own is not None:
        return own.strip()
    for layer in (table.state.resume_options, table.definition.settings):
        zone = layer.get(SESSION_ZONE)
        # A zone that only Spark understands cannot be used for a schedule.
        if zone is not None and parse_zone(zone) is not None:
            return zone.strip()
    return ((options or {}).get(TIMEZONE_OPTION) or timezone).strip()


def table_option(table: MaterializedTable, options: Mapping[str, str]) -> Option:
    """Return a lookup of a table's options that falls back to the server's defaults."""
    definition = table.definition
    layers = (table.state.resume_options, definition.options, definition.settings, options)

    def option(key: str) -> str | None:
        for layer in layers:
            if key in layer:
                return layer[key]
        return None

    return option


def _schedule_of(table: MaterializedTable, option: Option) -> str | None:
    definition = table.definition
    if not definition.watched and not definition.downstream:
        return schedule_for(definition.freshness, option)
    own = {**definition.options, **table.state.resume_options}
    if (cron := own.get(CRON_OPTION)) is not None:
        what = "FRESHNESS = DOWNSTREAM" if definition.downstream else "CONTINUOUS"
        if definition.on_update is not None:
            what = "REFRESH_TRIGGER = ON UPDATE"
        reason = f"a table with {what} has no schedule of its own"
        raise error(Code.MT_OPTION_VALUE, key=CRON_OPTION, value=repr(cron), reason=reason)
    return None


class WorkflowStore:
    """One row per table; every call is one transaction. Replacing a row resets its failures."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, workflow: Workflow) -> None:
        """:raises ServerError: MT_ALREADY_EXISTS if the table has a workflow."""
        try:
            with self._database.begin() as connection:
                connection.execute(insert(w).values(**_row_values(workflow)))
        except IntegrityError as cause:
            raise error(Code.MT_ALREADY_EXISTS, kind="Workflow", table=workflow.table_id) from cause

    def replace(self, workflow: Workflow) -> None:
        """:raises ServerError: MT_NOT_FOUND if the table has no workflow."""
        change = update(w).where(w.c.table_id == workflow.table_id).values(**_row_values(workflow))
        with self._database.begin() as connection:
            if connection.execute(change.values(failures=0)).rowcount == 0:
                raise error(Code.MT_NOT_FOUND, table=workflow.table_id)

    def deactivate(self, table_id: str) -> None:
        """Stop a workflow from firing, whatever its current schedule; a missing one is ignored."""
        rest = update(w).where(w.c.table_id == table_id)
        with self._database.begin() as connection:
            connection.execute(rest.values(active=False, next_fire=None, failures=0))

    def remove(self, table_id: str) -> None:
        """Delete a workflow; a missing one is ignored."""
        with self._database.begin() as connection:
            connection.execute(delete(w).where(w.c.table_id == table_id))

    def find(self, table_id: str) -> Workflow | None:
        """Return the workflow of a table, or None."""
        with self._database.read() as connection:
            row = connection.execute(select(w).where(w.c.table_id == table_id)).one_or_none()
        return None if row is None else _to_workflow(row)

    def scheduled_workflows(self) -> tuple[Workflow, ...]:
        """Return the workflows that have a schedule."""
        with self._database.read() as connection:
            rows = connection.execute(select(w).where(w.c.cron.is_not(None)))
            return tuple(_to_workflow(row) for row in rows)

    def due(self, now: datetime) -> tuple[Workflow, ...]:
        """Return the active workflows that are due, the longest due first."""
        waiting = select(w).where(w.c.active, w.c.next_fire <= now).order_by(w.c.next_fire)
        with self._database.read() as connection:
            return tuple(_to_workflow(row) for row in connection.execute(waiting))


def _row_values(workflow: Workflow) -> Mapping[str, object]:
    return {
        "table_id": workflow.table_id,
        "mode": workflow.mode.value,
        "freshness_seconds": workflow.freshness_seconds,
        "cron": workflow.cron,
        "timezone": workflow.timezone,
        "active": workflow.active,
        "next_fire": workflow.next_fire,
    }


def _to_workflow(row: Row[Any]) -> Workflow:
    return Workflow(
        table_id=row.table_id,
        mode=RefreshMode(row.mode),
        freshness_seconds=row.freshness_seconds,
        cron=row.cron,
        timezone=row.timezone,
        active=row.active,
        next_fire=row.next_fire,
    )
