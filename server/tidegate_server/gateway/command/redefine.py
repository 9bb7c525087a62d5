"""ALTER MATERIALIZED TABLE ... AS, CREATE OR ALTER of an existing table, and their EXPLAIN."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Analysis
from tidegate_server.core.messages.requests import Analyze, ExplainRefresh
from tidegate_server.core.model.result import Result, RowsResult, nothing
from tidegate_server.core.model.runs import Trigger
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import Definition, Dropping, MaterializedTable, Swapping
from tidegate_server.core.model.types import Column, Schema, text_schema
from tidegate_server.core.refresh.request import RefreshRequest
from tidegate_server.core.sql.statements import AlterAsQuery, CreateMaterializedTable, Name
from tidegate_server.gateway.command.lifecycle import wrong_state
from tidegate_server.gateway.command.plan_rows import PlanRow, check_rows, held_rows
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve
from tidegate_server.gateway.definition.build import (
    analyze,
    define,
    refuse_unstable,
    stored_settings,
    strict_names,
)
from tidegate_server.gateway.definition.checks import check_versions, layered_setting
from tidegate_server.gateway.definition.columns import (
    castable,
    casting,
    distinct,
    refuse_repeated,
    refuse_unstorable,
)
from tidegate_server.gateway.definition.evolution import (
    Change,
    Effect,
    Evolution,
    evolution,
    tightened_columns,
)
from tidegate_server.gateway.definition.locks import alone
from tidegate_server.gateway.definition.transaction import (
    apply_definition,
    changing,
    compensate,
    write_definition,
)
from tidegate_server.gateway.definition.unchanged import is_unchanged
from tidegate_server.gateway.options import PROJECT_KEY
from tidegate_server.gateway.runs.orders import informed_order, refuse_half_done
from tidegate_server.gateway.spark_session import ensure_session

log = logging.getLogger(__name__)

_TEXTS = text_schema("object", "before", "after", "effect", "reason")
_CHANGES = Schema(
    (
        *_TEXTS,
        Column(name="predicted_seconds", type="double"),
        Column(name="affected_keys", type="bigint"),
    )
)
_TYPES = (*(pa.string() for _ in _TEXTS), pa.float64(), pa.int64())


def alterable(name: Name, context: Context) -> MaterializedTable:
    """Return the named table, ready to be altered.

    :raises ServerError: MT_NOT_FOUND, MT_WRONG_KIND, MT_STATE if INITIALIZING or half done.
    """
    table = settle_pipeline(name, context)
    refuse_half_done(table, "ALTER")
    return table


def settle_pipeline(name: Name, context: Context) -> MaterializedTable:
    """Return the named materialized table once no SWAP or DROP is running on it.

    The mark of a crashed one remains.

    :raises ServerError: MT_NOT_FOUND, MT_WRONG_KIND, MT_STATE while it is INITIALIZING.
    """
    table = ready(resolve.materialized_table(name, context))
    if not isinstance(table.pending, Swapping | Dropping):
        return table
    with alone([table], context):
        return ready(resolve.materialized_table(name, context))


def alter_query(statement: AlterAsQuery, text: str, context: Context) -> Result:
    """Change a table's query; columns may only be added.

    :raises ServerError: MT_EVOLUTION_*, or any error of the query's analysis.
    """
    carry_out(_query_evolution(statement, text, context), context)
    return nothing()


def create_or_alter(
    statement: CreateMaterializedTable, existing: MaterializedTable, text: str, context: Context
) -> Result:
    """Change an existing table to a statement's definition; does nothing if it matches.

    :raises ServerError: MT_EVOLUTION_*, or any code of CREATE.
    """
    carry_out(_whole_evolution(statement, existing, text, context), context)
    return nothing()


def explain_alter_query(statement: AlterAsQuery, text: str, context: Context) -> Result:
    """Return the changes and the plan of the next refresh; changes nothing."""
    return explain_evolution(_query_evolution(statement, text, context), context)


def explain_create_or_alter(
    statement: CreateMaterializedTable,
    existing: MaterializedTable,
    text: str,
    context: Context,
    *,
    analyzed: bool,
) -> Result:
    """Return the changes, each with its effect on the data; changes nothing.

    :param analyzed: whether Spark analyzes the query even if the statement is that of the table.
    """
    if not analyzed and context.setting(PROJECT_KEY) is not None:
        refuse_half_done(existing, "ALTER")
        if is_unchanged(statement, ready(existing), context):
            return RowsResult(_CHANGES, [], types=_TYPES)
    return explain_evolution(_whole_evolution(statement, existing, text, context), context)


def carry_out(found: Evolution, context: Context) -> None:
    """Apply all changes atomically, or raise the first rejection."""
    if found.rejection is not None:
        raise found.rejection
    if not found.changes:
        log.info("%s has the wanted definition already", found.before.name)
        _note_sources(found, context)
        return
    apply_definition(found.before, found.after, context, restarts=found.restarts)


def _note_sources(found: Evolution, context: Context) -> None:
    """Store the new ids of sources that were dropped and recreated under their names.

    The definition is the same: no version, no restart. The next refresh reads the new tables.
    """
    sources = found.after.definition.sources
    if [s.table_id for s in found.before.definition.sources] == [s.table_id for s in sources]:
        return
    with changing([found.before], context) as [before], ExitStack() as undo:
        lineage = found.after.definition.lineage
        definition = replace(before.definition, sources=sources, lineage=lineage)
        after = replace(before, definition=definition)
        write_definition(before, after, context, undo)
        compensate(undo, lambda: context.services.catalog.replace(before))
        context.services.catalog.replace(after)
        undo.pop_all()


def ready(table: MaterializedTable) -> MaterializedTable:
    """Return the table; raises MT_STATE if it is INITIALIZING."""
    if table.state.status is RefreshStatus.INITIALIZING:
        raise wrong_state(table, "ALTER", "ACTIVATED or SUSPENDED")
    return table


# ---- wanted definition -----------------------------------------------------------------------


def _whole_evolution(
    statement: CreateMaterializedTable, existing: MaterializedTable, text: str, context: Context
) -> Evolution:
    refuse_half_done(existing, "ALTER")
    wanted = define(statement, text, context, existing=ready(existing))
    return compare(existing, wanted, context)


def _query_evolution(statement: AlterAsQuery, text: str, context: Context) -> Evolution:
    table = alterable(statement.name, context)
    definition = table.definition
    analysis = analyze(statement.query, text, table.name, context)
    refuse_unstable(table.name, definition.logical_refresh_mode, analysis)
    setting = layered_setting(definition.options, context.setting)
    check_versions(analysis.sources, setting, watched=definition.watched)
    schema, expanded = _fit_schema(definition, analysis, context)
    wanted = replace(
        definition,
        schema=schema,
        original_query=statement.query,
        expanded_query=expanded,
        sources=analysis.sources,
        lineage=analysis.lineage,
        settings=stored_settings(context),
    )
    found = compare(table, replace(table, definition=wanted), context)
    if definition.derived and any(change.object.startswith("COLUMN ") for change in found.changes):
        names = ", ".join(column.name for column in definition.derived)
        raise error(Code.MT_EVOLUTION_NON_PERSISTED, table=table.name, names=names)
    return found


def _fit_schema(definition: Definition, analysis: Analysis, context: Context) -> tuple[Schema, str]:
    """Return a new query and its columns, both cast to the declared types."""
    if strict_names(layered_setting(definition.options, context.setting)):
        refuse_repeated(analysis.schema.names())
    produced, query = distinct(analysis.schema, analysis.expanded_query)
    old = definition.schema.columns
    columns = []
    for position, column in enumerate(produced):
        if position < len(old) and old[position].name.lower() == column.name.lower():
            column = replace(column, comment=old[position].comment)
            if definition.declared and castable(column.type, old[position].type):
                column = replace(column, type=old[position].type)
        columns.append(column)
    wanted = Schema(tuple(columns))
    refuse_unstorable(wanted)
    return wanted, casting(produced, wanted, query)


def compare(before: MaterializedTable, wanted: MaterializedTable, context: Context) -> Evolution:
    """Compare two definitions of a table.

    The old query is analyzed again only if nullability seems to change.
    """
    loosened: set[str] = set()
    if tightened_columns(before.definition.schema, wanted.definition.schema):
        loosened = _never_null(before, context)
    return evolution(before, wanted, loosened)


def _never_null(table: MaterializedTable, context: Context) -> set[str]:
    """Return the columns that the current query never makes NULL. They may still be declared
    nullable, or appended to rows with NULL."""
    try:
        answer = analyze_stored(table.definition, context)
    except ServerError as problem:
        log.info("the query of %s cannot be analyzed any more: %s", table.name, problem)
        return set()
    pairs = zip(table.definition.schema, answer.schema, strict=False)
    return {old.name.lower() for old, new in pairs if not new.nullable}


def analyze_stored(definition: Definition, context: Context) -> Analysis:
    """Let the engine analyze a table's current query."""
    request = Analyze(
        session_id=ensure_session(context),
        operation_id=context.operation_id,
        sql=definition.expanded_query,
        user=context.session.user,
        features=context.features,
    )
    return context.engine.call(request)


