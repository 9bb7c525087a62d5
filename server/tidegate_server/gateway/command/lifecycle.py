"""SUSPEND, RESUME and DROP of materialized tables, with or without CASCADE."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.messages.requests import DropTable, InspectTable
from tidegate_server.core.model.privileges import TableObject
from tidegate_server.core.model.result import Result, RowsResult, nothing
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import Dropping, MaterializedTable, RefreshMode
from tidegate_server.core.model.types import text_schema
from tidegate_server.core.refresh.waves import descendants
from tidegate_server.core.sql.statements import (
    AlterResume,
    AlterSuspend,
    DropMaterializedTable,
    Name,
)
from tidegate_server.gateway.command.settings import check_spark_settings
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve
from tidegate_server.gateway.definition.build import need_scheduler
from tidegate_server.gateway.definition.checks import check_options
from tidegate_server.gateway.definition.derived import drop_view, views
from tidegate_server.gateway.definition.locks import alone, at_rest, end_runs
from tidegate_server.gateway.definition.notices import warn
from tidegate_server.gateway.definition.transaction import compensate, pipeline, withdraw_workflow
from tidegate_server.gateway.options import Place
from tidegate_server.gateway.runs.orders import refuse_half_done
from tidegate_server.gateway.scheduler.base import (
    CreateWorkflow,
    DeleteWorkflow,
    ModifyWorkflow,
    Workflow,
)

log = logging.getLogger(__name__)

_ACTIVATED, _SUSPENDED = RefreshStatus.ACTIVATED, RefreshStatus.SUSPENDED


def suspend(statement: AlterSuspend, context: Context) -> Result:
    """Stop keeping a table fresh; its data stays readable.

    :raises ServerError: MT_STATE unless it is ACTIVATED.
    """
    suspend_table(resolve.materialized_table(statement.name, context), context)
    return nothing()


def suspend_table(table: MaterializedTable, context: Context) -> None:
    """Suspend one table or nothing; raises like :func:`suspend`."""
    with alone([table], context):
        table = current(table, context)
        if table.state.status is not _ACTIVATED:
            raise wrong_state(table, "SUSPEND", "ACTIVATED")
        need_scheduler("SUSPEND", table.definition.refresh_mode, context)
        if not context.services.catalog.move(table.id, _ACTIVATED, _SUSPENDED):
            raise wrong_state(current(table, context), "SUSPEND", "ACTIVATED")
        try:
            _set_pipeline(table, context, active=False)
        except ServerError:
            context.services.catalog.move(table.id, _SUSPENDED, _ACTIVATED)
            with ExitStack() as undo:
                # Pausing may have succeeded before the call failed.
                compensate(undo, lambda: _set_pipeline(table, context, active=True))
            raise
    log.info("Suspended materialized table %s", table.name)


def resume(statement: AlterResume, context: Context) -> Result:
    """Resume refreshes; also recreates the missing pipeline of an ACTIVATED table.

    The options apply to refreshes until the next RESUME.

    :raises ServerError: MT_STATE if it is INITIALIZING, or ACTIVATED with its pipeline present;
        MT_OPTION_*, or Spark's own for a Spark setting.
    """
    table = resolve.materialized_table(statement.name, context)
    check_resume_options(statement.options, context)
    resume_table(table, statement.options, context)
    return nothing()


def check_resume_options(options: Mapping[str, str], context: Context) -> None:
    """Check the options of RESUME WITH; the engine tries out Spark's.

    :raises ServerError: MT_OPTION_UNKNOWN, MT_OPTION_VALUE, or Spark's own.
    """
    warn(check_options(options, Place.RESUME), context)
    check_spark_settings(options, context)


def resume_table(table: MaterializedTable, options: Mapping[str, str], context: Context) -> None:
    """Resume one table or nothing; raises like :func:`resume`."""
    with alone([table], context), ExitStack() as undo:
        table = current(table, context)
        if table.state.status is RefreshStatus.INITIALIZING or is_kept_fresh(table, context):
            raise wrong_state(table, "RESUME", "SUSPENDED")
        refuse_half_done(table, "RESUME")
        need_scheduler("RESUME", table.definition.refresh_mode, context)
        resumed = replace(table, state=replace(table.state, resume_options=dict(options)))
        context.services.catalog.replace(resumed)
        undo.callback(context.services.catalog.replace, table)
        if table.state.status is not _ACTIVATED:
            if not context.services.catalog.move(table.id, _SUSPENDED, _ACTIVATED):
                raise wrong_state(current(table, context), "RESUME", "SUSPENDED")
            undo.callback(
                context.services.catalog.move,
                table.id,
                _ACTIVATED,
                _SUSPENDED,
                table.state.status_reason,
            )
        _set_pipeline(table, context, active=True)
        undo.pop_all()
    log.info("Resumed materialized table %s", table.name)


def is_kept_fresh(table: MaterializedTable, context: Context) -> bool:
    """Return whether a table is ACTIVATED with a pipeline."""
    alive = context.services.scheduler.workflow(table.id) is not None
    return table.state.status is _ACTIVATED and alive


def drop(statement: DropMaterializedTable, context: Context) -> Result:
    """Stop refreshes and workflow, then remove data and definition.

    :raises ServerError: MT_NOT_FOUND without IF EXISTS, MT_WRONG_KIND for a plain table or view,
        MT_STATE while it is INITIALIZING or a refresh does not stop.
    """
    name = resolve.table_name(statement.name, context)
    while True:
        table = context.services.catalog.find(name)
        if table is None:
            problem = resolve.missing(name, context, wait=None)
            if statement.if_exists and problem.code == Code.MT_NOT_FOUND.name:
                return nothing()
            raise problem
        if _drop(table, context):
            break
    gone = TableObject(table_id=table.id)
    context.services.privileges.forget(lambda on: on == gone)
    _warn_consumers(table, context)
    log.info("Dropped materialized table %s (%s)", table.name, table.id)
    return nothing()


def _drop(table: MaterializedTable, context: Context) -> bool:
    """Drop a table; False if another statement renamed or dropped it meanwhile."""
    if table.state.status is RefreshStatus.INITIALIZING:
        raise wrong_state(table, "DROP", "ACTIVATED or SUSPENDED")
    need_scheduler("DROP", table.definition.refresh_mode, context)
    end_runs(table, context)
    with at_rest([table], context), alone([table], context):
        now = context.services.catalog.find(table.name)
        if now is None or now.id != table.id:
            return False
        if isinstance(now.pending, Dropping):
            now = replace(now, pending=None)  # repeating a crashed DROP completes it
        refuse_half_done(now, "DROP")
        _remove(now, context)
    return True


def wrong_state(table: MaterializedTable, action: str, expected: str) -> ServerError:
    """Return the error for a status that does not allow an action."""
    found = table.state.status.value
    if table.definition.refresh_mode is RefreshMode.CONTINUOUS:
        found = f"{found} with continuous pipeline {table.id}"
    return error(Code.MT_STATE, table=table.name, found=found, action=action, expected=expected)


def current(table: MaterializedTable, context: Context) -> MaterializedTable:
    """Return a table's stored definition; raises MT_NOT_FOUND if it is gone."""
    stored = context.services.catalog.by_id(table.id)
    if stored is None:
        raise error(Code.MT_NOT_FOUND, table=table.name)
    return stored


