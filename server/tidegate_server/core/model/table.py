"""A materialized table in the catalog: its definition, state and pending operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum

from tidegate_server.core.model.clauses import (
    Assertion,
    Distribution,
    EnforcedKey,
    Expectation,
    OnUpdate,
    StartMode,
    Violation,
    Watermark,
)
from tidegate_server.core.model.freshness import Freshness
from tidegate_server.core.model.locations import overlap
from tidegate_server.core.model.names import TableName, quarantine_name
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.model.versions import Source

ENFORCE_OPTION = "constraint.enforce"
"""How refreshes check the primary key: ``warn`` or ``fail``; without it, they do not."""


class LogicalRefreshMode(Enum):
    """The requested mode."""

    AUTOMATIC = "AUTOMATIC"
    FULL = "FULL"
    CONTINUOUS = "CONTINUOUS"
    INCREMENTAL = "INCREMENTAL"
    INCREMENTAL_STRICT = "INCREMENTAL STRICT"


class RefreshMode(Enum):
    """The effective mode: a scheduled workflow (FULL, INCREMENTAL) or watched sources
    (CONTINUOUS)."""

    FULL = "FULL"
    CONTINUOUS = "CONTINUOUS"
    INCREMENTAL = "INCREMENTAL"

    @property
    def scheduled(self) -> bool:
        """Whether a workflow scheduler fires its refreshes."""
        return self is not RefreshMode.CONTINUOUS


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimaryKey:
    """A declared key, NOT ENFORCED as in Flink."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedColumn:
    """A column evaluated when the table is read and never stored.

    ``expression`` is the user's text of a computed column; ``metadata_key`` is the key of a
    METADATA VIRTUAL column. ``position`` is the index among all visible columns, from 0.
    """

    name: str
    type: str
    position: int
    expression: str | None = None
    metadata_key: str | None = None
    nullable: bool = True
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOrigin:
    """A source column from which an output column is computed."""

    column: str
    source: TableName
    source_column: str
    unchanged: bool
    """Whether the value is passed on unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The query and the clauses of a table, and the origin of this version of them.

    ``original_query`` is the user's text after AS, byte for byte; ``expanded_query`` is the same
    query with qualified table names and fixed output columns, as refreshes run it. ``schema`` holds
    the stored columns; ``derived`` those evaluated on read.
    """

    schema: Schema
    original_query: str
    expanded_query: str
    sources: tuple[Source, ...] = ()
    lineage: tuple[ColumnOrigin, ...] = ()
    freshness: Freshness
    downstream: bool = False
    """FRESHNESS = DOWNSTREAM: ``freshness`` is the minimum of the consumers'."""
    logical_refresh_mode: LogicalRefreshMode
    refresh_mode: RefreshMode
    on_update: OnUpdate | None = None
    """REFRESH_TRIGGER = ON UPDATE of a table that is not CONTINUOUS; None if scheduled."""
    start_mode: StartMode | None = None
    execute_as: str | None = None
    """EXECUTE AS USER: refreshes read as this user; None is the owner."""
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the session that made it, applied by refreshes."""
    declared: bool = False
    """Whether the statement had a column list, which SHOW CREATE prints."""
    derived: tuple[DerivedColumn, ...] = ()
    persisted_metadata: Mapping[str, str] = field(default_factory=dict)
    """Stored columns declared METADATA, by name, with their key."""
    watermark: Watermark | None = None
    primary_key: PrimaryKey | None = None
    partition_keys: tuple[str, ...] = ()
    distribution: Distribution | None = None
    expectations: tuple[Expectation, ...] = ()
    assertions: tuple[Assertion, ...] = ()
    immutable: str | None = None
    """IMMUTABLE WHERE: rows that refreshes do not change, as the user's SQL condition."""
    backfilled_from: TableName | None = None
    """The source of immutable rows copied by CREATE."""
    version: int = 1
    defined_by: str | None = None
    """Author of this version; None for the first, made by the owner."""
    defined_at: datetime | None = None
    """Creation time of this version; None for the first one."""
    restored_from: int | None = None
    """The version that this one restored."""

    @property
    def constraints(self) -> tuple[Expectation | Assertion, ...]:
        """Expectations and assertions, counted by name."""
        return (*self.expectations, *self.assertions)

    @property
    def quarantining(self) -> tuple[Expectation, ...]:
        """The expectations that quarantine rows."""
        return tuple(e for e in self.expectations if e.violation is Violation.QUARANTINE)

    @property
    def watched(self) -> bool:
        """Whether source changes start refreshes."""
        return self.refresh_mode is RefreshMode.CONTINUOUS or self.on_update is not None

    @property
    def gathering(self) -> timedelta:
        """Minimum time from the start of a refresh to the next one on a change."""
        least = timedelta(seconds=1)
        if self.on_update is None:
            return max(least, self.freshness.duration / 4)
        every = self.on_update.at_most_every
        return every.duration if every is not None else least

    @property
    def visible(self) -> tuple[Column | DerivedColumn, ...]:
        """Stored and derived columns in visible order."""
        columns: list[Column | DerivedColumn] = list(self.schema)
        for column in sorted(self.derived, key=lambda column: column.position):
            columns.insert(column.position, column)
        return tuple(columns)

    def date_formatters(self) -> dict[str, str]:
        """Return the Java date pattern of each partition column that has one."""
        prefix, suffix = "partition.fields.", ".date-formatter"
        return {
            key.removeprefix(prefix).removesuffix(suffix): pattern
            for key, pattern in self.options.items()
            if key.startswith(prefix) and key.endswith(suffix)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldVersion:
    """A refresh result that broke an assertion, pending publication or discard."""

    refresh_id: str
    """The refresh that made it."""
    since: datetime
    reason: str
    """The broken assertion, with details."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineState:
    """Whether and how refreshes run: what changes without changing the definition."""

    status: RefreshStatus
    status_reason: str | None = None
    held: HeldVersion | None = None
    """An unpublished version; until it is resolved, no refresh starts automatically."""
    resume_options: Mapping[str, str] = field(default_factory=dict)
    """Options of the last RESUME WITH, valid until the next resume."""
    checkpoint_floor: int = 0
    """Commits up to this epoch are not used as checkpoints: the pipeline starts over."""

    def with_options_of(self, other: PipelineState) -> PipelineState:
        """Return this state as runs left it, with what statements set in another one."""
        return replace(
            self, resume_options=other.resume_options, checkpoint_floor=other.checkpoint_floor
        )

    @property
    def kept_fresh(self) -> bool:
        """Whether refreshes start automatically."""
        return self.status is RefreshStatus.ACTIVATED and self.held is None


@dataclass(frozen=True, slots=True)
class Leaving:
    """CONVERT TO TABLE has begun; the mark stays only if its server died."""


@dataclass(frozen=True, slots=True)
class Swapping:
    """SWAP WITH has begun; the mark stays only if it could not be reverted."""


@dataclass(frozen=True, slots=True)
class Dropping:
    """DROP has begun; the mark stays only if it could neither finish nor be reverted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingBack:
    """A ROLLBACK of rows and definition, recorded before either changes.

    The table's last commit shows whether the rows were restored: if it belongs to ``refresh_id``,
    the definition is restored too, else nothing changed.
    """

    refresh_id: str
    active: bool
    """Whether the table was ACTIVATED before; rollbacks suspend it."""
    to: MaterializedTable
    """The table with the definition to restore."""


PendingOperation = Leaving | Swapping | Dropping | RollingBack
"""A statement that changes a table in several steps and has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializedTable:
    """A table that is defined by a query and kept fresh by the server.

    Rows are stored in ``storage``: the table itself or, with derived columns or quarantined rows, a
    separate table below the view ``name``.
    """

    id: str
    name: TableName
    owner: str
    created_at: datetime
    location: str = ""
    storage_table: TableName | None = None
    """The table with the rows if ``name`` is a view; else None."""
    execution_target: str = "embedded"
    definition: Definition
    state: PipelineState
    pending: PendingOperation | None = None
    """Marks an unfinished statement, so that recovery can complete or revert it."""

    @property
    def storage(self) -> TableName:
        """The table that holds the rows."""
        return self.storage_table or self.name

    @property
    def executor(self) -> str:
        """The user with whose privileges refreshes run."""
        return self.definition.execute_as or self.owner

    @property
    def quarantine(self) -> TableName | None:
        """The view of quarantined rows; None if there never are any."""
        return quarantine_name(self.name) if self.definition.quarantining else None

    @property
    def names(self) -> tuple[TableName, ...]:
        """The names under which its rows can be read."""
        names = (self.name, self.storage)
        return names if self.quarantine is None else (*names, self.quarantine)

    def is_at(self, name: TableName | None, location: str | None) -> bool:
        """Return whether what has a name or a location (None or empty: none) is this table."""
        if name is not None and name.folded() in {each.folded() for each in self.names}:
            return True
        return bool(location and overlap(location, self.location))

    @property
    def enforced_key(self) -> EnforcedKey | None:
        """The primary key if refreshes check it."""
        key = self.definition.primary_key
        word = {**self.definition.options, **self.state.resume_options}.get(ENFORCE_OPTION)
        if key is None or word is None:
            return None
        return EnforcedKey(
            name=key.name, columns=key.columns, violation=Violation(word.strip().upper())
        )
