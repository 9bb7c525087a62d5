"""ALTER MATERIALIZED TABLE ... RENAME TO: the table, its storage and its consumers."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace

from tidegate_server.core.errors import Code, error
from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.messages.requests import RewriteNames
from tidegate_server.core.model.names import TableName, qualify, quarantine_name, storage_name
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.sql.statements import AlterRename
from tidegate_server.gateway.command.redefine import alterable
from tidegate_server.gateway.context import Context, Services
from tidegate_server.gateway.definition.build import refuse_storage_name, refuse_taken
from tidegate_server.gateway.definition.resolve import canonical_name
from tidegate_server.gateway.definition.transaction import (
    change_storage,
    changing,
    compensate,
    write_definition,
)

log = logging.getLogger(__name__)


def rename(statement: AlterRename, context: Context) -> Result:
    """Rename a table within its schema; queries of other materialized tables follow.

    :raises ServerError: MT_ALREADY_EXISTS, MT_RENAME_DEPENDANTS, NOT_SUPPORTED for another
        schema, MT_STATE while a refresh runs.
    """
    table = alterable(statement.name, context)
    new_name = _new_name(statement, table, context.services)
    if new_name == table.name.folded():
        return nothing()
    refuse_storage_name(new_name)
    refuse_taken(new_name, context)
    if table.quarantine is not None:
        refuse_taken(quarantine_name(new_name), context)
    readers = _following(table, new_name, context)
    storage = storage_name(new_name) if table.storage_table is not None else None
    renamed = replace(table, name=new_name, storage_table=storage)
    with changing([table, *(reader for reader, _ in readers)], context), ExitStack() as undo:
        pause_at(Point.BEFORE_RENAME)
        stored = change_storage(table, renamed, context, undo)
        pause_at(Point.AFTER_RENAME)
        for reader, changed in readers:
            write_definition(reader, changed, context, undo)
        before, after = [table], [stored]
        for reader, changed in readers:
            before.append(reader)
            after.append(changed)
        compensate(undo, lambda: context.services.catalog.replace(*before))
        context.services.catalog.replace(*after)
        undo.pop_all()
    log.info("Renamed materialized table %s to %s", table.name, new_name)
    return nothing()


def _new_name(statement: AlterRename, table: MaterializedTable, services: Services) -> TableName:
    """Qualify the new name by the table's schema."""
    new_name = canonical_name(statement.new_name, services)
    name = qualify(new_name, table.name.catalog, table.name.schema).folded()
    here = table.name.folded()
    if (name.catalog, name.schema) != (here.catalog, here.schema):
        raise error(
            Code.NOT_SUPPORTED,
            what=f"RENAME TO the other schema {name.catalog}.{name.schema}",
            hint="Create the table in that schema and drop this one.",
        )
    return name


def _following(
    table: MaterializedTable, new_name: TableName, context: Context
) -> list[tuple[MaterializedTable, MaterializedTable]]:
    """Return each table that reads this one, as it is now and after the rename."""
    consumers = context.services.catalog.consumers(table.name)
    if not consumers:
        return []
    queries = tuple(consumer.definition.expanded_query for consumer in consumers)
    request = RewriteNames(queries=queries, name=table.name, new_name=new_name)
    answer = context.services.engine.call(request)
    pairs = list(zip(consumers, answer.queries, strict=True))
    if hidden := [str(consumer.name) for consumer, query in pairs if query is None]:
        raise error(Code.MT_RENAME_DEPENDANTS, table=table.name, consumers=", ".join(hidden))
    return [
        (consumer, _reading(consumer, query, table.name, new_name))
        for consumer, query in pairs
        if query is not None
    ]


def _reading(
    consumer: MaterializedTable, query: str, old: TableName, new: TableName
) -> MaterializedTable:
    definition = consumer.definition
    sources = tuple(
        replace(source, name=new) if source.name.folded() == old.folded() else source
        for source in definition.sources
    )
    lineage = tuple(
        replace(origin, source=new) if origin.source.folded() == old.folded() else origin
        for origin in definition.lineage
    )
    definition = replace(definition, expanded_query=query, sources=sources, lineage=lineage)
    return replace(consumer, definition=definition)
