"""DESCRIBE of materialized tables, from the catalog and the ledger alone."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tidegate_server.core.model.clauses import Distribution
from tidegate_server.core.model.names import quote_identifier, quote_literal
from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.model.table import (
    Definition,
    DerivedColumn,
    MaterializedTable,
    RefreshMode,
)
from tidegate_server.core.model.types import Column, text_schema
from tidegate_server.core.sql.render import render_distribution, render_start_mode, render_trigger
from tidegate_server.core.sql.statements import DescribeTable
from tidegate_server.gateway import spark_session
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve
from tidegate_server.gateway.options import DESCRIBE_KEY
from tidegate_server.gateway.runs import lag
from tidegate_server.gateway.scheduler.base import Workflow

_COLUMNS = text_schema("col_name", "data_type", "comment")
_FLINK = text_schema("name", "type", "null", "key", "extras", "watermark")


def describe(statement: DescribeTable, text: str, context: Context) -> Result:
    """Describe a materialized table; for anything else, pass ``text`` to Spark.

    :raises ServerError: MT_NOT_FOUND or MT_WRONG_KIND if the statement says that it is
        materialized, and it is not.
    """
    look = resolve.materialized_table if statement.materialized else resolve.find
    table = look(statement.name, context)
    if table is None:
        return spark_session.describe(text, context)
    definition = table.definition
    if statement.as_json:
        return RowsResult(text_schema("json_metadata"), [(_as_json(table, context),)])
    if (context.setting(DESCRIBE_KEY) or "").strip().lower() == "flink":
        return RowsResult(_FLINK, [_flink_row(column, definition) for column in definition.visible])
    rows: list[tuple[str | None, ...]] = [(c.name, c.type, c.comment) for c in definition.visible]
    if definition.partition_keys:
        rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        found = [definition.schema.find(key) for key in definition.partition_keys]
        rows += [(c.name, c.type, c.comment) for c in found if c is not None]
    if statement.extended:
        rows += [("", "", ""), ("# Materialized Table Information", "", "")]
        rows += [(key, value, "") for key, value in facts(table, context).items()]
    return RowsResult(_COLUMNS, rows)


def facts(table: MaterializedTable, context: Context) -> dict[str, str | None]:
    """Return the rows of EXTENDED, in order."""
    return {**_declaration(table), **_refresh_facts(table, context)}


def _declaration(table: MaterializedTable) -> dict[str, str | None]:
    definition = table.definition
    key, mode, source = definition.primary_key, definition.start_mode, definition.backfilled_from
    return {
        "catalog": table.name.catalog,
        "schema": table.name.schema,
        "table": table.name.table,
        "owner": table.owner,
        "created_at": lag.moment(table.created_at),
        "location": table.location,
        "comment": definition.comment,
        "primary_key": ", ".join(key.columns) if key else None,
        "partition_keys": ", ".join(definition.partition_keys) or None,
        "options": json.dumps(dict(sorted(definition.options.items()))),
        "derived_columns": _as_list(extras(c, definition) for c in definition.derived),
        "watermark": _watermark(definition),
        "distribution": _distribution(definition.distribution),
        "start_mode": render_start_mode(mode) if mode else None,
        "expectations": _as_list(
            f"{e.name} EXPECT ({e.condition}) ON VIOLATION {e.violation.value}"
            for e in definition.expectations
        ),
        "assertions": _as_list(
            f"{a.name} ASSERT ({a.condition}) ON VIOLATION {a.violation.value}"
            for a in definition.assertions
        ),
        "quarantine": str(table.quarantine) if table.quarantine else None,
        "immutable": definition.immutable,
        "backfilled_from": str(source) if source else None,
    }


def _refresh_facts(table: MaterializedTable, context: Context) -> dict[str, str | None]:
    definition = table.definition
    services = context.services
    workflow = services.scheduler.workflow(table.id)
    success = services.ledger.last_success(table.id)
    report = lag.present_at(table, services.ledger, services.clock.now())
    continuous = definition.refresh_mode is RefreshMode.CONTINUOUS
    handler = "embedded" if definition.watched else services.config.scheduler_type
    return {
        "logical_refresh_mode": definition.logical_refresh_mode.value,
        "refresh_mode": definition.refresh_mode.value,
        "refresh_status": table.state.status.value,
        "status_reason": table.state.status_reason,
        "held_version": lag.held_since(table),
        "refresh_handler": f"{handler}:{table.id}" if workflow else None,
        "execution_target": table.execution_target,
        "freshness": lag.freshness(definition),
        "refresh_trigger": None if continuous else render_trigger(definition.on_update),
        "execute_as": table.executor,
        "cron": workflow.cron if workflow else None,
        "timezone": workflow.timezone if workflow and workflow.cron else None,
        "next_refresh": _next(workflow),
        "last_success": lag.moment(success.finished_at) if success else None,
        "data_timestamp": lag.moment(report.data_timestamp),
        "actual_lag": lag.lag(report),
        "lag_cause": report.cause.value if report.cause else None,
        "continuous_strategy": lag.strategy(success) if continuous else None,
        "definition_version": str(definition.version),
        "original_query": definition.original_query,
        "expanded_query": definition.expanded_query,
    }


def extras(column: Column | DerivedColumn, definition: Definition) -> str | None:
    """Return a derived or metadata column's definition; None for the query's own."""
    if isinstance(column, DerivedColumn):
        if column.expression is not None:
            return f"{quote_identifier(column.name)} AS {column.expression}"
        return f"{quote_identifier(column.name)} METADATA{_from(column.metadata_key)} VIRTUAL"
    key = definition.persisted_metadata.get(column.name)
    return None if key is None else f"{quote_identifier(column.name)} METADATA{_from(key)}"


def _from(key: str | None) -> str:
    return "" if key is None else f" FROM {quote_literal(key)}"


def _flink_row(column: Column | DerivedColumn, definition: Definition) -> tuple[str | None, ...]:
    key = definition.primary_key
    extra = extras(column, definition)
    watermark = definition.watermark
    marked = watermark is not None and watermark.column.lower() == column.name.lower()
    return (
        column.name,
        column.type.upper(),
        str(column.nullable).upper(),
        f"PRI({', '.join(key.columns)})" if key and column.name in key.columns else None,
        None if extra is None else extra.removeprefix(quote_identifier(column.name)).strip(),
        watermark.expression if watermark is not None and marked else None,
    )


def _as_json(table: MaterializedTable, context: Context) -> str:
    columns = [
        {
            "name": c.name,
            "type": c.type,
            "nullable": c.nullable,
            "comment": c.comment,
            "stored": isinstance(c, Column),
        }
        for c in table.definition.visible
    ]
    return json.dumps({"columns": columns, **facts(table, context)})


def _watermark(definition: Definition) -> str | None:
    found = definition.watermark
    return None if found is None else f"{quote_identifier(found.column)} AS {found.expression}"


def _distribution(distribution: Distribution | None) -> str | None:
    return None if distribution is None else render_distribution(distribution)


def _as_list(texts: Iterable[str | None]) -> str | None:
    return "; ".join(text for text in texts if text is not None) or None


def _next(workflow: Workflow | None) -> str | None:
    if workflow is None or not workflow.active or workflow.next_fire is None:
        return None
    return lag.moment(workflow.next_fire)
