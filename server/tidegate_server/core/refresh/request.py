"""Who wants which refresh, what will be done, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from tidegate_server.core.model.clauses import Assertion, Distribution, EnforcedKey, Expectation
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import Rejection, RunMetrics, SourceChange, Strategy, Trigger
from tidegate_server.core.model.versions import PartitionSpec, Source


class RefreshPolicy(Enum):
    """How freely a refresh may choose its strategy."""

    AUTO = "AUTO"
    """Incremental where that is exact and pays, else full."""
    INCREMENTAL = "INCREMENTAL"
    """Incremental where that is exact, whatever it costs, else full."""
    INCREMENTAL_STRICT = "INCREMENTAL STRICT"
    """Incremental, or the refresh fails."""
    FULL = "FULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """An earlier refresh of the same table, from which costs are learned."""

    strategy: Strategy
    seconds: float
    metrics: RunMetrics
    reason_code: str = ""
    """Why it was made so."""
    rows_changed: int = 0
    """Rows of the sources' changes, as far as they are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """Bring the table up to date with its sources: a refresh in the narrow sense.

    ``partitions`` empty means the whole table. ``force`` computes everything, also when no source
    changed.
    """

    partitions: tuple[PartitionSpec, ...] = ()
    predicate: str | None = None
    """REFRESH WHERE: rows of the table that are replaced, as the user's SQL condition."""
    force: bool = False
    vector: Mapping[str, int] | None = None
    """Source versions to read, by table id, instead of the newest: those of a wave."""

    @property
    def is_partial(self) -> bool:
        """Whether only some partitions or rows are to be computed."""
        return bool(self.partitions) or self.predicate is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Restore the rows of an earlier version."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Serve the version that an assertion holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """Copy the immutable rows of another table."""

    source: TableName


Task = Recompute | Rollback | Publish | Backfill
"""What one run does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshRequest:
    """A request for one run, by the scheduler, a user or a change of a source.

    ``refresh_id`` lets the caller choose the id of the run, so that it can cancel the run under
    that id; None takes a new one.
    """

    table_id: str
    trigger: Trigger
    requested_by: str
    task: Task = field(default_factory=Recompute)
    policy: RefreshPolicy | None = None
    """None is the policy of the table's refresh mode."""
    schedule_time: datetime | None = None
    wave_id: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings for this run alone, over the table's own."""
    attempt: int = 1
    refresh_id: str | None = None

    @property
    def recompute(self) -> Recompute:
        """The task if it is a refresh; else one without any wishes."""
        return self.task if isinstance(self.task, Recompute) else Recompute()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshOrder:
    """What the engine has to know of a table for any run; crosses the link.

    ``name`` is where the rows are stored.

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
    policy: RefreshPolicy = RefreshPolicy.AUTO
    wave_id: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    key: EnforcedKey | None = None
    """The primary key if it is to be checked."""
    expectations: tuple[Expectation, ...] = ()
    assertions: tuple[Assertion, ...] = ()
    immutable: str | None = None
    """IMMUTABLE WHERE, as the user's SQL condition."""
    distribution: Distribution | None = None
    """DISTRIBUTED BY: in which files rows are written."""
    checkpoint_floor: int = 0
    history: tuple[PastRun, ...] = ()
    """The table's last runs, newest first."""
    has_consumers: bool = False
    """Whether other materialized tables read this one, for which changes are kept minimal."""

    @property
    def tables(self) -> tuple[TableName, ...]:
        """The table itself and all that it reads."""
        return (self.name, *(source.name for source in self.sources))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRefresh:
    """What a materialized table's last commit says of the refresh that made it."""

    epoch: int
    version: int
    definition_version: int
    vector: Mapping[str, int]
    refresh_id: str
    strategy: str = "FULL"
    partial: bool = False
    """True when the commit replaced only some partitions, so that the vector does not hold for
    the whole table."""
    logical_time: datetime | None = None
    breaks: str | None = None
    """Which assertion a held version breaks, and how; None of what is served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshPlan:
    """What one run will do; EXPLAIN prints this very object."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshOutcome:
    """What a carried-out plan left behind."""

    plan: RefreshPlan
    from_version: int | None
    to_version: int | None
    metrics: RunMetrics = RunMetrics()
    data_timestamp: datetime | None = None
    definition_version: int | None = None
    """That of the rows, where it is not the order's."""
    sources: tuple[Source, ...] | None = None
    """What the query read, in the order of the definition; None where it was not looked at."""
