"""SHOW and DESCRIBE of materialized tables, from the catalog and the ledger alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime

import pyarrow as pa

from tidegate_server.command import resolve
from tidegate_server.command.context import Context
from tidegate_server.command.options import DESCRIBE_KEY
from tidegate_server.command.spark import execute
from tidegate_server.model.result import Result, RowsResult
from tidegate_server.model.runs import RefreshRun
from tidegate_server.model.states import RunState
from tidegate_server.model.table import MaterializedTable, RefreshMode
from tidegate_server.model.types import Column, Schema, text_schema
from tidegate_server.scheduler.base import Workflow
from tidegate_server.sql.render import render
from tidegate_server.sql.statements import (
    ColumnItem,
    CreateMaterializedTable,
    DescribeTable,
    PhysicalColumn,
    PrimaryKeyClause,
    RequestedMode,
    ShowCreateMaterializedTable,
    ShowLineage,
    ShowMaterializedTables,
    ShowRefreshHistory,
)

_NAMES = text_schema("name")
_EXTENDED = text_schema(
    "name", "schema", "refresh_mode", "refresh_status", "freshness", "last_refresh", "actual_lag"
)
_HISTORY_LIMIT = 1000  # rows without a LIMIT


# ---- SHOW MATERIALIZED TABLES ----------------------------------------------------------------


def show_tables(statement: ShowMaterializedTables, context: Context) -> Result:
    """List the materialized tables of a schema by name; needs no engine."""
    catalog, schema = resolve.schema_name(statement.schema, context)
    fits = _filter(statement)
    found = [t for t in context.services.catalog.tables(catalog, schema) if fits(t.name.table)]
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
        _freshness(table),
        f"{last[0].state.value} at {_moment(last[0].queued_at)}" if last else None,
        _lag(context.services.ledger.last_success(table.id), context),
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
    text = render(creating(table, or_alter=statement.or_alter))
    return RowsResult(text_schema("createtab_stmt"), [(text,)])


def creating(table: MaterializedTable, *, or_alter: bool = False) -> CreateMaterializedTable:
    """Return the statement that makes an equal table: defaults filled in, the query expanded."""
    return CreateMaterializedTable(
        name=(table.name.catalog, table.name.schema, table.name.table),
        or_alter=or_alter,
        columns=_declared(table),
        primary_key=_primary_key(table),
        comment=table.comment,
        partition_keys=table.partition_keys,
        options=table.options,
        freshness=table.freshness,
        refresh_mode=RequestedMode[table.refresh_mode.value],
        query=table.expanded_query,
    )


def _declared(table: MaterializedTable) -> tuple[ColumnItem, ...]:
    """Return column definitions where the query alone would not bring the columns back."""
    if all(column.comment is None for column in table.schema):
        return ()
    return tuple(
        PhysicalColumn(name=c.name, type=c.type, nullable=c.nullable, comment=c.comment)
        for c in table.schema
    )


def _primary_key(table: MaterializedTable) -> PrimaryKeyClause | None:
    key = table.primary_key
    return PrimaryKeyClause(name=key.name, columns=key.columns) if key is not None else None


# ---- DESCRIBE --------------------------------------------------------------------------------


def describe(statement: DescribeTable, text: str, context: Context) -> Result:
    """Describe a materialized table; anything else is Spark's to describe, from ``text``."""
    table = resolve.find(statement.name, context)
    if table is None:
        return execute(text, context)
    if statement.as_json:
        return RowsResult(text_schema("json_metadata"), [(_as_json(table, context),)])
    if (context.setting(DESCRIBE_KEY) or "").strip().lower() == "flink":
        return _describe_flink(table)
    rows: list[tuple[str | None, ...]] = [(c.name, c.type, c.comment) for c in table.schema]
    if table.partition_keys:
        rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        found = [table.schema.find(key) for key in table.partition_keys]
        rows += [(c.name, c.type, c.comment) for c in found if c is not None]
    if statement.extended:
        rows += [("", "", ""), ("# Materialized Table Information", "", "")]
        rows += [(key, value, "") for key, value in facts(table, context).items()]
    return RowsResult(text_schema("col_name", "data_type", "comment"), rows)


def facts(table: MaterializedTable, context: Context) -> dict[str, str | None]:
    """Return what EXTENDED tells, in its order."""
    services = context.services
    workflow = services.scheduler.workflow(table.id)
    success = services.ledger.last_success(table.id)
    continuous = table.refresh_mode is RefreshMode.CONTINUOUS
    return {
        "catalog": table.name.catalog,
        "schema": table.name.schema,
        "table": table.name.table,
        "owner": table.owner,
        "created_at": _moment(table.created_at),
        "location": table.location,
        "comment": table.comment,
        "primary_key": ", ".join(table.primary_key.columns) if table.primary_key else None,
        "partition_keys": ", ".join(table.partition_keys) or None,
        "options": json.dumps(dict(sorted(table.options.items()))),
        "logical_refresh_mode": table.logical_refresh_mode.value,
        "refresh_mode": table.refresh_mode.value,
        "refresh_status": table.refresh_status.value,
        "status_reason": table.status_reason,
        "refresh_handler": f"embedded:{table.id}" if workflow else None,
        "freshness": _freshness(table),
        "cron": workflow.cron if workflow else None,
        "next_refresh": _next(workflow),
        "last_success": _moment(success.finished_at) if success else None,
        "data_timestamp": _moment(success.started_at) if success else None,
        "actual_lag": _lag(success, context),
        "continuous_strategy": _strategy(success) if continuous else None,
        "definition_version": str(table.definition_version),
        "original_query": table.original_query,
        "expanded_query": table.expanded_query,
    }


