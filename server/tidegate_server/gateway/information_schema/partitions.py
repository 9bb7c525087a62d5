"""The partitions of a table, their last refreshes and their status, from the history; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from enum import Enum
from typing import Any

import msgspec
import pyarrow as pa

from tidegate_server.core.model.runs import RefreshRun, Strategy, Trigger
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.versions import PartitionSpec
from tidegate_server.gateway.scheduler.partitions import covers
from tidegate_server.gateway.scheduler.ranges import partition_end

_TIME = pa.timestamp("us", tz="UTC")
COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("partition", pa.string()),
    ("refresh_id", pa.string()),
    ("trigger", pa.string()),
    ("action", pa.string()),
    ("version", pa.int64()),
    ("definition_version", pa.int64()),
    ("data_timestamp", _TIME),
    ("refreshed_at", _TIME),
    ("status", pa.string()),
)
"""The columns that describe a partition."""


class PartitionStatus(Enum):
    """Whether a partition's time is over and its content complete."""

    OPEN = "OPEN"
    """Its time plus lateness is not over; a partition without a date is always open."""
    CLOSED = "CLOSED"
    """Its time is over, and it was refreshed since, or checked and found complete."""
    STALE = "STALE"
    """Its time is over, and it was not checked since."""
    REFRESHING = "REFRESHING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """What determines when partitions end, and the current time."""

    now: datetime
    zone: tzinfo
    formatters: Mapping[str, str]
    lateness: timedelta = timedelta()


def partition_rows(runs: Iterable[RefreshRun], calendar: Calendar) -> list[dict[str, Any]]:
    """Return one row per partition that was refreshed separately, then one for all others.

    :param runs: those of one table, newest first. A refresh of the whole table counts for every
        partition, a rollback for none.
    """
    newest: dict[str, RefreshRun] = {}
    specs: dict[str, PartitionSpec] = {}
    whole: RefreshRun | None = None
    succeeded, at_work = [], []
    for run in runs:
        if run.state is RunState.RUNNING:
            at_work.append(run)
        if run.state is not RunState.SUCCEEDED or run.action is Strategy.ROLLBACK:
            continue
        succeeded.append(run)
        if run.partitions:
            for spec in run.partitions:
                specs[_as_json(spec)] = spec
                newest.setdefault(_as_json(spec), whole or run)
        elif run.action is not Strategy.PARTITION:
            whole = whole or run
    rows = []
    for partition, run in sorted(newest.items()):
        spec = specs[partition]
        status = PartitionStatus.REFRESHING
        if not any(covers(each.partitions, spec) for each in at_work):
            status = _status(spec, succeeded, calendar)
        rows.append(_row(partition, run, status))
    if whole is None:
        return rows
    busy = any(not each.partitions for each in at_work)
    return [*rows, _row(None, whole, PartitionStatus.REFRESHING if busy else None)]


def _status(
    spec: PartitionSpec, succeeded: Iterable[RefreshRun], calendar: Calendar
) -> PartitionStatus:
    end = partition_end(calendar.formatters, spec, calendar.zone)
    if end is None or calendar.now < end + calendar.lateness:
        return PartitionStatus.OPEN
    checked, read = False, False
    for run in succeeded:
        began = run.started_at or run.queued_at
        checked |= run.trigger is Trigger.SCHEDULED and began >= end + calendar.lateness
        if began >= end and _reads(run, spec):
            read = True
            checked |= began >= end + calendar.lateness
    return PartitionStatus.CLOSED if read and checked else PartitionStatus.STALE


def _reads(run: RefreshRun, spec: PartitionSpec) -> bool:
    some = run.action is Strategy.PARTITION and not run.partitions
    return not some and covers(run.partitions, spec)


def _row(partition: str | None, run: RefreshRun, status: PartitionStatus | None) -> dict[str, Any]:
    return {
        "partition": partition,
        "refresh_id": run.refresh_id,
        "trigger": run.trigger.value,
        "action": run.action.value if run.action else None,
        "version": run.to_version,
        "definition_version": run.definition_version,
        "data_timestamp": run.data_timestamp,
        "refreshed_at": run.finished_at,
        "status": status.value if status is not None else None,
    }


def _as_json(spec: PartitionSpec) -> str:
    return msgspec.json.encode(dict(spec), order="sorted").decode()
