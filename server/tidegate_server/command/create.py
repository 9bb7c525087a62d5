"""CREATE MATERIALIZED TABLE: definition, storage and pipeline, all or nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

import msgspec

from tidegate_server.command import resolve
from tidegate_server.command.context import Context
from tidegate_server.command.options import EXECUTION_MODE_KEY, INITIALIZE_KEY, check_option
from tidegate_server.command.refresh import raise_failure
from tidegate_server.command.spark import ensure_session, run, unexpected
from tidegate_server.command.validate import Pace, Shape, check_clauses, not_yet, pace, shape
from tidegate_server.errors import Code, ServerError, error
from tidegate_server.link.messages import Analysis, Analyze, CreateTable, DropTable, TableCreated
from tidegate_server.model.names import TableName
from tidegate_server.model.result import Result, nothing
from tidegate_server.model.runs import Trigger
from tidegate_server.model.states import RefreshStatus
from tidegate_server.model.table import MaterializedTable, RefreshMode
from tidegate_server.model.versions import Source
from tidegate_server.refresh.request import RefreshRequest
from tidegate_server.scheduler.base import CreateWorkflow, DeleteWorkflow
from tidegate_server.scheduler.workflows import workflow_for
from tidegate_server.sql.cursor import position
from tidegate_server.sql.query import spark_text
from tidegate_server.sql.statements import CreateMaterializedTable

log = logging.getLogger(__name__)

_NOT_STORED = "workflow-scheduler."


def create(statement: CreateMaterializedTable, text: str, context: Context) -> Result:
    """Create a materialized table and start keeping it fresh; nothing is left after a failure.

    ``text`` is the whole statement, in which errors of the query are placed.

    :raises ServerError: any code of the checks, of the analysis, or of the scheduler.
    """
    existing = resolve.find(statement.name, context)
    if existing is not None:
        return _exists(statement, existing, context)
    table = define(statement, text, context)
    with ExitStack() as undo:
        _build(table, context, undo)
        undo.pop_all()
    log.info("Created materialized table %s (%s)", table.name, table.id)
    return nothing()


def define(statement: CreateMaterializedTable, text: str, context: Context) -> MaterializedTable:
    """Check a statement against Spark's analysis and return the definition it asks for."""
    name = resolve.table_name(statement.name, context)
    check_clauses(statement)
    chosen = pace(statement.freshness, statement.refresh_mode, context.setting)
    need_scheduler("CREATE", chosen.mode, context)
    target = context.setting(EXECUTION_MODE_KEY) or "embedded"
    check_option(EXECUTION_MODE_KEY, target)
    analysis = analyze(statement.query, text, name, context)
    fitted = shape(statement, analysis.schema, analysis.expanded_query)
    return _definition(statement, name, chosen, fitted, analysis.sources, target, context)


def explain_create(statement: CreateMaterializedTable, text: str, context: Context) -> Result:
    """Check everything CREATE checks, then answer Spark's plan of the query; creates nothing."""
    existing = resolve.find(statement.name, context)
    if existing is not None and statement.or_alter:
        raise _evolution_not_yet()
    table = define(statement, text, context)
    return run(f"EXPLAIN {table.expanded_query}", context)


def analyze(query: str, text: str, name: TableName, context: Context) -> Analysis:
    """Ask the engine what a definition query means in the current session.

    ``text`` is the statement that holds the query; errors are placed there.

    :raises ServerError: Spark's analysis error, MT_TEMPORARY_DEPENDENCY, or MT_CYCLE.
    """
    session_id = ensure_session(context)
    request = Analyze(session_id=session_id, sql=spark_text(query))
    try:
        answer = context.services.engine.call(request)
    except ServerError as problem:
        raise _placed(problem, query, text) from problem.__cause__
    if not isinstance(answer, Analysis):
        raise unexpected(answer)
    for temporary in answer.temporary_objects:
        kind, _, found = temporary.partition(" ")
        raise error(Code.MT_TEMPORARY_DEPENDENCY, kind=kind, name=found)
    if any(source.name.folded() == name for source in answer.sources):
        raise error(Code.MT_CYCLE, table=name)
    return replace(answer, sources=tuple(_marked(source, context) for source in answer.sources))


def definition_properties(table: MaterializedTable) -> dict[str, str]:
    """Return the table properties from which a lost store can be rebuilt."""
    return {
        "tidegate.id": table.id,
        "tidegate.definition": msgspec.json.encode(table).decode(),
    }


def read_definition(properties: Mapping[str, str]) -> MaterializedTable | None:
    """Return the definition that :func:`definition_properties` wrote, or None without one.

    :raises msgspec.ValidationError: if the property was damaged.
    """
    text = properties.get("tidegate.definition")
    return None if text is None else msgspec.json.decode(text, type=MaterializedTable)


def need_scheduler(action: str, mode: RefreshMode, context: Context) -> None:
    """Refuse what cannot work without a workflow scheduler; raises MT_NO_SCHEDULER."""
    none = context.services.config.scheduler.type == "none"
    if none and mode.scheduled:
        raise error(Code.MT_NO_SCHEDULER, action=action)


