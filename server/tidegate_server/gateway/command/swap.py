"""ALTER MATERIALIZED TABLE a SWAP WITH b: two tables exchange their names."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.core.model.table import MaterializedTable, Swapping
from tidegate_server.core.sql.statements import AlterSwap
from tidegate_server.gateway.command.redefine import settle_pipeline
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition.build import refuse_cycle
from tidegate_server.gateway.definition.derived import refuse_foreign, refuse_view
from tidegate_server.gateway.definition.places import places
from tidegate_server.gateway.definition.transaction import changing, compensate, write_definition
from tidegate_server.gateway.runs.orders import refuse_half_done

log = logging.getLogger(__name__)


def swap(statement: AlterSwap, context: Context) -> Result:
    """Exchange the names of two tables, with all that belongs to them.

    Readers always find one complete table under either name. Consumers of a name read the other
    table from their next refresh on.

    :raises ServerError: MT_STATE while one is INITIALIZING or a refresh does not end, MT_CYCLE,
        NOT_SUPPORTED for tables with columns evaluated on read or with quarantined rows.
    """
    first, second = (
        settle_pipeline(statement.name, context),
        settle_pipeline(statement.other, context),
    )
    if first.id == second.id:
        return nothing()
    _refuse(first, second)
    _refuse_cycles(first, second, context)
    with changing([first, second, *_readers(first, second, context)], context) as held:
        _exchange(held[0], held[1], held[2:], context)
    log.info("Swapped materialized tables %s and %s", first.name, second.name)
    return nothing()


def _refuse(first: MaterializedTable, second: MaterializedTable) -> None:
    # Repeating a SWAP that has marked both completes it.
    if not (_is_swapping(first) and _is_swapping(second)):
        for table in (first, second):
            refuse_half_done(table, "SWAP WITH")
    for table in (first, second):
        refuse_view(table, "SWAP WITH")
        refuse_foreign(table, "SWAP WITH")


def _is_swapping(table: MaterializedTable) -> bool:
    return isinstance(table.pending, Swapping)


def _without_mark(table: MaterializedTable) -> MaterializedTable:
    """Return a table without the mark of an earlier SWAP."""
    return replace(table, pending=None) if _is_swapping(table) else table


def _refuse_cycles(first: MaterializedTable, second: MaterializedTable, context: Context) -> None:
    """Reject tables if one, under the other's name, would depend on itself."""
    exchanged = {first.name.folded(): second, second.name.folded(): first}

    def find(name: TableName) -> MaterializedTable | None:
        return exchanged.get(name.folded()) or context.services.catalog.find(name)

    refuse_cycle(first.name, second.definition.sources, find)
    refuse_cycle(second.name, first.definition.sources, find)


def _readers(
    first: MaterializedTable, second: MaterializedTable, context: Context
) -> Sequence[MaterializedTable]:
    consumers = context.services.catalog.consumers
    found = {table.id: table for t in (first, second) for table in consumers(t.name)}
    return tuple(found.values())


def _exchange(
    first: MaterializedTable,
    second: MaterializedTable,
    readers: Sequence[MaterializedTable],
    context: Context,
) -> None:
    """Run each step with its compensation; the names in the catalog are exchanged last.

    The tables are marked meanwhile: after a crash, the next start restores their names.
    """
    catalog, engine = context.services.catalog, context.services.engine
    first, second = _without_mark(first), _without_mark(second)
    marked = [replace(table, pending=Swapping()) for table in (first, second)]
    after = [replace(first, name=second.name), replace(second, name=first.name)]
    with ExitStack() as undo:
        compensate(undo, lambda: _put_back(first, second, context))
        catalog.replace(*marked)
        answer = engine.call(places(*after))
        ids = dict(zip((table.name.folded() for table in after), answer.table_ids, strict=True))
        after += [_reading(reader, ids) for reader in readers]
        for before, changed in zip((first, second, *readers), after, strict=True):
            write_definition(before, changed, context, undo)
        compensate(undo, lambda: catalog.replace(*marked, *readers))
        catalog.replace(*after)
        undo.pop_all()


def _put_back(first: MaterializedTable, second: MaterializedTable, context: Context) -> None:
    """Let the names point to their tables again; if that fails, the marks stay."""
    context.services.engine.call(places(first, second))
    context.services.catalog.replace(first, second)


def _reading(reader: MaterializedTable, ids: Mapping[TableName, str]) -> MaterializedTable:
    """Return a definition with the exchanged ids of its sources."""
    sources = tuple(
        replace(source, table_id=ids.get(source.name.folded(), source.table_id))
        for source in reader.definition.sources
    )
    return replace(reader, definition=replace(reader.definition, sources=sources))