# ---- EXPLAIN ---------------------------------------------------------------------------------


def explain_evolution(found: Evolution, context: Context) -> Result:
    """Return the changes with their effects, and the next refresh with its checks."""
    rows = [_row(change) for change in found.changes]
    if any(change.effect in (Effect.NEXT_REFRESH, Effect.REBUILD) for change in found.changes):
        rows += map(_change_row, held_rows(found.before))
        rows.append(_refresh_row(found, context))
        rows += map(_change_row, check_rows(found.after))
    return RowsResult(_CHANGES, rows, types=_TYPES)


def _row(change: Change) -> tuple[Any, ...]:
    reason = change.problem.headline if change.problem is not None else ""
    return change.object, change.before, change.after, change.effect.value, reason, None, None


def _change_row(row: PlanRow) -> tuple[Any, ...]:
    return row.decision, None, None, row.reason_code, row.reason_text, None, None


def _refresh_row(found: Evolution, context: Context) -> tuple[Any, ...]:
    """Return the plan of a refresh with the new definition."""
    table = found.after
    request = RefreshRequest(
        table_id=table.id, trigger=Trigger.EVOLUTION, requested_by=context.session.user
    )
    services = context.services
    order = informed_order(
        table,
        request,
        services.catalog,
        services.ledger,
        services.config.engines,
        refresh_id=context.operation_id,
        epoch=0,
        asked_at=services.clock.now(),
    )
    answer = context.services.engine.call(ExplainRefresh(order=order, task=request.recompute))
    plan = answer.plan
    change = (None, plan.strategy.value, plan.reason_code, plan.reason_text)
    return "REFRESH", *change, plan.predicted_seconds, plan.affected_keys