def _placed(problem: ServerError, query: str, text: str) -> ServerError:
    """Move an error's position from the query into the statement that holds it."""
    if problem.line is None or problem.column is None or query not in text:
        return problem
    line, column = position(text, text.rindex(query))
    return ServerError(
        code=problem.code,
        sqlstate=problem.sqlstate,
        message=problem.message,
        hint=problem.hint,
        line=line + problem.line - 1,
        column=problem.column + column - 1 if problem.line == 1 else problem.column,
        detail=problem.detail,
    )


def _exists(
    statement: CreateMaterializedTable, existing: MaterializedTable, context: Context
) -> Result:
    if statement.if_not_exists:
        context.log(f"Materialized table {existing.name} exists already; nothing was changed.")
        return nothing()
    if statement.or_alter:
        raise _evolution_not_yet()
    raise error(Code.MT_ALREADY_EXISTS, kind="Materialized table", table=existing.name)


def _evolution_not_yet() -> Exception:
    return not_yet(
        "CREATE OR ALTER of an existing materialized table",
        "Use ALTER MATERIALIZED TABLE, or drop and create the table.",
    )


def _marked(source: Source, context: Context) -> Source:
    known = context.services.catalog.find(source.name)
    return replace(source, materialized_table=known is not None)


def _definition(
    statement: CreateMaterializedTable,
    name: TableName,
    chosen: Pace,
    fitted: Shape,
    sources: tuple[Source, ...],
    target: str,
    context: Context,
) -> MaterializedTable:
    return MaterializedTable(
        id=context.services.new_id(),
        name=name,
        schema=fitted.schema,
        original_query=statement.query,
        expanded_query=fitted.expanded_query,
        freshness=chosen.freshness,
        logical_refresh_mode=chosen.logical_mode,
        refresh_mode=chosen.mode,
        refresh_status=RefreshStatus.INITIALIZING,
        owner=context.session.user,
        created_at=context.services.clock.now(),
        comment=statement.comment,
        options=dict(statement.options),
        partition_keys=fitted.partition_keys,
        primary_key=fitted.primary_key,
        sources=sources,
        settings=_stored_settings(context),
        execution_target=target,
    )


def _stored_settings(context: Context) -> dict[str, str]:
    """Return the session's settings that differ from the server's, for refreshes to run under."""
    server = context.services.config.options
    chosen = {**context.session.settings, **context.overlay}
    return {
        key: value
        for key, value in chosen.items()
        if server.get(key) != value
        and not key.startswith(_NOT_STORED)
        and key != EXECUTION_MODE_KEY
    }


def _build(table: MaterializedTable, context: Context, undo: ExitStack) -> None:
    services = context.services
    services.catalog.create(table)
    # Noted before the storage is asked for: the engine may die after it made it.
    undo.callback(_take_back, table, context)
    stored = _create_storage(table, context)
    services.catalog.replace(stored)
    if _loads_at_once(stored, context):
        _load(stored, context)
    workflow = workflow_for(stored, services.config.scheduler.timezone)
    services.scheduler.create(CreateWorkflow(workflow=workflow))
    undo.callback(services.scheduler.delete, DeleteWorkflow(table_id=table.id))
    start, end = RefreshStatus.INITIALIZING, RefreshStatus.ACTIVATED
    if not services.catalog.move(table.id, start, end):
        raise error(Code.INTERNAL, reason=f"{table.name} vanished while it was created")


def _create_storage(table: MaterializedTable, context: Context) -> MaterializedTable:
    request = CreateTable(
        name=table.name,
        schema=table.schema,
        partition_keys=table.partition_keys,
        comment=table.comment,
        properties=definition_properties(replace(table, refresh_status=RefreshStatus.ACTIVATED)),
    )
    try:
        answer = context.services.engine.call(request)
    except ServerError as problem:
        if problem.code.endswith("ALREADY_EXISTS"):
            raise error(Code.MT_ALREADY_EXISTS, kind="Table or view", table=table.name) from problem
        raise
    if not isinstance(answer, TableCreated):
        raise unexpected(answer)
    return replace(table, location=answer.location)


def _loads_at_once(table: MaterializedTable, context: Context) -> bool:
    chosen = table.options.get(INITIALIZE_KEY) or context.setting(INITIALIZE_KEY) or ""
    return chosen.strip().upper() == "ON_CREATE"


def _load(table: MaterializedTable, context: Context) -> None:
    request = RefreshRequest(
        table_id=table.id,
        trigger=Trigger.INITIAL,
        requested_by=context.session.user,
        refresh_id=context.operation_id,
    )
    raise_failure(context.services.run_refresh(request))


def _take_back(table: MaterializedTable, context: Context) -> None:
    """Remove the storage, then the entry; an entry whose storage resists waits for recovery.

    The error that made the CREATE fail is the one its user is told.
    """
    try:
        # A table of another id under this name is left alone.
        context.services.engine.call(DropTable(name=table.name, table_id=table.id))
    except ServerError as problem:
        log.warning("The storage of %s is taken back at the next start: %s", table.name, problem)
        return
    context.services.catalog.drop(table.id)
