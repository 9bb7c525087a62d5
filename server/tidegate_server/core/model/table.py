"""The definition of a materialized table, as the catalog keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
from tidegate_server.core.model.names import TableName, quarantine_name
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.model.versions import Source

ENFORCE_OPTION = "constraint.enforce"
"""Whether refreshes check the primary key: ``warn`` or ``fail``; not at all without it."""


class LogicalRefreshMode(Enum):
    """What the user asked for."""

    AUTOMATIC = "AUTOMATIC"
    FULL = "FULL"
    CONTINUOUS = "CONTINUOUS"
    INCREMENTAL = "INCREMENTAL"
    INCREMENTAL_STRICT = "INCREMENTAL STRICT"


class RefreshMode(Enum):
    """What is done: a scheduled workflow (FULL, INCREMENTAL) or the watching of sources
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
    """A declared key; NOT ENFORCED, as in Flink."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedColumn:
    """A column evaluated when the table is read and never stored.

    ``expression`` is the user's text of a computed column; ``metadata_key`` names what a METADATA
    VIRTUAL column reads. ``position`` is its place among all visible columns, from 0.
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
    """A column of a source from which an output column is made."""

    column: str
    source: TableName
    source_column: str
    unchanged: bool
    """Whether the value is passed through as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldVersion:
    """A refresh's result that broke an assertion and waits to be published or discarded."""

    refresh_id: str
    """The refresh that made it."""
    since: datetime
    reason: str
    """Which assertion it breaks, and how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingBack:
    """A ROLLBACK of rows and definition, noted before either changes.

    Whether the rows came back is told by the table's own last commit: if it is that of
    ``refresh_id``, the definition follows them, else all is as it was.
    """

    refresh_id: str
    active: bool
    """Whether the table was ACTIVATED before; it is suspended for the rollback."""
    to: MaterializedTable
    """The definition that comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializedTable:
    """A table whose content a query defines and the server keeps fresh.

    Fields follow Flink's ``CatalogMaterializedTable``. ``original_query`` is the user's text after
    AS, byte for byte; ``expanded_query`` is the same query with every table name qualified and the
    output columns fixed, and is what refreshes run. ``schema`` holds the stored columns;
    ``derived`` those evaluated on read. Their rows are stored in ``storage``: the table itself, or
    with derived columns or rows held out a table of its own, over which ``name`` is a view.
    """

    id: str
    name: TableName
    schema: Schema
    original_query: str
    expanded_query: str
    freshness: Freshness
    logical_refresh_mode: LogicalRefreshMode
    refresh_mode: RefreshMode
    refresh_status: RefreshStatus
    owner: str
    created_at: datetime
    location: str = ""
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    partition_keys: tuple[str, ...] = ()
    primary_key: PrimaryKey | None = None
    sources: tuple[Source, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    execution_target: str = "embedded"
    status_reason: str | None = None
    definition_version: int = 1
    storage_table: TableName | None = None
    """Where the rows are when ``name`` is a view; None when they are in ``name``."""
    declared: bool = False
    """Whether the statement had a column list, which SHOW CREATE then prints."""
    derived: tuple[DerivedColumn, ...] = ()
    persisted_metadata: Mapping[str, str] = field(default_factory=dict)
    """Stored columns declared METADATA, by name, with their key."""
    watermark: Watermark | None = None
    distribution: Distribution | None = None
    start_mode: StartMode | None = None
    downstream: bool = False
    """FRESHNESS = DOWNSTREAM: ``freshness`` is then the least of the consumers'."""
    on_update: OnUpdate | None = None
    """REFRESH_TRIGGER = ON UPDATE of a table that is not CONTINUOUS; None goes by a schedule."""
    execute_as: str | None = None
    """EXECUTE AS USER: with whose rights refreshes read; None is the owner."""
    expectations: tuple[Expectation, ...] = ()
    assertions: tuple[Assertion, ...] = ()
    immutable: str | None = None
    """IMMUTABLE WHERE: rows that refreshes leave as they are, as the user's SQL condition."""
    backfilled_from: TableName | None = None
    """The table from which CREATE copied such rows."""
    lineage: tuple[ColumnOrigin, ...] = ()
    resume_options: Mapping[str, str] = field(default_factory=dict)
    """Options of the last RESUME WITH, which hold until the next resume."""
    checkpoint_floor: int = 0
    """Commits up to this epoch are no checkpoint: the pipeline starts from the beginning."""
    defined_by: str | None = None
    """Who made this definition version; None for the first one, which its owner made."""
    defined_at: datetime | None = None
    """When this definition version was made; None for the first one."""
    restored_from: int | None = None
    """The definition version that this one brought back."""
    leaving: bool = False
    """Whether CONVERT TO TABLE has begun; true after it only if its server died within it."""
    swapping: bool = False
    """Whether SWAP WITH has begun; true after it only if it could not even be taken back."""
    dropping: bool = False
    """Whether DROP has begun; true after it only if it could neither end nor be taken back."""
    held: HeldVersion | None = None
    """A version that is not served; no refresh starts by itself until it is decided on."""
    rolling_back: RollingBack | None = None
    """A ROLLBACK of both rows and definition that has begun and not ended."""

    @property
    def kept_fresh(self) -> bool:
        """Whether refreshes start by themselves."""
        return self.refresh_status is RefreshStatus.ACTIVATED and self.held is None

    @property
    def storage(self) -> TableName:
        """The table that holds the rows."""
        return self.storage_table or self.name

    @property
    def constraints(self) -> tuple[Expectation | Assertion, ...]:
        """Expectations and assertions, each of which is counted by its name."""
        return (*self.expectations, *self.assertions)

    @property
    def holding(self) -> tuple[Expectation, ...]:
        """The expectations that hold rows out of the table."""
        return tuple(e for e in self.expectations if e.violation is Violation.QUARANTINE)

    @property
    def quarantine(self) -> TableName | None:
        """The view of the rows that are held out; None if none ever are."""
        return quarantine_name(self.name) if self.holding else None

    @property
    def enforced_key(self) -> EnforcedKey | None:
        """The primary key if refreshes are to check it."""
        word = {**self.options, **self.resume_options}.get(ENFORCE_OPTION)
        if self.primary_key is None or word is None:
            return None
        return EnforcedKey(
            name=self.primary_key.name,
            columns=self.primary_key.columns,
            violation=Violation(word.strip().upper()),
        )

    @property
    def watched(self) -> bool:
        """Whether changes of its sources start its refreshes."""
        return self.refresh_mode is RefreshMode.CONTINUOUS or self.on_update is not None

    @property
    def gathering(self) -> timedelta:
        """How long after the beginning of a refresh changes gather into the next one."""
        least = timedelta(seconds=1)
        if self.on_update is None:
            return max(least, self.freshness.duration / 4)
        every = self.on_update.at_most_every
        return every.duration if every is not None else least

    @property
    def visible(self) -> tuple[Column | DerivedColumn, ...]:
        """Stored and derived columns in the order in which the table shows them."""
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
