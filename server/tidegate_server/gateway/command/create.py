"""CREATE MATERIALIZED TABLE: definition, storage and pipeline, all or nothing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import DropTable
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.result import Result, RowsResult, nothing
from tidegate_server.core.model.runs import Trigger
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.types import text_schema
from tidegate_server.core.model.versions import is_streaming
from tidegate_server.core.refresh.request import Backfill, Recompute, RefreshRequest
from tidegate_server.core.sql.statements import CreateMaterializedTable
from tidegate_server.gateway.command import convert, redefine
from tidegate_server.gateway.command.lifecycle import current
from tidegate_server.gateway.command.plan_rows import PlanRow, check_rows
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve
from tidegate_server.gateway.definition.announcements import first_rows, loads_at_once
from tidegate_server.gateway.definition.build import define
from tidegate_server.gateway.definition.derived import drop_view, views
from tidegate_server.gateway.definition.locks import alone, creating
from tidegate_server.gateway.definition.start_mode import first_partitions
from tidegate_server.gateway.definition.storage import create_storage
from tidegate_server.gateway.definition.transaction import register
from tidegate_server.gateway.runs.failures import raise_failure
from tidegate_server.gateway.runs.orders import step_id
from tidegate_server.gateway.scheduler.cron import read_timezone
from tidegate_server.gateway.scheduler.workflows import schedule_timezone
from tidegate_server.gateway.spark_session import run

log = logging.getLogger(__name__)


def create(statement: CreateMaterializedTable, text: str, context: Context) -> Result:
    """Create a materialized table and its pipeline; a failure leaves nothing behind.

    OR ALTER evolves an existing table and takes over a plain one.

    ``text`` is the whole statement; positions of query errors refer to it.

    :raises ServerError: any code of the checks, the analysis or the scheduler.
    """
    existing = resolve.find(statement.name, context)
    if existing is not None:
        return _exists(statement, existing, text, context)
    if statement.or_alter and (plain := convert.plain_table(statement, context)) is not None:
        return convert.take_over(statement, plain, text, context)
    table = define(statement, text, context)
    note = first_rows(table, context)
    with creating(table, context), ExitStack() as undo:
        _build(table, context, undo)
        undo.pop_all()
    log.info("Created materialized table %s (%s)", table.name, table.id)
    if note is not None:
        context.note(note)
    return nothing()


def explain_create(
    statement: CreateMaterializedTable, text: str, context: Context, detail: str = ""
) -> Result:
    """Run the checks of CREATE and return what it would do; changes nothing.

    For a new table: Spark's plan of the query and the checks of its refreshes. For an existing
    one: its changes.
    """
    existing = resolve.find(statement.name, context)
    if existing is not None and statement.or_alter:
        return redefine.explain_create_or_alter(
            statement, existing, text, context, analyzed=bool(detail)
        )
    plain = convert.plain_table(statement, context) if statement.or_alter else None
    if plain is not None:
        table = convert.taken_over(statement, plain, text, context)
    else:
        table = define(statement, text, context)
    if is_streaming(table.definition.sources):
        return RowsResult(text_schema("plan"), [(_ingest_text(table),)])
    query = table.definition.expanded_query
    planned = run(" ".join(filter(None, ("EXPLAIN", detail, query))), context)
    checks = check_rows(table)
    return _with_checks(planned, checks) if checks else planned


def _ingest_text(table: MaterializedTable) -> str:
    """Return the EXPLAIN text for a stream query, which Spark plans batch by batch."""
    told = [f"{row.reason_code}: {row.reason_text}" for row in check_rows(table)]
    checks = ["== Checks of a Refresh ==", *told] if told else []
    return "\n".join(["== Ingest ==", table.definition.expanded_query, *checks])


def _with_checks(planned: Result, checks: Sequence[PlanRow]) -> Result:
    """Return Spark's plan with a section on the checks of refreshes."""
    try:
        texts = [text for batch in planned.batches(0) for text in batch.column(0).to_pylist()]
    finally:
        planned.close()
    told = [f"{row.reason_code}: {row.reason_text}" for row in checks]
    section = "\n".join(["== Checks of a Refresh ==", *told])
    return RowsResult(planned.schema, [(text,) for text in (*texts, section)])


def _exists(
    statement: CreateMaterializedTable, existing: MaterializedTable, text: str, context: Context
) -> Result:
    if statement.if_not_exists:
        context.note(f"Materialized table {existing.name} exists already; nothing was changed.")
        return nothing()
    if statement.or_alter:
        if statement.backfill_from is not None:
            context.warn(
                f"{existing.name} exists: BACKFILL FROM copies rows only when it is created."
            )
        return redefine.create_or_alter(statement, existing, text, context)
    raise error(Code.MT_ALREADY_EXISTS, kind="Materialized table", table=existing.name)


def _build(table: MaterializedTable, context: Context, undo: ExitStack) -> None:
    services = context.services
    # Registered first: a failed call may have taken effect.
    undo.callback(_take_back, table, context)
    services.catalog.create(table)
    location = create_storage(table, context)
    with alone([table], context):
        stored = replace(current(table, context), location=location)
        services.catalog.replace(stored)
    if (source := stored.definition.backfilled_from) is not None:
        _backfill(stored, source, context)
    if loads_at_once(stored.definition, context):
        _load(stored, context)
    register(stored, context, undo)
    start, end = RefreshStatus.INITIALIZING, RefreshStatus.ACTIVATED
    if not services.catalog.move(table.id, start, end):
        raise error(Code.INTERNAL, reason=f"{table.name} vanished while it was created")


def _backfill(table: MaterializedTable, source: TableName, context: Context) -> None:
    request = RefreshRequest(
        table_id=table.id,
        trigger=Trigger.BACKFILL,
        requested_by=context.session.user,
        task=Backfill(source=source),
        refresh_id=step_id(context.operation_id, "backfill"),
    )
    _run(request, context)


def _load(table: MaterializedTable, context: Context) -> None:
    services = context.services
    config = services.config
    zone = read_timezone(schedule_timezone(table, config.timezone, config.options))
    request = RefreshRequest(
        table_id=table.id,
        trigger=Trigger.INITIAL,
        requested_by=context.session.user,
        task=Recompute(partitions=first_partitions(table.definition, services.clock.now(), zone)),
        refresh_id=context.operation_id,
    )
    _run(request, context)


def _run(request: RefreshRequest, context: Context) -> None:
    services = context.services
    with services.waves.queue.following(context.operation_id, context.warn):
        raise_failure(services.run_refresh(request))


def _take_back(table: MaterializedTable, context: Context) -> None:
    """Remove the storage, then the entry; if the storage stays, recovery removes both.

    Errors here are only logged: the user sees why CREATE failed.
    """
    engine = context.services.engine
    try:
        for view in views(table):
            engine.call(drop_view(view))
        # A table of another id under this name is left alone.
        engine.call(DropTable(name=table.storage, table_id=table.id))
    except ServerError as problem:
        log.warning("recovery will remove the storage of %s: %s", table.name, problem)
        return
    context.services.catalog.drop(table.id)