def _describe_flink(table: MaterializedTable) -> Result:
    keys = set(table.primary_key.columns) if table.primary_key else set()
    shown = f"PRI({', '.join(table.primary_key.columns)})" if table.primary_key else None
    rows = [
        (c.name, c.type.upper(), str(c.nullable).upper(), shown if c.name in keys else None)
        for c in table.schema
    ]
    schema = text_schema("name", "type", "null", "key", "extras", "watermark")
    return RowsResult(schema, [(*row, None, None) for row in rows])


def _as_json(table: MaterializedTable, context: Context) -> str:
    columns = [
        {"name": c.name, "type": c.type, "nullable": c.nullable, "comment": c.comment}
        for c in table.schema
    ]
    return json.dumps({"columns": columns, **facts(table, context)})


def _freshness(table: MaterializedTable) -> str:
    return f"{table.freshness.value} {table.freshness.unit.name}"


def _strategy(run: RefreshRun | None) -> str | None:
    if run is None or run.action is None:
        return None
    return f"{run.action.value} ({run.reason_code})" if run.reason_code else run.action.value


def _lag(success: RefreshRun | None, context: Context) -> str | None:
    """Return an upper bound: what changed after the last run read its sources is not known here."""
    if success is None or success.started_at is None:
        return None
    seconds = (context.services.clock.now() - success.started_at).total_seconds()
    return f"at most {max(seconds, 0):.0f} s"


def _next(workflow: Workflow | None) -> str | None:
    if workflow is None or not workflow.active or workflow.next_fire is None:
        return None
    return _moment(workflow.next_fire)


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S UTC")


# ---- lineage and history ---------------------------------------------------------------------


def show_lineage(statement: ShowLineage, context: Context) -> Result:
    """List what a materialized table reads and what reads it, one edge per row."""
    table = resolve.materialized_table(statement.name, context)
    edges = [
        (
            str(table.name),
            str(source.name),
            "MATERIALIZED_TABLE" if source.materialized_table else "TABLE",
        )
        for source in table.sources
    ]
    edges += [
        (str(consumer.name), str(table.name), "MATERIALIZED_TABLE")
        for consumer in context.services.catalog.consumers(table.name)
    ]
    return RowsResult(text_schema("table", "source", "kind"), sorted(edges))


_TEXT, _LONG = pa.string(), pa.int64()
_MOMENT = pa.timestamp("us", tz="UTC")
_HISTORY: tuple[tuple[str, str, pa.DataType, Callable[[RefreshRun], object]], ...] = (
    ("refresh_id", "string", _TEXT, lambda run: run.refresh_id),
    ("table", "string", _TEXT, lambda run: str(run.table)),
    ("definition_version", "bigint", _LONG, lambda run: run.definition_version),
    ("trigger", "string", _TEXT, lambda run: run.trigger.value),
    ("action", "string", _TEXT, lambda run: run.action.value if run.action else None),
    ("state", "string", _TEXT, lambda run: run.state.value),
    ("strategy_reason_code", "string", _TEXT, lambda run: run.reason_code),
    ("strategy_reason_text", "string", _TEXT, lambda run: run.reason_text),
    ("partitions", "string", _TEXT, lambda run: json.dumps([dict(p) for p in run.partitions])),
    ("schedule_time", "timestamp", _MOMENT, lambda run: run.schedule_time),
    ("queued_at", "timestamp", _MOMENT, lambda run: run.queued_at),
    ("started_at", "timestamp", _MOMENT, lambda run: run.started_at),
    ("finished_at", "timestamp", _MOMENT, lambda run: run.finished_at),
    ("from_version", "bigint", _LONG, lambda run: run.from_version),
    ("to_version", "bigint", _LONG, lambda run: run.to_version),
    ("epoch", "bigint", _LONG, lambda run: run.epoch),
    ("rows_written", "bigint", _LONG, lambda run: run.metrics.rows_written),
    ("error_class", "string", _TEXT, lambda run: run.error_class),
    ("sqlstate", "string", _TEXT, lambda run: run.sqlstate),
    ("error_message", "string", _TEXT, lambda run: run.error_message),
    ("attempt", "bigint", _LONG, lambda run: run.attempt),
    ("requested_by", "string", _TEXT, lambda run: run.requested_by),
    ("server_id", "string", _TEXT, lambda run: run.server_id),
)


def show_history(statement: ShowRefreshHistory, context: Context) -> Result:
    """List refresh runs, newest first."""
    table_id = None
    if statement.name is not None:
        table_id = resolve.materialized_table(statement.name, context).id
    limit = _HISTORY_LIMIT if statement.limit is None else statement.limit
    runs = context.services.ledger.runs(
        table_id, limit=_HISTORY_LIMIT if statement.errors else limit
    )
    if statement.errors:
        runs = tuple(run for run in runs if run.state is RunState.FAILED)[:limit]
    schema = Schema(tuple(Column(name=name, type=kind) for name, kind, _, _ in _HISTORY))
    rows = [tuple(read(run) for _, _, _, read in _HISTORY) for run in runs]
    return RowsResult(schema, rows, types=tuple(kind for _, _, kind, _ in _HISTORY))
