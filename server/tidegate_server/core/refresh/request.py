"""Refresh requests, orders, plans and outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from tidegate_server.core.model.access import Admission
from tidegate_server.core.model.clauses import Assertion, Distribution, EnforcedKey, Expectation
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import Rejection, RunMetrics, SourceChange, Strategy, Trigger
from tidegate_server.core.model.versions import PartitionSpec, Source
from tidegate_server.core.refresh.steps import Step


class RefreshPolicy(Enum):
    """How freely a refresh may choose its strategy."""

    AUTO = "AUTO"
    """Incremental if that is exact and faster, else full."""
    INCREMENTAL = "INCREMENTAL"
    """Incremental if that is exact, regardless of cost, else full."""
    INCREMENTAL_STRICT = "INCREMENTAL STRICT"
    """Incremental, or the refresh fails."""
    FULL = "FULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """An earlier refresh of the same table, used for cost estimates."""

    strategy: Strategy
    seconds: float
    metrics: RunMetrics
    reason_code: str = ""
    """Why it was chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """Bring the table up to date with its sources: a refresh in the narrow sense.

    No ``partitions`` means the whole table. ``force`` recomputes everything even if no source
    changed.
    """

    partitions: tuple[PartitionSpec, ...] = ()
    predicate: str | None = None
    """REFRESH WHERE: the table's rows to replace, as the user's SQL condition."""
    force: bool = False
    vector: Mapping[str, int] | None = None
    """A wave's source versions to read instead of the newest, by table id."""

    @property
    def is_partial(self) -> bool:
        """Whether only some partitions or rows are computed."""
        return bool(self.partitions) or self.predicate is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Restore the rows of an earlier version."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Publish the version held by an assertion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """Copy the immutable rows of another table."""

    source: TableName


Task = Recompute | Rollback | Publish | Backfill
"""A run's work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshRequest:
    """A request for one run, by the scheduler, a user or a source change.

    The caller may choose the run's ``refresh_id``, so that it can cancel the run; None generates
    one.
    """

    table_id: str
    trigger: Trigger
    requested_by: str
    task: Task = field(default_factory=Recompute)
    policy: RefreshPolicy | None = None
    """None: the policy of the table's refresh mode."""
    schedule_time: datetime | None = None
    wave_id: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings for this run only, overriding the table's."""
    attempt: int = 1
    refresh_id: str | None = None

    @property
    def recompute(self) -> Recompute:
        """The task if it is a refresh, else the default one."""
        return self.task if isinstance(self.task, Recompute) else Recompute()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshOrder:
    """All that the engine needs for a run of a table; crosses the link.

    ``name`` is the table that stores the rows.

    ``epoch`` is the fencing token: the commit stores it as Delta's txnVersion under the
    application id ``mt:<table_id>``, and Delta skips equal or lower ones.
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
    policy: RefreshPolicy = RefreshPolicy.AUTO
    wave_id: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    key: EnforcedKey | None = None
    """The primary key if it is checked."""
    expectations: tuple[Expectation, ...] = ()
    assertions: tuple[Assertion, ...] = ()
    immutable: str | None = None
    """IMMUTABLE WHERE, as the user's SQL condition."""
    distribution: Distribution | None = None
    """DISTRIBUTED BY: how rows are grouped into files."""
    checkpoint_floor: int = 0
    history: tuple[PastRun, ...] = ()
    """The table's last runs, newest first."""
    elsewhere: tuple[PastRun, ...] = ()
    """The last runs of other tables, newest first."""
    has_consumers: bool = False
    """Whether other materialized tables read this one; changes are then kept minimal."""
    executor: str = ""
    """The user whose privileges it runs with, and its ``current_user()``."""
    admission: Admission | None = None
    """What its query may access; None for everything."""
    engine: str = ""
    """The target that runs it, by which the gateway routes it; empty for that of the table."""

    @property
    def tables(self) -> tuple[TableName, ...]:
        """The table itself and its sources."""
        return (self.name, *(source.name for source in self.sources))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRefresh:
    """A materialized table's last commit and the refresh that made it."""

    epoch: int
    version: int
    definition_version: int
    vector: Mapping[str, int]
    refresh_id: str
    strategy: str = "FULL"
    partial: bool = False
    """Whether the commit replaced only some partitions, so its vector does not cover the whole
    table."""
    logical_time: datetime | None = None
    breaks: str | None = None
    """The assertion that a held version breaks, and how; None if published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshPlan:
    """The plan of one run, which EXPLAIN prints."""

    strategy: Strategy
    reason_code: Reason
    reason_text: str
    vector: Mapping[str, int]
    partitions: tuple[PartitionSpec, ...] = ()
    changes: tuple[SourceChange, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    affected_keys: int | None = None
    predicted_seconds: float | None = None
    full_seconds: float | None = None
    steps: tuple[Step, ...] = ()
    """The work, in order; none if there is nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshOutcome:
    """The outcome of an executed plan."""

    plan: RefreshPlan
    from_version: int | None
    to_version: int | None
    metrics: RunMetrics = RunMetrics()
    data_timestamp: datetime | None = None
    definition_version: int | None = None
    """The rows' version if not the order's."""
    sources: tuple[Source, ...] | None = None
    """The query's sources, in the order of the definition; None if not analyzed."""
