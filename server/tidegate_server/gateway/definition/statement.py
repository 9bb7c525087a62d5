"""The CREATE statement of an existing table."""

from __future__ import annotations

from tidegate_server.core.model.clauses import StartKind, StartMode
from tidegate_server.core.model.table import (
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
    # After ALTER ... AS a table may have columns that its query alone would not create.
    listed = table.declared or table.definition_version > 1
    return CreateMaterializedTable(
        name=(table.name.catalog, table.name.schema, table.name.table),
        or_alter=or_alter,
        columns=tuple(_item(column, table) for column in table.visible) if listed else (),
        primary_key=_primary_key(table),
        watermark=table.watermark,
        expectations=table.expectations,
        assertions=table.assertions,
        comment=table.comment,
        distribution=table.distribution,
        partition_keys=table.partition_keys,
        options=table.options,
        start_mode=_start_mode(table, or_alter=or_alter),
        freshness=Downstream.DOWNSTREAM if table.downstream else table.freshness,
        refresh_mode=_requested_mode(table),
        on_update=table.on_update,
        execute_as=table.execute_as,
        immutable=table.immutable,
        query=table.expanded_query,
    )


def _item(column: Column | DerivedColumn, table: MaterializedTable) -> ColumnItem:
    comment = column.comment
    if isinstance(column, DerivedColumn) and column.expression is not None:
        return ComputedColumn(name=column.name, expression=column.expression, comment=comment)
    if isinstance(column, DerivedColumn):
        return _metadata(column, column.metadata_key, virtual=True)
    if column.name in table.persisted_metadata:
        return _metadata(column, table.persisted_metadata[column.name], virtual=False)
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


def _primary_key(table: MaterializedTable) -> PrimaryKeyClause | None:
    key = table.primary_key
    return PrimaryKeyClause(name=key.name, columns=key.columns) if key is not None else None


def _requested_mode(table: MaterializedTable) -> RequestedMode:
    if (
        table.refresh_mode is RefreshMode.INCREMENTAL
        and table.logical_refresh_mode is LogicalRefreshMode.INCREMENTAL_STRICT
    ):
        return RequestedMode.INCREMENTAL_STRICT
    return RequestedMode[table.refresh_mode.value]


def _start_mode(table: MaterializedTable, *, or_alter: bool) -> StartMode | None:
    """Return a start mode valid for the statement: a new table has nothing to resume.

    A table with watched sources then begins with them, as it did when it was created.
    """
    mode = table.start_mode
    if mode is None or or_alter or not resumes(mode):
        return mode
    if table.watched:
        return StartMode(kind=StartKind.FROM_BEGINNING)
    kind = StartKind(mode.kind.value.removeprefix("RESUME_OR_"))
    return StartMode(
        kind=kind, interval=mode.interval, timestamp=mode.timestamp, local_zone=mode.local_zone
    )