def _set_pipeline(table: MaterializedTable, context: Context, *, active: bool) -> None:
    """Bring the workflow in line with the status; create it if missing."""
    stored = current(table, context)
    workflow = pipeline(stored, context)
    if context.services.scheduler.workflow(table.id) is not None:
        context.services.scheduler.modify(ModifyWorkflow(workflow=workflow, table=stored))
    elif active:
        context.services.scheduler.create(CreateWorkflow(workflow=workflow, table=stored))


def _remove(table: MaterializedTable, context: Context) -> None:
    """Remove workflow, views and storage, each with an undo step, then the definition.

    The definition is marked meanwhile. Once the storage may be gone, nothing is undone: recovery
    completes the DROP.
    """
    services = context.services
    with ExitStack() as undo:
        compensate(undo, lambda: services.catalog.replace(table))
        services.catalog.replace(replace(table, pending=Dropping()))
        withdraw_workflow(table, context, undo)
        for view in views(table):
            compensate(undo, partial(services.engine.call, view))
            services.engine.call(drop_view(view))
        pause_at(Point.BEFORE_REMOVAL)
        try:
            drop = DropTable(name=table.storage, table_id=table.id, location=table.location)
            services.engine.call(drop)
        except ServerError:
            if not _has_storage(table, context):
                undo.pop_all()
            raise
        undo.pop_all()
    pause_at(Point.AFTER_REMOVAL)
    services.catalog.drop(table.id)


def _has_storage(table: MaterializedTable, context: Context) -> bool:
    """Return whether a table's storage certainly exists."""
    try:
        answer = context.services.engine.call(InspectTable(name=table.storage))
    except ServerError as problem:
        log.warning("whether %s still has its storage is not known: %s", table.name, problem)
        return False
    return answer.materialized_id == table.id


