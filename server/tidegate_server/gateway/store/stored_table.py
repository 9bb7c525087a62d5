"""The stored form of materialized tables: one flat record.

The catalog's columns, archived definitions (as JSON) and the table property ``tidegate.definition``
(as JSON) have this form. Releases read what others wrote: fields keep their names and defaults, and
a new one needs a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from tidegate_server.core.messages.decoding import prepare_decoding
from tidegate_server.core.model.clauses import (
    Assertion,
    Distribution,
    Expectation,
    OnUpdate,
    StartMode,
    Watermark,
)
from tidegate_server.core.model.freshness import Freshness
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import (
    ColumnOrigin,
    Definition,
    DerivedColumn,
    Dropping,
    HeldVersion,
    Leaving,
    LogicalRefreshMode,
    MaterializedTable,
    PendingOperation,
    PipelineState,
    PrimaryKey,
    RefreshMode,
    RollingBack,
    Swapping,
)
from tidegate_server.core.model.types import Schema
from tidegate_server.core.model.versions import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRollback:
    """The stored form of :class:`RollingBack`."""

    refresh_id: str
    active: bool
    to: StoredTable

    @classmethod
    def of(cls, mark: RollingBack) -> StoredRollback:
        """Return the stored form of a mark."""
        return cls(refresh_id=mark.refresh_id, active=mark.active, to=StoredTable.of(mark.to))

    def mark(self) -> RollingBack:
        """Return the mark that was stored."""
        return RollingBack(refresh_id=self.refresh_id, active=self.active, to=self.to.table())


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTable:
    """The stored form of :class:`MaterializedTable`."""

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
    declared: bool = False
    derived: tuple[DerivedColumn, ...] = ()
    persisted_metadata: Mapping[str, str] = field(default_factory=dict)
    watermark: Watermark | None = None
    distribution: Distribution | None = None
    start_mode: StartMode | None = None
    downstream: bool = False
    on_update: OnUpdate | None = None
    execute_as: str | None = None
    expectations: tuple[Expectation, ...] = ()
    assertions: tuple[Assertion, ...] = ()
    immutable: str | None = None
    backfilled_from: TableName | None = None
    lineage: tuple[ColumnOrigin, ...] = ()
    resume_options: Mapping[str, str] = field(default_factory=dict)
    checkpoint_floor: int = 0
    defined_by: str | None = None
    defined_at: datetime | None = None
    restored_from: int | None = None
    leaving: bool = False
    swapping: bool = False
    dropping: bool = False
    held: HeldVersion | None = None
    rolling_back: StoredRollback | None = None

    @classmethod
    def of(cls, table: MaterializedTable) -> StoredTable:
        """Return the stored form of a table."""
        definition, state, pending = table.definition, table.state, table.pending
        return cls(
            id=table.id,
            name=table.name,
            schema=definition.schema,
            original_query=definition.original_query,
            expanded_query=definition.expanded_query,
            freshness=definition.freshness,
            logical_refresh_mode=definition.logical_refresh_mode,
            refresh_mode=definition.refresh_mode,
            refresh_status=state.status,
            owner=table.owner,
            created_at=table.created_at,
            location=table.location,
            comment=definition.comment,
            options=definition.options,
            partition_keys=definition.partition_keys,
            primary_key=definition.primary_key,
            sources=definition.sources,
            settings=definition.settings,
            execution_target=table.execution_target,
            status_reason=state.status_reason,
            definition_version=definition.version,
            storage_table=table.storage_table,
            declared=definition.declared,
            derived=definition.derived,
            persisted_metadata=definition.persisted_metadata,
            watermark=definition.watermark,
            distribution=definition.distribution,
            start_mode=definition.start_mode,
            downstream=definition.downstream,
            on_update=definition.on_update,
            execute_as=definition.execute_as,
            expectations=definition.expectations,
            assertions=definition.assertions,
            immutable=definition.immutable,
            backfilled_from=definition.backfilled_from,
            lineage=definition.lineage,
            resume_options=state.resume_options,
            checkpoint_floor=state.checkpoint_floor,
            defined_by=definition.defined_by,
            defined_at=definition.defined_at,
            restored_from=definition.restored_from,
            leaving=isinstance(pending, Leaving),
            swapping=isinstance(pending, Swapping),
            dropping=isinstance(pending, Dropping),
            held=state.held,
            rolling_back=StoredRollback.of(pending) if isinstance(pending, RollingBack) else None,
        )

    def table(self) -> MaterializedTable:
        """Return the table that was stored."""
        return MaterializedTable(
            id=self.id,
            name=self.name,
            owner=self.owner,
            created_at=self.created_at,
            location=self.location,
            storage_table=self.storage_table,
            execution_target=self.execution_target,
            definition=self._definition(),
            state=PipelineState(
                status=self.refresh_status,
                status_reason=self.status_reason,
                held=self.held,
                resume_options=self.resume_options,
                checkpoint_floor=self.checkpoint_floor,
            ),
            pending=self._pending(),
        )

    def _definition(self) -> Definition:
        return Definition(
            schema=self.schema,
            original_query=self.original_query,
            expanded_query=self.expanded_query,
            sources=self.sources,
            lineage=self.lineage,
            freshness=self.freshness,
            downstream=self.downstream,
            logical_refresh_mode=self.logical_refresh_mode,
            refresh_mode=self.refresh_mode,
            on_update=self.on_update,
            start_mode=self.start_mode,
            execute_as=self.execute_as,
            comment=self.comment,
            options=self.options,
            settings=self.settings,
            declared=self.declared,
            derived=self.derived,
            persisted_metadata=self.persisted_metadata,
            watermark=self.watermark,
            primary_key=self.primary_key,
            partition_keys=self.partition_keys,
            distribution=self.distribution,
            expectations=self.expectations,
            assertions=self.assertions,
            immutable=self.immutable,
            backfilled_from=self.backfilled_from,
            version=self.definition_version,
            defined_by=self.defined_by,
            defined_at=self.defined_at,
            restored_from=self.restored_from,
        )

    def _pending(self) -> PendingOperation | None:
        """Return the pending operation.

        Earlier releases could store several marks. Recovery of a DROP covers all others, and that
        of a ROLLBACK or SWAP covers CONVERT TO TABLE.
        """
        if self.dropping:
            return Dropping()
        if self.rolling_back is not None:
            return self.rolling_back.mark()
        if self.swapping:
            return Swapping()
        return Leaving() if self.leaving else None


def encode_definition(table: MaterializedTable) -> str:
    """Return the text of the ``tidegate.definition`` property.

    It lacks what recovery reads from the storage: a held version, and whether a ROLLBACK of both
    restored the rows.
    """
    stored = replace(StoredTable.of(table), held=None, rolling_back=None)
    return msgspec.json.encode(stored).decode()


def decode_definition(text: str) -> MaterializedTable:
    """Return the table of a ``tidegate.definition`` property.

    :raises msgspec.DecodeError: if it is damaged.
    """
    return msgspec.json.decode(text, type=StoredTable).table()


prepare_decoding(StoredTable)
