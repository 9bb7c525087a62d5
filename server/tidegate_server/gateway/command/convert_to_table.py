"""ALTER MATERIALIZED TABLE ... CONVERT TO TABLE: it becomes a plain Delta table, data kept."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from tidegate_server.core.errors import Code, error
from tidegate_server.core.faults import Point, hold
from tidegate_server.core.messages.requests import EvolveTable
from tidegate_server.core.model.privileges import TableObject
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.sql.statements import AlterConvertToTable
from tidegate_server.gateway.command.redefine import alterable
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition.build import definition_properties, need_scheduler
from tidegate_server.gateway.definition.derived import refuse_view
from tidegate_server.gateway.definition.transaction import (
    changing,
    compensate,
    taken_back,
    withdraw_workflow,
    write_definition,
)

log = logging.getLogger(__name__)


def convert_to_table(statement: AlterConvertToTable, context: Context) -> Result:
    """End a materialized table and leave its storage, under its name, as a plain Delta table.

    What reads it goes on as with any other table. Doing it again after a server died within it is
    harmless.

    :raises ServerError: MT_STATE while it is INITIALIZING or a refresh does not end, NOT_SUPPORTED
        with columns that are evaluated on read or rows held out, MT_NO_SCHEDULER.
    """
    table = alterable(statement.name, context)
    need_scheduler("CONVERT TO TABLE", table.refresh_mode, context)
    refuse_view(table, "CONVERT TO TABLE")
    refuse_held(table)
    consumers = context.services.catalog.consumers(table.name)
    with changing([table, *consumers], context) as [table, *readers], ExitStack() as undo:
        _release(table, readers, context, undo)
        undo.pop_all()
    context.services.privileges.forget(TableObject(table_id=table.id))
    context.note(f"{table.name} is a plain table from now on; nothing refreshes it any more.")
    log.info("Converted materialized table %s (%s) to a plain table", table.name, table.id)
    return nothing()


def refuse_held(table: MaterializedTable) -> None:
    """Refuse to leave a held version behind that nobody could publish; raises MT_STATE."""
    if table.held is not None:
        raise error(
            Code.MT_STATE,
            table=table.name,
            found="with a version that is held",
            action="CONVERT TO TABLE",
            expected="without one",
            hint="PUBLISH HELD VERSION or DISCARD HELD VERSION first.",
        )


def _release(
    table: MaterializedTable,
    readers: Sequence[MaterializedTable],
    context: Context,
    undo: ExitStack,
) -> None:
    """Take every step with its way back; the entry in the catalog goes last.

    It says that it is leaving meanwhile: a storage that belongs to nobody is found by that.
    """
    services = context.services
    compensate(undo, lambda: services.catalog.replace(replace(table, leaving=False)))
    services.catalog.replace(replace(table, leaving=True))
    withdraw_workflow(table, context, undo)
    compensate(undo, lambda: services.engine.call(taken_back(table)))
    hold(Point.BEFORE_RELEASE)
    services.engine.call(_plain(table))
    hold(Point.AFTER_RELEASE)
    changed = [_reading_plain(reader, table) for reader in readers]
    for before, after in zip(readers, changed, strict=True):
        write_definition(before, after, context, undo)
    compensate(undo, lambda: services.catalog.replace(*readers))
    services.catalog.replace(*changed)
    compensate(undo, lambda: _entered(table, context))
    services.catalog.drop(table.id)


def _plain(table: MaterializedTable) -> EvolveTable:
    return EvolveTable(
        name=table.storage,
        table_id=table.id,
        schema=table.schema,
        comment=table.comment,
        properties=dict.fromkeys(definition_properties(table)),
        adopts="",
    )


def _reading_plain(reader: MaterializedTable, table: MaterializedTable) -> MaterializedTable:
    sources = tuple(
        replace(source, materialized_table=False)
        if source.name.folded() == table.name.folded()
        else source
        for source in reader.sources
    )
    return replace(reader, sources=sources)


def _entered(table: MaterializedTable, context: Context) -> None:
    if context.services.catalog.by_id(table.id) is None:
        context.services.catalog.create(table)
