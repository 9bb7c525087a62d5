"""Notices of CREATE about a table's schedule: time of the first rows, time zones."""

from __future__ import annotations

from datetime import datetime, timedelta

from tidegate_server.core.model.freshness import parse_duration
from tidegate_server.core.model.table import Definition, MaterializedTable
from tidegate_server.core.model.zones import (
    LOCAL_ZONE,
    SESSION_ZONE,
    keep_the_same_time,
    parse_zone,
)
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.options import INITIALIZE_KEY
from tidegate_server.gateway.scheduler.base import Workflow
from tidegate_server.gateway.scheduler.cron import TIMEZONE_OPTION, next_fire, read_timezone
from tidegate_server.gateway.scheduler.misfires import JITTER_OPTION, jitter, partitions_of_fire
from tidegate_server.gateway.scheduler.workflows import table_option, workflow_for


def zone_warning(table: MaterializedTable, query_zone: str, context: Context) -> str | None:
    """Return the warning if the query and the schedule use different time zones.

    :param query_zone: the session's zone; empty if unknown.
    """
    workflow = _workflow(table, context)
    name = table.definition.settings.get(SESSION_ZONE) or query_zone
    query, schedule = parse_zone(name), parse_zone(workflow.timezone)
    if workflow.cron is None or query is None or schedule is None:
        return None
    if keep_the_same_time(query, schedule, context.services.clock.now()):
        return None
    dates = " and its date-formatters" if table.definition.date_formatters() else ""
    return (
        f"the query of {table.name} runs in the time zone {name}, but its schedule{dates} "
        f"in {workflow.timezone}. One zone for both is set by '{TIMEZONE_OPTION}', or before "
        f"CREATE by SET '{LOCAL_ZONE}'."
    )


def first_rows(table: MaterializedTable, context: Context) -> str | None:
    """Return when an empty new table gets its first rows, and how to load it now.

    None if the table already has rows or is refreshed immediately.

    :raises ServerError: MT_OPTION_VALUE for a schedule that never fires again.
    """
    definition = table.definition
    filled = definition.backfilled_from is not None or loads_at_once(definition, context)
    if definition.watched or filled:
        return None
    hint = (
        f"ALTER MATERIALIZED TABLE {table.name.quoted()} REFRESH loads it now; with "
        f"'{INITIALIZE_KEY}' = 'ON_CREATE' CREATE does."
    )
    workflow = _workflow(table, context)
    if workflow.cron is None:
        return (
            f"{table.name} is empty until a table that reads it is refreshed; it has no schedule "
            f"of its own. {hint}"
        )
    fire = next_fire(workflow.cron, workflow.timezone, context.services.clock.now())
    option = table_option(table, context.services.config.options)
    most = parse_duration(option(JITTER_OPTION) or "")
    late = jitter(table.id, most.duration) if most is not None else timedelta()
    begin = (fire + late).astimezone(read_timezone(workflow.timezone))
    return (
        f"{table.name} is empty until its first refresh, at {begin:%Y-%m-%d %H:%M:%S} "
        f"({workflow.timezone}){_covered_partitions(table, fire, workflow, context)}. {hint}"
    )


def loads_at_once(definition: Definition, context: Context) -> bool:
    """Say whether CREATE loads a table before it returns."""
    chosen = definition.options.get(INITIALIZE_KEY) or context.setting(INITIALIZE_KEY) or ""
    return chosen.strip().upper() == "ON_CREATE"


def _covered_partitions(
    table: MaterializedTable, fire: datetime, workflow: Workflow, context: Context
) -> str:
    """Describe the partitions a first refresh covers; empty if it covers all."""
    partitions = partitions_of_fire(
        table.definition,
        fire,
        freshness=timedelta(seconds=workflow.freshness_seconds),
        timezone=workflow.timezone,
        option=table_option(table, context.services.config.options),
        past=lambda: (),
        newest=lambda: None,
    )
    if not partitions:
        return ""
    shown = [", ".join(f"{k}={v}" for k, v in spec.items()) for spec in partitions]
    more = f" and {len(shown) - 1} more" if len(shown) > 1 else ""
    return f", of the partition {shown[0]}{more}"


def _workflow(table: MaterializedTable, context: Context) -> Workflow:
    config = context.services.config
    return workflow_for(table, config.timezone, config.options)
