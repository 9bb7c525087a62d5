"""Policies for missed fires, and the partitions that a fire covers; pure."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.runs import RefreshRun, Strategy, Trigger
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.table import Definition
from tidegate_server.core.model.versions import PartitionSpec, SourceVector
from tidegate_server.gateway.scheduler.cron import fire_after, last_fire, read_timezone
from tidegate_server.gateway.scheduler.lateness import read_lateness
from tidegate_server.gateway.scheduler.partitions import (
    POLICY_OPTION,
    Late,
    PastRefresh,
    read_policy,
    scheduled_partitions,
)

MISFIRE_OPTION = "materialized-table.schedule.misfire"
JITTER_OPTION = "materialized-table.schedule.jitter"

LATE = timedelta(minutes=1)
"""How late a fire may start without counting as missed."""
_CHUNK = 100
"""Missed fires that are enqueued in one step."""

PAST_RUNS = 1000
"""Runs of a table that are examined; older ones do not affect which partitions are still open."""


class Misfire(Enum):
    """What happens to missed fires."""

    ONCE = "ONCE"
    """Only the latest one runs, on behalf of all."""
    SKIP = "SKIP"
    """None of them runs."""
    ALL = "ALL"
    """All of them run, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueFires:
    """The fires to run now, the latest one skipped because it was missed, and the next fire.

    ``following`` is None if the schedule never fires again.
    """

    run: tuple[datetime, ...]
    missed: datetime | None = None
    following: datetime | None


def due_fires(
    schedule: str, timezone: str, first: datetime, now: datetime, misfire: Misfire
) -> DueFires:
    """Return which fires to run at ``now``, if those from ``first`` on are due.

    :raises ServerError: MT_OPTION_VALUE if the schedule is no longer valid.
    """
    if misfire is Misfire.ALL:
        due, following = [first], fire_after(schedule, timezone, first)
        while following is not None and following <= now and len(due) < _CHUNK:
            due.append(following)
            following = fire_after(schedule, timezone, following)
        return DueFires(run=tuple(due), following=following)
    latest, following = first, fire_after(schedule, timezone, first)
    if following is not None and following <= now:
        latest = last_fire(schedule, timezone, now)
        following = fire_after(schedule, timezone, latest)
    if misfire is Misfire.SKIP and now - latest > LATE:
        return DueFires(run=(), missed=latest, following=following)
    return DueFires(run=(latest,), following=following)


def read_misfire(text: str | None) -> Misfire:
    """Return the misfire policy with that name, ONCE for None.

    :raises ServerError: MT_OPTION_VALUE for an unknown name.
    """
    try:
        return Misfire((text or Misfire.ONCE.value).strip().upper())
    except ValueError as cause:
        reason = "it must be one of " + ", ".join(policy.value for policy in Misfire)
        raise error(
            Code.MT_OPTION_VALUE, key=MISFIRE_OPTION, value=repr(text), reason=reason
        ) from cause


def jitter(table_id: str, most: timedelta) -> timedelta:
    """Return the delay of a table's fires, which is the same each time."""
    return most * (zlib.crc32(table_id.encode()) / 2**32)


def partitions_of_fire(
    definition: Definition,
    fire: datetime,
    *,
    freshness: timedelta,
    timezone: str,
    option: Callable[[str], str | None],
    past: Callable[[], Iterable[RefreshRun]],
    newest: Callable[[], SourceVector | None],
) -> tuple[PartitionSpec, ...]:
    """Return the partitions that a scheduled run covers; none means the whole table.

    :param newest: returns the current versions of all sources; None if they are not known.
    :raises ServerError: MT_DATE_FORMATTER_PATTERN or MT_OPTION_VALUE.
    """
    formatters = definition.date_formatters()
    if not formatters:
        return ()
    lateness = read_lateness(definition.options)
    late = Late(lateness=lateness, newest=newest()) if lateness else None
    return scheduled_partitions(
        formatters,
        freshness,
        fire,
        read_timezone(timezone),
        read_policy(option(POLICY_OPTION)),
        tuple(_past_refreshes(past())),
        late,
    )


def _past_refreshes(runs: Iterable[RefreshRun]) -> Iterable[PastRefresh]:
    for run in runs:
        if run.action is Strategy.PARTITION and not run.partitions:
            continue  # it refreshed rows by a condition, which covers no partition
        if run.state is RunState.SUCCEEDED and run.started_at is not None:
            scheduled = run.trigger is Trigger.SCHEDULED
            yield PastRefresh(
                read_at=run.started_at,
                schedule_time=run.schedule_time if scheduled else None,
                partitions=run.partitions,
                vector=run.sources,
            )
