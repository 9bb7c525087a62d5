"""SHOW of materialized tables, their definitions, lineage and lag; needs no engine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pyarrow as pa

from tidegate_server.core.model.clauses import StartKind, StartMode
from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.model.table import (
    DerivedColumn,
    LogicalRefreshMode,
    MaterializedTable,
    RefreshMode,
)
from tidegate_server.core.model.types import Column, Schema, text_schema
from tidegate_server.core.model.versions import Source, SourceKind
from tidegate_server.core.sql.render import render_create
from tidegate_server.core.sql.statements import (
    ColumnItem,
    ComputedColumn,
    CreateMaterializedTable,
    Downstream,
    MetadataColumn,
    PhysicalColumn,
    PrimaryKeyClause,
    RequestedMode,
    ShowCreateMaterializedTable,
    ShowLineage,
    ShowMaterializedTables,
)
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve
from tidegate_server.gateway.definition.start_mode import resumes
from tidegate_server.gateway.freshness.lag import LagReport
from tidegate_server.gateway.runs import lag

_NAMES = text_schema("name")
_EXTENDED = text_schema(
    "name",
    "schema",
    "refresh_mode",
    "refresh_status",
    "freshness",
    "last_refresh",
    "actual_lag",
    "held_version",
)


# ---- SHOW MATERIALIZED TABLES ----------------------------------------------------------------


def show_tables(statement: ShowMaterializedTables, context: Context) -> Result:
    """List the materialized tables of a schema by name.

    :raises ServerError: SCHEMA_NOT_FOUND if the engine is up and knows no schema of that name,
        NOT_SUPPORTED for a catalog that is not the metastore's.
    """
    catalog, schema = resolve.schema_name(statement.schema, context)
    resolve.check_catalog(catalog, context)
    fits = _filter(statement)
    listed = context.services.catalog.tables(catalog, schema)
    if statement.schema and not listed:
        resolve.check_schema(catalog, schema, context)
    found = [table for table in listed if fits(table.name.table)]
    found.sort(key=lambda table: table.name.table)
    if not statement.extended:
        return RowsResult(_NAMES, [(table.name.table,) for table in found])
    return RowsResult(_EXTENDED, [_extended_row(table, context) for table in found])


def _extended_row(table: MaterializedTable, context: Context) -> tuple[str | None, ...]:
    last = context.services.ledger.runs(table.id, limit=1)
    return (
        table.name.table,
        table.name.schema,
        table.refresh_mode.value,
        table.refresh_status.value,
        lag.freshness(table),
        f"{last[0].state.value} at {lag.moment(last[0].queued_at)}" if last else None,
        lag.lag(lag.present(table, context)),
        lag.held(table),
    )


def _filter(statement: ShowMaterializedTables) -> Callable[[str], bool]:
    if statement.pattern is None:
        return lambda name: True
    pattern = _like(statement.pattern, ignore_case=statement.ignore_case)
    return lambda name: (pattern.fullmatch(name) is not None) is not statement.negated


def _like(text: str, *, ignore_case: bool) -> re.Pattern[str]:
    """Compile a LIKE pattern; ``*`` counts as ``%`` since Spark's own SHOW TABLES uses it."""
    parts, escaped = [], False
    for letter in text:
        if escaped:
            parts.append(re.escape(letter))
            escaped = False
        elif letter == "\\":
            escaped = True
        else:
            parts.append({"%": ".*", "*": ".*", "_": "."}.get(letter) or re.escape(letter))
    if escaped:
        parts.append(re.escape("\\"))
    return re.compile("".join(parts), re.DOTALL | (re.IGNORECASE if ignore_case else 0))


# ---- SHOW CREATE -----------------------------------------------------------------------------


def show_create(statement: ShowCreateMaterializedTable, context: Context) -> Result:
    """Answer the statement that makes an equal table."""
    table = resolve.materialized_table(statement.name, context)
    creation = creating(table, or_alter=statement.or_alter)
    text = render_create(creation, start_note=_evaluated(table))
    return RowsResult(text_schema("createtab_stmt"), [(text,)])


def creating(table: MaterializedTable, *, or_alter: bool = False) -> CreateMaterializedTable:
    """Return the statement that makes an equal table: defaults filled in, the query expanded."""
    # After ALTER ... AS the table may have columns that its query alone would not bring back.
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
        refresh_mode=_requested(table),
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


