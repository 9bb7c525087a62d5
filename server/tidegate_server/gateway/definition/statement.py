"""The CREATE statement of an existing table."""

from __future__ import annotations

from tidegate_server.core.model.clauses import StartKind, StartMode
from tidegate_server.core.model.table import (
    Definition,
    DerivedColumn,
    LogicalRefreshMode,
    MaterializedTable,
    RefreshMode,
)
from tidegate_server.core.model.types import Column
from tidegate_server.core.sql.statements import (
    ColumnItem,
    ComputedColumn,
    CreateMaterializedTable,
    Downstream,
    MetadataColumn,
    PhysicalColumn,
    PrimaryKeyClause,
    RequestedMode,
)
from tidegate_server.gateway.definition.start_mode import resumes


def creating(table: MaterializedTable, *, or_alter: bool = False) -> CreateMaterializedTable:
    """Return the statement for an equal table, with defaults and the expanded query."""
    definition = table.definition
    # After ALTER ... AS a table may have columns that its query alone would not create.
    listed = definition.declared or definition.version > 1
    return CreateMaterializedTable(
        name=(table.name.catalog, table.name.schema, table.name.table),
        or_alter=or_alter,
        columns=tuple(_item(column, definition) for column in definition.visible) if listed else (),
        primary_key=_primary_key(definition),
        watermark=definition.watermark,
        expectations=definition.expectations,
        assertions=definition.assertions,
        comment=definition.comment,
        distribution=definition.distribution,
        partition_keys=definition.partition_keys,
        options=definition.options,
        start_mode=_start_mode(definition, or_alter=or_alter),
        freshness=Downstream.DOWNSTREAM if definition.downstream else definition.freshness,
        refresh_mode=_requested_mode(definition),
        on_update=definition.on_update,
        execute_as=definition.execute_as,
        immutable=definition.immutable,
        query=definition.expanded_query,
    )


def _item(column: Column | DerivedColumn, definition: Definition) -> ColumnItem:
    comment = column.comment
    if isinstance(column, DerivedColumn) and column.expression is not None:
        return ComputedColumn(name=column.name, expression=column.expression, comment=comment)
    if isinstance(column, DerivedColumn):
        return _metadata(column, column.metadata_key, virtual=True)
    if column.name in definition.persisted_metadata:
        return _metadata(column, definition.persisted_metadata[column.name], virtual=False)
    return PhysicalColumn(
        name=column.name, type=column.type, nullable=column.nullable, comment=comment
    )


def _metadata(column: Column | DerivedColumn, key: str | None, *, virtual: bool) -> MetadataColumn:
    return MetadataColumn(
        name=column.name,
        type=column.type,
        nullable=column.nullable,
        key=None if key == column.name else key,
        virtual=virtual,
        comment=column.comment,
    )


def _primary_key(definition: Definition) -> PrimaryKeyClause | None:
    key = definition.primary_key
    return PrimaryKeyClause(name=key.name, columns=key.columns) if key is not None else None


def _requested_mode(definition: Definition) -> RequestedMode:
    if (
        definition.refresh_mode is RefreshMode.INCREMENTAL
        and definition.logical_refresh_mode is LogicalRefreshMode.INCREMENTAL_STRICT
    ):
        return RequestedMode.INCREMENTAL_STRICT
    return RequestedMode[definition.refresh_mode.value]


def _start_mode(definition: Definition, *, or_alter: bool) -> StartMode | None:
    """Return a start mode valid for the statement: a new table has nothing to resume.

    A table with watched sources then begins with them, as it did when it was created.
    """
    mode = definition.start_mode
    if mode is None or or_alter or not resumes(mode):
        return mode
    if definition.watched:
        return StartMode(kind=StartKind.FROM_BEGINNING)
    kind = StartKind(mode.kind.value.removeprefix("RESUME_OR_"))
    return StartMode(
        kind=kind, interval=mode.interval, timestamp=mode.timestamp, local_zone=mode.local_zone
    )
