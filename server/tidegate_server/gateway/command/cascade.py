"""SUSPEND CASCADE and RESUME CASCADE: a table and every materialized table made of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.types import text_schema
from tidegate_server.core.refresh.waves import descendants
from tidegate_server.core.sql.statements import AlterResume, AlterSuspend, Name
from tidegate_server.gateway.command import lifecycle
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve
from tidegate_server.gateway.definition.build import need_scheduler
from tidegate_server.gateway.definition.locks import alone
from tidegate_server.gateway.definition.transaction import compensate, pipeline
from tidegate_server.gateway.scheduler.base import DeleteWorkflow, ModifyWorkflow, Workflow

log = logging.getLogger(__name__)

_SCHEMA = text_schema("table", "result")


def suspend(statement: AlterSuspend, context: Context) -> Result:
    """Suspend a table, then what depends on it, sources before consumers; all of them or none.

    :raises ServerError: MT_STATE if every one is suspended already, or one is INITIALIZING.
    """
    chain = _chain(statement.name, "SUSPEND", "ACTIVATED", context)
    waiting = [table for table in chain if table.refresh_status is RefreshStatus.ACTIVATED]
    if not waiting:
        raise lifecycle.wrong_state(chain[0], "SUSPEND", "ACTIVATED")
    for table in waiting:
        need_scheduler("SUSPEND", table.refresh_mode, context)
    _each(waiting, lambda table: lifecycle.suspend_table(table, context), context)
    return _told(chain, waiting, ("SUSPENDED", "ALREADY_SUSPENDED"), context)


def resume(statement: AlterResume, context: Context) -> Result:
    """Resume a table, then what depends on it, sources before consumers; all of them or none.

    The statement's options hold for every table that is resumed.

    :raises ServerError: MT_STATE if every one is kept fresh already, or one is INITIALIZING;
        MT_OPTION_*, or Spark's own for a setting of Spark.
    """
    chain = _chain(statement.name, "RESUME", "SUSPENDED", context)
    lifecycle.check_resume_options(statement.options, context)
    waiting = [table for table in chain if not lifecycle.is_kept_fresh(table, context)]
    if not waiting:
        raise lifecycle.wrong_state(chain[0], "RESUME", "SUSPENDED")
    for table in waiting:
        need_scheduler("RESUME", table.refresh_mode, context)
    _each(waiting, lambda t: lifecycle.resume_table(t, statement.options, context), context)
    return _told(chain, waiting, ("RESUMED", "ALREADY_ACTIVATED"), context)


def _chain(name: Name, action: str, expected: str, context: Context) -> list[MaterializedTable]:
    """Return a table and all that depend on it; refuses one that is only just being created."""
    table = resolve.materialized_table(name, context)
    chain = [table, *descendants(table, context.services.catalog.consumers)]
    for entry in chain:
        if entry.refresh_status is RefreshStatus.INITIALIZING:
            raise lifecycle.wrong_state(entry, action, expected)
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
    """Note how a table gets its status, its options and its workflow back."""
    compensate(undo, lambda: _back(table, workflow, context))


def _back(table: MaterializedTable, workflow: Workflow | None, context: Context) -> None:
    """Undo what was done to a table; what another statement changed since then stays."""
    catalog = context.services.catalog
    with alone([table], context):
        now = lifecycle.current(table, context)
        if now.resume_options != table.resume_options:
            catalog.replace(replace(now, resume_options=table.resume_options))
        if now.refresh_status is not table.refresh_status:
            catalog.move(table.id, now.refresh_status, table.refresh_status, table.status_reason)
        _workflow_back(lifecycle.current(table, context), workflow, context)


def _workflow_back(table: MaterializedTable, before: Workflow | None, context: Context) -> None:
    scheduler = context.services.scheduler
    now, wanted = scheduler.workflow(table.id), pipeline(table, context)
    if before is None:
        scheduler.delete(DeleteWorkflow(table_id=table.id))
    elif now is None or replace(now, next_fire=wanted.next_fire) != wanted:
        scheduler.modify(ModifyWorkflow(workflow=wanted, table=table))


def _told(
    chain: Sequence[MaterializedTable],
    changed: Sequence[MaterializedTable],
    words: tuple[str, str],
    context: Context,
) -> Result:
    """Answer what became of each table, and write it to the statement's log."""
    ids = {table.id for table in changed}
    rows = [(str(t.name), words[0] if t.id in ids else words[1]) for t in chain]
    for name, word in rows:
        context.log(f"{name}: {word}")
    log.info("%s %d of %d tables", words[0], len(changed), len(chain))
    return RowsResult(_SCHEMA, rows)
