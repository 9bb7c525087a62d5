"""Who wants which refresh, what will be done, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tidegate_server.model.names import TableName
from tidegate_server.model.runs import Strategy, Trigger
from tidegate_server.model.versions import PartitionSpec, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshRequest:
    """A wish for one refresh, as the scheduler, a user or a source change expresses it.

    ``partitions`` empty means the whole table. ``force`` runs also when no source changed.
    ``refresh_id`` lets the asker choose the run's id, so that what it can cancel under that id is
    this run; None takes a fresh one.
    """

    table_id: str
    trigger: Trigger
    requested_by: str
    schedule_time: datetime | None = None
    partitions: tuple[PartitionSpec, ...] = ()
    force: bool = False
    refresh_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshOrder:
    """All the engine needs to carry one request out; crosses the link.

    ``epoch`` is the fencing token: the commit carries it as Delta's txnVersion under the
    application id ``mt:<table_id>``, and Delta skips the same and lower ones.
    """

    refresh_id: str
    table_id: str
    name: TableName
    definition_version: int
    expanded_query: str
    columns: tuple[str, ...]
    partition_keys: tuple[str, ...]
    sources: tuple[Source, ...]
    epoch: int
    trigger: Trigger
    logical_time: datetime
    partitions: tuple[PartitionSpec, ...] = ()
    force: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRefresh:
    """What a materialized table's last commit says of itself (Delta's userMetadata)."""

    epoch: int
    version: int
    definition_version: int
    vector: Mapping[str, int]
    refresh_id: str
    partial: bool = False
    """True when the commit replaced only some partitions, so that the vector does not hold for
    the whole table."""
    foreign_version: int | None = None
    """A later version that no refresh made, so that the content is not known any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshPlan:
    """What one run will do; EXPLAIN prints this very object."""

    strategy: Strategy
    reason_code: str
    reason_text: str
    vector: Mapping[str, int]
    partitions: tuple[PartitionSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshOutcome:
    """What a carried-out plan left behind."""

    plan: RefreshPlan
    from_version: int | None
    to_version: int | None
    rows_written: int | None = None
