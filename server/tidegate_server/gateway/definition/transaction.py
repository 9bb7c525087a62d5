"""Applies a definition: workflow, storage and catalog entry, with compensation."""

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
from tidegate_server.core.model.table import Definition, MaterializedTable
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
    """Replace a definition; a failure restores the old one and is raised.

    The catalog entry is written last, except for the engine. Until then the old definition
    applies, and the storage has at most additional NULL columns.

    :param restarts: cancel the runs of a CONTINUOUS pipeline and drop its checkpoint.
    """
    if after.definition.version != before.definition.version:
        now, user = context.services.clock.now(), context.session.user
        definition = replace(after.definition, defined_by=user, defined_at=now)
        after = replace(after, definition=definition)
    if restarts:
        end_runs(before, context)
    with changing([before], context) as [before], ExitStack() as undo:
        state = before.state.with_options_of(after.state)
        if restarts:
            state = replace(state, checkpoint_floor=_last_epoch(before, context))
        after = replace(after, state=state)
        _change_workflow(before, after, context, undo)
        moved = _move(before, after.execution_target, context, undo)
        stored = change_storage(before, after, context, undo)
        # Check again: a stalled server may have lost its lease.
        _require_unchanged(moved, context)
        compensate(undo, lambda: context.services.catalog.replace(before))
        context.services.catalog.replace(stored)
        _follow_status(stored, context)
        undo.pop_all()
    log.info("Altered materialized table %s", after.name)


def _move(
    table: MaterializedTable, target: str, context: Context, undo: ExitStack
) -> MaterializedTable:
    """Have a table's work done by another engine; return the table as the catalog now has it.

    From here on, its storage is changed there: the old engine may be gone.
    """
    if target == table.execution_target:
        return table
    catalog = context.services.catalog
    moved = replace(table, execution_target=target)
    compensate(undo, lambda: catalog.replace(table))
    catalog.replace(moved)
    return moved


def _follow_status(table: MaterializedTable, context: Context) -> None:
    """Update the workflow if failures changed the status meanwhile."""
    now = context.services.catalog.by_id(table.id)
    if now is not None and now.state.status is not table.state.status:
        workflow = pipeline(now, context)
        context.services.scheduler.modify(ModifyWorkflow(workflow=workflow, table=now))


@contextmanager
def changing(
    tables: Sequence[MaterializedTable], context: Context
) -> Iterator[list[MaterializedTable]]:
    """Lock tables and check that their definitions are unchanged.

    Yields their current state: the status may differ.

    :raises ServerError: MT_STATE if another statement came first, or a refresh does not end.
    """
    with at_rest(tables, context), alone(tables, context):
        yield [_require_unchanged(table, context) for table in tables]


def _require_unchanged(before: MaterializedTable, context: Context) -> MaterializedTable:
    """Reject overwriting a concurrent change, except of the status; raises MT_STATE."""
    now = context.services.catalog.by_id(before.id)
    if now is None:
        raise error(Code.MT_NOT_FOUND, table=before.name)
    if not _is_unchanged(before, now):
        raise error(
            Code.MT_STATE,
            table=before.name,
            found="changed by another statement",
            action="this one",
            expected="as it was",
        )
    return now


def _is_unchanged(before: MaterializedTable, now: MaterializedTable) -> bool:
    """Return whether two states differ at most in the status and the held version."""
    return replace(before, state=now.state.with_options_of(before.state)) == now


def _last_epoch(table: MaterializedTable, context: Context) -> int:
    """Return the epoch up to which commits are no checkpoints after a restart."""
    runs = context.services.ledger.runs(table.id, limit=100)
    return max([table.state.checkpoint_floor, *(run.epoch or 0 for run in runs)])


def register(table: MaterializedTable, context: Context, undo: ExitStack) -> None:
    """Create the workflow of a new table."""
    scheduler = context.services.scheduler
    compensate(undo, lambda: scheduler.delete(DeleteWorkflow(table_id=table.id)))
    scheduler.create(CreateWorkflow(workflow=pipeline(table, context), table=table))


def withdraw_workflow(table: MaterializedTable, context: Context, undo: ExitStack) -> None:
    """Delete the workflow of a table; it may already be gone."""
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
    """Create or modify the workflow to match a definition."""
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
    """Change storage and views to a new definition; return it with its new location.

    Compensation is registered before each step: an engine may die after completing it.
    """

    def call(step: Request[Any], back: Request[Any]) -> None:
        compensate(undo, lambda: context.services.engine.call(back))
        context.services.engine.call(step)

    old_views = {view.name: view for view in views(before)}
    new_views = {view.name: view for view in views(after)}
    moved = before.storage != after.storage
    for name, view in old_views.items():
        if moved or name not in new_views:
            call(drop_view(view), view)
    if before.storage != after.storage:
        call(rename_storage(before, after), rename_storage(after, before))
        after = replace(after, location=_location(after, context))
    old, now = before.definition, after.definition
    if old.schema == now.schema and old.comment == now.comment:
        properties = definition_properties(after)
        call(
            SetTableProperties(name=after.storage, table_id=after.id, properties=properties),
            restore_request(before, after),
        )
    else:
        call(evolve_request(old, after), restore_request(before, after))
    for name, view in new_views.items():
        found = None if moved else old_views.get(name)
        if found is None:
            call(view, drop_view(view))
        elif replace(found, settings={}) != replace(view, settings={}):
            call(view, found)
    return after


def write_definition(
    before: MaterializedTable, after: MaterializedTable, context: Context, undo: ExitStack
) -> None:
    """Write a definition to the properties of an otherwise unchanged storage."""
    engine = context.services.engine
    compensate(undo, lambda: engine.call(restore_request(before, after)))
    properties = definition_properties(after)
    engine.call(SetTableProperties(name=after.storage, table_id=after.id, properties=properties))


def evolve_request(before: Definition, after: MaterializedTable) -> EvolveTable:
    """Return the request to apply a definition to the storage."""
    definition = after.definition
    types = {column.name.lower(): column.type for column in before.schema}
    widened = tuple(
        column.name
        for column in definition.schema
        if types.get(column.name.lower(), column.type) != column.type
    )
    return EvolveTable(
        name=after.storage,
        table_id=after.id,
        schema=definition.schema,
        comment=definition.comment,
        properties=definition_properties(after),
        widened=widened,
    )


def restore_request(before: MaterializedTable, after: MaterializedTable) -> EvolveTable:
    """Return the request to undo an evolution; widened types stay wide."""
    return EvolveTable(
        name=after.storage,
        table_id=before.id,
        schema=before.definition.schema,
        comment=before.definition.comment,
        properties=definition_properties(before),
    )


def taken_back(table: MaterializedTable) -> EvolveTable:
    """Return the request to adopt a storage again if it has no owner."""
    return replace(restore_request(table, table), adopts="")


def rename_storage(before: MaterializedTable, after: MaterializedTable) -> RenameTable:
    """Return the request to rename the storage."""
    return RenameTable(name=before.storage, new_name=after.storage, table_id=before.id)


def compensate(undo: ExitStack, action: Callable[[], object]) -> None:
    """Register a compensation; its own errors are logged and do not hide the cause."""

    def back() -> None:
        try:
            action()
        except Exception:
            log.warning("a step could not be taken back", exc_info=True)

    undo.callback(back)


def pipeline(table: MaterializedTable, context: Context) -> Workflow:
    """Return the workflow for a definition."""
    config = context.services.config
    return workflow_for(table, config.timezone, config.options)


def _location(table: MaterializedTable, context: Context) -> str:
    answer = context.services.engine.call(InspectTable(name=table.storage))
    return answer.location