def _warn_consumers(table: MaterializedTable, context: Context) -> None:
    consumers = context.services.catalog.consumers(table.name)
    if consumers:
        names = ", ".join(str(consumer.name) for consumer in consumers)
        context.warn(f"These materialized tables read {table.name}, which is gone: {names}")


_SCHEMA = text_schema("table", "result")


def suspend_cascade(statement: AlterSuspend, context: Context) -> Result:
    """Suspend a table and all downstream tables, sources before consumers; all or none.

    :raises ServerError: MT_STATE if all are suspended already, or one is INITIALIZING.
    """
    chain = _chain(statement.name, "SUSPEND", "ACTIVATED", context)
    waiting = [table for table in chain if table.state.status is RefreshStatus.ACTIVATED]
    if not waiting:
        raise wrong_state(chain[0], "SUSPEND", "ACTIVATED")
    for table in waiting:
        need_scheduler("SUSPEND", table.definition.refresh_mode, context)
    _each(waiting, lambda table: suspend_table(table, context), context)
    return _summary(chain, waiting, ("SUSPENDED", "ALREADY_SUSPENDED"), context)


def resume_cascade(statement: AlterResume, context: Context) -> Result:
    """Resume a table and all downstream tables, sources before consumers; all or none.

    The options apply to every resumed table.

    :raises ServerError: MT_STATE if all are kept fresh already, or one is INITIALIZING;
        MT_OPTION_*, or Spark's own for a Spark setting.
    """
    chain = _chain(statement.name, "RESUME", "SUSPENDED", context)
    check_resume_options(statement.options, context)
    waiting = [table for table in chain if not is_kept_fresh(table, context)]
    if not waiting:
        raise wrong_state(chain[0], "RESUME", "SUSPENDED")
    for table in waiting:
        need_scheduler("RESUME", table.definition.refresh_mode, context)
    _each(waiting, lambda t: resume_table(t, statement.options, context), context)
    return _summary(chain, waiting, ("RESUMED", "ALREADY_ACTIVATED"), context)


def _chain(name: Name, action: str, expected: str, context: Context) -> list[MaterializedTable]:
    """Return a table and all downstream ones; raises MT_STATE if one is INITIALIZING."""
    table = resolve.materialized_table(name, context)
    chain = [table, *descendants(table, context.services.catalog.consumers)]
    for entry in chain:
        if entry.state.status is RefreshStatus.INITIALIZING:
            raise wrong_state(entry, action, expected)
    return chain


def _each(
    tables: Sequence[MaterializedTable],
    act: Callable[[MaterializedTable], None],
    context: Context,
) -> None:
    with ExitStack() as undo:
        for table in tables:
            workflow = context.services.scheduler.workflow(table.id)
            _note(undo, table, workflow, context)
            act(table)
        undo.pop_all()


def _note(
    undo: ExitStack, table: MaterializedTable, workflow: Workflow | None, context: Context
) -> None:
    """Register how to restore a table's status, options and workflow."""
    compensate(undo, lambda: _back(table, workflow, context))


def _back(table: MaterializedTable, workflow: Workflow | None, context: Context) -> None:
    """Undo the changes to a table, keeping those made by other statements since."""
    catalog = context.services.catalog
    with alone([table], context):
        now = current(table, context)
        state, old = now.state, table.state
        if state.resume_options != old.resume_options:
            catalog.replace(replace(now, state=replace(state, resume_options=old.resume_options)))
        if state.status is not old.status:
            catalog.move(table.id, state.status, old.status, old.status_reason)
        _workflow_back(current(table, context), workflow, context)


def _workflow_back(table: MaterializedTable, before: Workflow | None, context: Context) -> None:
    scheduler = context.services.scheduler
    now, wanted = scheduler.workflow(table.id), pipeline(table, context)
    if before is None:
        scheduler.delete(DeleteWorkflow(table_id=table.id))
    elif now is None or replace(now, next_fire=wanted.next_fire) != wanted:
        scheduler.modify(ModifyWorkflow(workflow=wanted, table=table))


def _summary(
    chain: Sequence[MaterializedTable],
    changed: Sequence[MaterializedTable],
    words: tuple[str, str],
    context: Context,
) -> Result:
    """Return the outcome for each table and write it to the statement's log."""
    ids = {table.id for table in changed}
    rows = [(str(t.name), words[0] if t.id in ids else words[1]) for t in chain]
    for name, word in rows:
        context.log(f"{name}: {word}")
    log.info("%s %d of %d tables", words[0], len(changed), len(chain))
    return RowsResult(_SCHEMA, rows)
