"""Who wants which refresh, what will be done, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from tidegate_server.core.model.clauses import Assertion, Distribution, EnforcedKey, Expectation
from tidegate_server.core.model.names import TableName
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
    predicate: str | None = None
    force: bool = False
    policy: RefreshPolicy | None = None
    vector: Mapping[str, int] | None = None
    """Source versions to read, by table id, instead of the newest: those of a wave."""
    wave_id: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings for this run alone, over the table's own."""
    attempt: int = 1
    refresh_id: str | None = None
    rollback_to: int | None = None
    """The version whose rows are to be restored, instead of a refresh."""
    publish: bool = False
    """Whether the held version is to be served, instead of a refresh."""
    backfill_from: TableName | None = None
    """The table whose immutable rows are to be copied, instead of a refresh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshOrder:
    """All the engine needs to carry one request out; crosses the link.

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
    partitions: tuple[PartitionSpec, ...] = ()
    predicate: str | None = None
    """REFRESH WHERE: rows of the table that are replaced, as the user's SQL condition."""
    force: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    policy: RefreshPolicy = RefreshPolicy.AUTO
    vector: Mapping[str, int] | None = None
    wave_id: str | None = None
    key: EnforcedKey | None = None
    """The primary key if it is to be checked."""
    expectations: tuple[Expectation, ...] = ()
    assertions: tuple[Assertion, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    distribution: Distribution | None = None
    """DISTRIBUTED BY: in which files rows are written."""
    checkpoint_floor: int = 0
    history: tuple[PastRun, ...] = ()
    """The table's last runs, newest first."""
    has_consumers: bool = False
    """Whether other materialized tables read this one, for which changes are kept minimal."""
    rollback_to: int | None = None
    publish: str | None = None
    """The refresh whose held result is to be served, instead of a refresh."""
    backfill_from: TableName | None = None
    immutable: str | None = None
    """IMMUTABLE WHERE, as the user's SQL condition."""
    fingerprint: str | None = None
    """Filled in by the engine: what tells the query, its views looked through, from another."""
    commits: Mapping[str, str] = field(default_factory=dict)
    """Filled in by the engine: what tells the commits of the versions read from those of another
    history, by table id."""
    offsets: str | None = None
    """Filled in by the engine: up to where the stream is taken in."""
    totals: str | None = None
    """Filled in by the engine: from what the next refresh goes on, such as what the groups add up
    to; empty if they are too many."""
    provisos: str | None = None
    """Filled in by the engine: whether the rows read are as incremental refreshes need them; None
    if nobody looked."""
    unique: tuple[str, ...] = ()
    """Filled in by the engine: columns of a key that every row to be committed has for itself."""
    filled: bool = False
    """Filled in by the engine: whether the table was computed as a whole before."""
    frozen_at: datetime | None = None
    """Filled in by the engine: the moment for which ``immutable`` is taken; None if this refresh
    may write every row."""

    @property
    def tables(self) -> tuple[TableName, ...]:
        """The table itself and all that it reads."""
        return (self.name, *(source.name for source in self.sources))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRefresh:
    """What a materialized table's last commit says of itself (Delta's userMetadata)."""

    epoch: int
    version: int
    definition_version: int
    vector: Mapping[str, int]
    refresh_id: str
    strategy: str = "FULL"
    partial: bool = False
    """True when the commit replaced only some partitions, so that the vector does not hold for
    the whole table."""
    foreign_version: int | None = None
    """A later version that no refresh made, so that the content is not known any more."""
    fingerprint: str | None = None
    """That of the query the content was computed by; None in commits of earlier releases."""
    commits: Mapping[str, str] = field(default_factory=dict)
    """What tells the commits of the vector's versions from those of another history, by table id;
    without those of earlier releases."""
    logical_time: datetime | None = None
    unique: tuple[str, ...] = ()
    """Columns of the key that was checked and found to be unique and never NULL."""
    filled: bool = True
    """Whether every part of the table was computed, or backfilled, by this commit or before."""
    frozen_at: datetime | None = None
    """The moment for which IMMUTABLE WHERE was taken; None if the commit could change every row."""
    offsets: str | None = None
    """Up to where the stream is taken in, in the words of its source; None without a stream."""
    totals: str | None = None
    """From what the next refresh can go on: what the groups add up to, or how the first rows end;
    empty if the groups are too many, None if nobody looked."""
    provisos: str | None = None
    """Whether the rows read were as incremental refreshes need them; None if nobody looked."""
    breaks: str | None = None
    """Which assertion a held version breaks, and how; None of what is served."""


def repeating(
    order: RefreshOrder, commit: CommittedRefresh, columns: Sequence[str]
) -> RefreshOrder:
    """Return the order that writes rows as the refresh recorded that made them, unchecked.

    What it checked, and what was immutable then, is in the rows already.
    """
    return replace(
        order,
        columns=tuple(columns),
        definition_version=commit.definition_version,
        fingerprint=commit.fingerprint,
        commits=commit.commits,
        logical_time=commit.logical_time or order.logical_time,
        expectations=(),
        assertions=(),
        key=None,
        filled=commit.filled,
        offsets=commit.offsets,
        totals=commit.totals,
        provisos=commit.provisos,
        immutable=None,
        frozen_at=commit.frozen_at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshPlan:
    """What one run will do; EXPLAIN prints this very object."""

    strategy: Strategy
    reason_code: str
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