def _requested(table: MaterializedTable) -> RequestedMode:
    if (
        table.refresh_mode is RefreshMode.INCREMENTAL
        and table.logical_refresh_mode is LogicalRefreshMode.INCREMENTAL_STRICT
    ):
        return RequestedMode.INCREMENTAL_STRICT
    return RequestedMode[table.refresh_mode.value]


def _start_mode(table: MaterializedTable, *, or_alter: bool) -> StartMode | None:
    """Return a start mode as the statement may have it: a new table has nothing to resume.

    One whose sources are watched then begins with them, as it did when it was made.
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


def _evaluated(table: MaterializedTable) -> str | None:
    """Return what a relative start mode came to when the table was made."""
    if table.start_mode is None or table.start_mode.interval is None:
        return None
    start = table.created_at - table.start_mode.interval.duration
    return f"Evaluated to FROM_TIMESTAMP(TIMESTAMP '{start:%Y-%m-%d %H:%M:%S}') at execution"


# ---- SHOW LINEAGE ----------------------------------------------------------------------------


def _kind(source: Source) -> str:
    if source.kind is SourceKind.STREAM:
        return "STREAM"
    return "MATERIALIZED_TABLE" if source.materialized_table else "TABLE"


def show_lineage(statement: ShowLineage, context: Context) -> Result:
    """List what a materialized table reads and what reads it, by table or by column."""
    table = resolve.materialized_table(statement.name, context)
    consumers = context.services.catalog.consumers(table.name)
    if statement.columns:
        return _column_lineage(table, consumers)
    edges = [
        (
            str(table.name),
            str(source.name),
            _kind(source),
        )
        for source in table.sources
    ]
    edges += [(str(consumer.name), str(table.name), "MATERIALIZED_TABLE") for consumer in consumers]
    return RowsResult(text_schema("table", "source", "kind"), sorted(edges))


def _column_lineage(table: MaterializedTable, consumers: tuple[MaterializedTable, ...]) -> Result:
    rows = {
        (
            str(reader.name),
            origin.column,
            str(origin.source),
            origin.source_column,
            "UNCHANGED" if origin.unchanged else "COMPUTED",
        )
        for reader in (table, *consumers)
        for origin in reader.lineage
        if reader is table or origin.source.folded() == table.name.folded()
    }
    schema = text_schema("table", "column", "source", "source_column", "kind")
    return RowsResult(schema, sorted(rows))


# ---- SHOW LAG --------------------------------------------------------------------------------

_TEXT, _NUMBER = pa.string(), pa.float64()
LAG: tuple[tuple[str, str, pa.DataType, Callable[[LagReport], object]], ...] = (
    ("catalog", "string", _TEXT, lambda lag: lag.table.catalog),
    ("database", "string", _TEXT, lambda lag: lag.table.schema),
    ("table", "string", _TEXT, lambda lag: lag.table.table),
    ("target_seconds", "double", _NUMBER, lambda lag: float(lag.target)),
    ("lag_seconds", "double", _NUMBER, lambda lag: lag.actual),
    ("exact", "boolean", pa.bool_(), lambda lag: lag.exact),
    ("breached", "boolean", pa.bool_(), lambda lag: lag.breached),
    ("cause", "string", _TEXT, lambda lag: lag.cause.value if lag.cause else None),
    ("causes", "string", _TEXT, lambda lag: _causes(lag)),
    ("within_target", "double", _NUMBER, lambda lag: lag.within_target),
    ("p50_seconds", "double", _NUMBER, lambda lag: lag.p50),
    ("p95_seconds", "double", _NUMBER, lambda lag: lag.p95),
    ("longest_seconds", "double", _NUMBER, lambda lag: lag.longest),
    ("data_timestamp", "timestamp", pa.timestamp("us", "UTC"), lambda lag: lag.data_timestamp),
)
"""The columns of SHOW LAG and of its system table: name, type, Arrow type, value."""


def show_lag(context: Context) -> Result:
    """List how far every materialized table lags behind its sources, and why."""
    tables = sorted(context.services.catalog.tables(), key=lambda table: table.name)
    reports = [lag.measured(table, context) for table in tables]
    rows = [tuple(read(report) for *_, read in LAG) for report in reports]
    schema = Schema(tuple(Column(name=name, type=kind) for name, kind, *_ in LAG))
    return RowsResult(schema, rows, types=tuple(kind for _, _, kind, _ in LAG))


def _causes(lag: LagReport) -> str:
    return json.dumps({cause.value: round(seconds, 3) for cause, seconds in lag.causes.items()})
