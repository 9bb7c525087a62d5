"""Puts a definition in place: workflow, storage and entry as one step, each with its way back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.requests import (
    EvolveTable,
    InspectTable,
    RenameTable,
    Request,
    SetTableProperties,
)
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition.build import definition_properties
from tidegate_server.gateway.definition.derived import drop_view, views
from tidegate_server.gateway.definition.locks import alone, at_rest, end_runs
from tidegate_server.gateway.scheduler.base import (
    CreateWorkflow,
    DeleteWorkflow,
    ModifyWorkflow,
    Workflow,
)
from tidegate_server.gateway.scheduler.workflows import workflow_for

log = logging.getLogger(__name__)


def apply_definition(
    before: MaterializedTable,
    after: MaterializedTable,
    context: Context,
    *,
    restarts: bool = False,
) -> None:
    """Replace a definition by another; a failure restores the one before and is raised.

    The entry in the catalog comes last: until it is written the old definition holds, and the
    storage then has at most columns that are NULL.

    :param restarts: a CONTINUOUS pipeline gives its checkpoint up, and what runs of it is stopped.
    """
    if after.definition_version != before.definition_version:
        now, user = context.services.clock.now(), context.session.user
        after = replace(after, defined_by=user, defined_at=now)
    if restarts:
        end_runs(before, context)
    with changing([before], context) as [before], ExitStack() as undo:
        after = in_status_of(before, after)
        if restarts:
            after = replace(after, checkpoint_floor=_last_epoch(before, context))
        _change_workflow(before, after, context, undo)
        stored = change_storage(before, after, context, undo)
        # Again: a server that was held up may have lost its lease.
        _require_unchanged(before, context)
        compensate(undo, lambda: context.services.catalog.replace(before))
        context.services.catalog.replace(stored)
        _follow_status(stored, context)
        undo.pop_all()
    log.info("Altered materialized table %s", after.name)


def _follow_status(table: MaterializedTable, context: Context) -> None:
    """Bring the workflow in line with a status that failures changed meanwhile."""
    now = context.services.catalog.by_id(table.id)
    if now is not None and now.refresh_status is not table.refresh_status:
        workflow = pipeline(now, context)
        context.services.scheduler.modify(ModifyWorkflow(workflow=workflow, table=now))


@contextmanager
def changing(
    tables: Sequence[MaterializedTable], context: Context
) -> Iterator[list[MaterializedTable]]:
    """Let nothing else change tables, whose definitions are still those that were looked at.

    Yields them as they are now: their status may be another one.

    :raises ServerError: MT_STATE if another statement was quicker, or a refresh does not end.
    """
    with at_rest(tables, context), alone(tables, context):
        yield [_require_unchanged(table, context) for table in tables]


def in_status_of(now: MaterializedTable, table: MaterializedTable) -> MaterializedTable:
    """Return a definition with the status and held version that another one of its table has."""
    return replace(
        table,
        refresh_status=now.refresh_status,
        status_reason=now.status_reason,
        held=now.held,
    )


def _require_unchanged(before: MaterializedTable, context: Context) -> MaterializedTable:
    """Refuse to write over what another statement changed meanwhile; raises MT_STATE."""
    now = context.services.catalog.by_id(before.id)
    if now is None:
        raise error(Code.MT_NOT_FOUND, table=before.name)
    if in_status_of(before, now) != before:
        raise error(
            Code.MT_STATE,
            table=before.name,
            found="changed by another statement",
            action="this one",
            expected="as it was",
        )
    return now


def _last_epoch(table: MaterializedTable, context: Context) -> int:
    """Return the epoch up to which no commit counts as a checkpoint for a fresh start."""
    runs = context.services.ledger.runs(table.id, limit=100)
    return max([table.checkpoint_floor, *(run.epoch or 0 for run in runs)])


def register(table: MaterializedTable, context: Context, undo: ExitStack) -> None:
    """Give a new table its workflow."""
    scheduler = context.services.scheduler
    compensate(undo, lambda: scheduler.delete(DeleteWorkflow(table_id=table.id)))
    scheduler.create(CreateWorkflow(workflow=pipeline(table, context), table=table))


def withdraw_workflow(table: MaterializedTable, context: Context, undo: ExitStack) -> None:
    """Delete the workflow of a table that ends; one that is gone already is harmless."""
    scheduler = context.services.scheduler
    workflow = scheduler.workflow(table.id)

    def keep() -> None:
        if workflow is not None and scheduler.workflow(table.id) is None:
            scheduler.create(CreateWorkflow(workflow=workflow, table=table))

    compensate(undo, keep)
    scheduler.delete(DeleteWorkflow(table_id=table.id))


def _change_workflow(
    before: MaterializedTable, after: MaterializedTable, context: Context, undo: ExitStack
) -> None:
    """Make the workflow what a definition asks for."""
    scheduler = context.services.scheduler
    found, wanted = scheduler.workflow(before.id), pipeline(after, context)
    if found is None:
        compensate(undo, lambda: scheduler.delete(DeleteWorkflow(table_id=before.id)))
        scheduler.create(CreateWorkflow(workflow=wanted, table=after))
    else:
        back = ModifyWorkflow(workflow=found, table=before)
        compensate(undo, lambda: scheduler.modify(back))
        scheduler.modify(ModifyWorkflow(workflow=wanted, table=after))


def change_storage(
    before: MaterializedTable, after: MaterializedTable, context: Context, undo: ExitStack
) -> MaterializedTable:
    """Bring storage and view from one definition to another; return it with its new place.

    Every way back is noted before its step is taken: an engine may die after it did the work.
    """

    def call(step: Request[Any], back: Request[Any]) -> None:
        compensate(undo, lambda: context.services.engine.call(back))
        context.services.engine.call(step)

    old = {view.name: view for view in views(before)}
    new = {view.name: view for view in views(after)}
    moved = before.storage != after.storage
    for name, view in old.items():
        if moved or name not in new:
            call(drop_view(view), view)
    if before.storage != after.storage:
        call(rename_storage(before, after), rename_storage(after, before))
        after = replace(after, location=_location(after, context))
    if before.schema == after.schema and before.comment == after.comment:
        properties = definition_properties(after)
        call(
            SetTableProperties(name=after.storage, properties=properties),
            restore_request(before, after),
        )
    else:
        call(evolve_request(before, after), restore_request(before, after))
    for name, view in new.items():
        found = None if moved else old.get(name)
        if found is None:
            call(view, drop_view(view))
        elif replace(found, settings={}) != replace(view, settings={}):
            call(view, found)
    return after


def write_definition(
    before: MaterializedTable, after: MaterializedTable, context: Context, undo: ExitStack
) -> None:
    """Write a definition into the properties of a storage that stays as it is."""
    engine = context.services.engine
    compensate(undo, lambda: engine.call(restore_request(before, after)))
    engine.call(SetTableProperties(name=after.storage, properties=definition_properties(after)))


def evolve_request(before: MaterializedTable, after: MaterializedTable) -> EvolveTable:
    """Return the request that brings the storage to a definition."""
    types = {column.name.lower(): column.type for column in before.schema}
    widened = tuple(
        column.name
        for column in after.schema
        if types.get(column.name.lower(), column.type) != column.type
    )
    return EvolveTable(
        name=after.storage,
        table_id=after.id,
        schema=after.schema,
        comment=after.comment,
        properties=definition_properties(after),
        widened=widened,
    )


def restore_request(before: MaterializedTable, after: MaterializedTable) -> EvolveTable:
    """Return the request that takes an evolution back; a type that was widened stays wide."""
    return EvolveTable(
        name=after.storage,
        table_id=before.id,
        schema=before.schema,
        comment=before.comment,
        properties=definition_properties(before),
    )


def taken_back(table: MaterializedTable) -> EvolveTable:
    """Return the request that makes a storage the table's own again, should it be nobody's."""
    return replace(restore_request(table, table), adopts="")


def rename_storage(before: MaterializedTable, after: MaterializedTable) -> RenameTable:
    """Return the request that gives the storage its other name."""
    return RenameTable(name=before.storage, new_name=after.storage, table_id=before.id)


def compensate(undo: ExitStack, action: Callable[[], object]) -> None:
    """Note how to take a step back; the error that made it necessary is the one that is told."""

    def back() -> None:
        try:
            action()
        except Exception:
            log.warning("a step could not be taken back", exc_info=True)

    undo.callback(back)


def pipeline(table: MaterializedTable, context: Context) -> Workflow:
    """Return the workflow a definition asks for."""
    config = context.services.config
    return workflow_for(table, config.timezone, config.options)


def _location(table: MaterializedTable, context: Context) -> str:
    answer = context.services.engine.call(InspectTable(name=table.storage))
    return answer.location
