"""Conversion of plain Delta tables by CREATE OR ALTER, and back by CONVERT TO TABLE."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from tidegate_server.core.errors import Code, error
from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.messages.answers import Inspected
from tidegate_server.core.messages.requests import (
    DisownObject,
    EvolveTable,
    FindObject,
    InspectTable,
    SetObjectOwner,
)
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.privileges import SecuredKind, TableObject
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import Definition, Leaving, MaterializedTable
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.model.versions import is_streaming
from tidegate_server.core.sql.statements import (
    AlterConvertToTable,
    CreateMaterializedTable,
    Name,
)
from tidegate_server.gateway.authorization.object_changes import forget
from tidegate_server.gateway.authorization.requirements import require_on
from tidegate_server.gateway.authorization.rights import Action, secured
from tidegate_server.gateway.authorization.users import rights_of
from tidegate_server.gateway.command.redefine import alterable
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve
from tidegate_server.gateway.definition.build import define, definition_properties, need_scheduler
from tidegate_server.gateway.definition.columns import castable, casting, selecting, shown_type
from tidegate_server.gateway.definition.derived import refuse_foreign, refuse_view
from tidegate_server.gateway.definition.transaction import (
    changing,
    compensate,
    register,
    taken_back,
    withdraw_workflow,
    write_definition,
)
from tidegate_server.gateway.options import CONVERSION_KEY

log = logging.getLogger(__name__)

_FORMAT = "delta"
_CHANGE_FEED = "delta.enableChangeDataFeed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainTable:
    """The table or view with the statement's name."""

    name: TableName
    found: Inspected


def plain_table(statement: CreateMaterializedTable, context: Context) -> PlainTable | None:
    """Return the plain table or view with the statement's name, or None."""
    name = resolve.table_name(statement.name, context)
    answer = context.services.engine.call(InspectTable(name=name))
    return PlainTable(name=name, found=answer) if answer.format is not None else None


def taken_over(
    statement: CreateMaterializedTable, plain: PlainTable, text: str, context: Context
) -> MaterializedTable:
    """Return the checked definition for a plain table.

    :raises ServerError: MT_CONVERSION_DISABLED unless the server allows it, MT_WRONG_KIND unless
        it is a Delta table, ACCESS_DENIED unless the user owns it, and the codes of columns that do
        not fit.
    """
    _check_kind(plain, context)
    _require_ownership(plain, context)
    if statement.immutable is not None:
        raise error(
            Code.NOT_SUPPORTED,
            what="Taking over a plain table with IMMUTABLE WHERE",
            hint="Create the table under another name, with BACKFILL FROM the plain one.",
        )
    table = _fit_schema(define(statement, text, context), plain.found)
    definition = table.definition
    if is_streaming(definition.sources):
        raise error(
            Code.MT_STREAM_UNSUPPORTED,
            what="Taking over a plain table",
            table=table.name,
            hint="Create the table under another name; a view can show the rows of both.",
        )
    if definition.derived:
        raise error(
            Code.NOT_SUPPORTED,
            what="Taking over a plain table with computed or METADATA VIRTUAL columns",
            hint="Take it over without them, then ALTER MATERIALIZED TABLE ... ADD.",
        )
    if definition.quarantining:
        raise error(
            Code.NOT_SUPPORTED,
            what="Taking over a plain table with ON VIOLATION QUARANTINE",
            hint="Take it over without it, then CREATE OR ALTER it with the expectation.",
        )
    return replace(table, state=replace(table.state, status=RefreshStatus.ACTIVATED))


def take_over(
    statement: CreateMaterializedTable, plain: PlainTable, text: str, context: Context
) -> Result:
    """Make a plain table materialized; identity, location and rows stay until its refresh.

    :raises ServerError: as :func:`taken_over`.
    """
    table = taken_over(statement, plain, text, context)
    with ExitStack() as undo:
        services = context.services
        # The catalog does not know its executor yet.
        engine = services.engine_of(table.executor)
        compensate(undo, lambda: engine.call(_given_back(table, plain.found)))
        engine.call(_adoption(table, plain.found))
        # Never INITIALIZING: recovery drops such tables, and this one has old data.
        compensate(undo, lambda: services.catalog.drop(table.id))
        services.catalog.create(table)
        register(table, context, undo)
        undo.pop_all()
    forget(SecuredKind.TABLE, plain.name, context.services)
    log.info("Took plain table %s over as materialized table %s", table.name, table.id)
    return nothing()


def _require_ownership(plain: PlainTable, context: Context) -> None:
    user, services, kind = context.session.user, context.services, SecuredKind.TABLE
    context.record.add(Action.OWN.name, kind.value, plain.name)
    rights = rights_of(user, services)
    if rights is None or rights.administrator:
        return
    found = services.engine.call(FindObject(kind=kind, name=plain.name))
    require_on(Action.OWN, secured(kind, plain.name, found.owner), user, rights)


def _check_kind(plain: PlainTable, context: Context) -> None:
    found = plain.found
    if found.format == "view":
        raise error(
            Code.MT_WRONG_KIND,
            table=plain.name,
            found="a view",
            expected="a materialized table",
            hint="Drop the view, or choose another name.",
        )
    # A server option only: sessions must not decide over other users' tables.
    allowed = context.services.config.options.get(CONVERSION_KEY, "false")
    if allowed.strip().lower() != "true":
        raise error(Code.MT_CONVERSION_DISABLED, table=plain.name)
    if found.format != _FORMAT:
        raise error(
            Code.MT_WRONG_KIND,
            table=plain.name,
            found=f"a table of format {found.format}",
            expected="a Delta table",
            hint="CONVERT TO DELTA makes a parquet table one.",
        )


def _fit_schema(table: MaterializedTable, found: Inspected) -> MaterializedTable:
    """Put the query's columns into the table's order and types; new ones go last.

    :raises ServerError: MT_PERSISTED_COLUMN_NOT_IN_QUERY, MT_INCOMPATIBLE_TYPE,
        MT_EVOLUTION_PARTITIONING.
    """
    definition = table.definition
    wanted = [key.lower() for key in definition.partition_keys]
    if wanted != [key.lower() for key in found.partition_keys]:
        raise error(
            Code.MT_EVOLUTION_PARTITIONING,
            table=table.name,
            old=", ".join(found.partition_keys) or "nothing",
            new=", ".join(definition.partition_keys) or "nothing",
        )
    columns = [
        _match_column(definition, column, position)
        for position, column in enumerate(found.schema, start=1)
    ]
    added = [
        replace(column, nullable=True)
        for column in definition.schema
        if found.schema.find(column.name) is None
    ]
    schema = Schema((*columns, *added))
    query = definition.expanded_query
    if schema.names() == definition.schema.names():
        query = casting(definition.schema, schema, query)
    else:
        query = selecting(definition.schema, schema, query)
    definition = replace(definition, schema=schema, expanded_query=query)
    return replace(table, definition=definition, location=found.location)


def _match_column(definition: Definition, column: Column, position: int) -> Column:
    produced = definition.schema.find(column.name)
    if produced is None:
        raise error(
            Code.MT_PERSISTED_COLUMN_NOT_IN_QUERY,
            statement="CREATE OR ALTER MATERIALIZED TABLE",
            kind="physical",
            name=column.name,
            available=", ".join(definition.schema.names()),
        )
    if not castable(produced.type, column.type) or (produced.nullable and not column.nullable):
        raise error(
            Code.MT_INCOMPATIBLE_TYPE,
            name=column.name,
            position=position,
            declared=shown_type(column.type, column.nullable),
            produced=shown_type(produced.type, produced.nullable),
        )
    return replace(column, comment=produced.comment or column.comment)


def _adoption(table: MaterializedTable, found: Inspected) -> EvolveTable:
    return EvolveTable(
        name=table.name,
        table_id=table.id,
        schema=table.definition.schema,
        comment=table.definition.comment,
        properties={_CHANGE_FEED: "true", **definition_properties(table)},
        adopts=found.materialized_id or "",
    )


def _given_back(table: MaterializedTable, found: Inspected) -> EvolveTable:
    return EvolveTable(
        name=table.name,
        table_id=table.id,
        schema=found.schema,
        comment=found.comment,
        properties={key: found.properties.get(key) for key in _adoption(table, found).properties},
    )


def convert_to_table(statement: AlterConvertToTable, context: Context) -> Result:
    """Turn a materialized table into a plain Delta table of the same name.

    Its consumers read it like any other table. Repeating the statement after a crash is harmless.

    What carries the mark of a materialized table that the server does not know loses the mark, if
    an administrator runs the statement.

    :raises ServerError: MT_STATE while it is INITIALIZING or a refresh does not end, NOT_SUPPORTED
        with columns evaluated on read or quarantined rows, MT_NO_SCHEDULER.
    """
    if _release_stray(statement.name, context):
        return nothing()
    table = alterable(statement.name, context)
    need_scheduler("CONVERT TO TABLE", table.definition.refresh_mode, context)
    refuse_view(table, "CONVERT TO TABLE")
    refuse_foreign(table, "CONVERT TO TABLE")
    refuse_held(table)
    consumers = context.services.catalog.consumers(table.name)
    with changing([table, *consumers], context) as [table, *readers], ExitStack() as undo:
        owned = SetObjectOwner(kind=SecuredKind.TABLE, name=table.storage, owner=table.owner)
        context.services.engine.call(owned)
        _release(table, readers, context, undo)
        undo.pop_all()
    gone = TableObject(table_id=table.id)
    context.services.privileges.forget(lambda on: on == gone)
    context.note(f"{table.name} is a plain table from now on; nothing refreshes it any more.")
    log.info("Converted materialized table %s (%s) to a plain table", table.name, table.id)
    return nothing()


def _release_stray(name: Name, context: Context) -> bool:
    """Remove Tidegate's properties from what only looks like a materialized table."""
    if context.features is not None or resolve.find(name, context) is not None:
        return False
    stray = resolve.table_name(name, context)
    if not resolve.is_stray(stray, context, wait=None):
        return False
    context.services.engine.call(DisownObject(name=stray))
    context.note(f"{stray} has no properties of a materialized table any more.")
    log.info("Removed the properties of a materialized table from %s", stray)
    return True


def refuse_held(table: MaterializedTable) -> None:
    """Raise MT_STATE if a version is held, as it could never be published."""
    if table.state.held is not None:
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
    """Run each step with its compensation; the catalog entry goes last.

    The definition is marked as leaving meanwhile, so that recovery finds the storage.
    """
    services = context.services
    compensate(undo, lambda: services.catalog.replace(replace(table, pending=None)))
    services.catalog.replace(replace(table, pending=Leaving()))
    withdraw_workflow(table, context, undo)
    compensate(undo, lambda: services.engine.call(taken_back(table)))
    pause_at(Point.BEFORE_RELEASE)
    services.engine.call(_plain(table))
    pause_at(Point.AFTER_RELEASE)
    changed = [_reading_plain(reader, table) for reader in readers]
    for before, after in zip(readers, changed, strict=True):
        write_definition(before, after, context, undo)
    compensate(undo, lambda: services.catalog.replace(*readers))
    services.catalog.replace(*changed)
    compensate(undo, lambda: _enter(table, context))
    services.catalog.drop(table.id)


def _plain(table: MaterializedTable) -> EvolveTable:
    return EvolveTable(
        name=table.storage,
        table_id=table.id,
        schema=table.definition.schema,
        comment=table.definition.comment,
        properties=dict.fromkeys(definition_properties(table)),
        adopts="",
    )


def _reading_plain(reader: MaterializedTable, table: MaterializedTable) -> MaterializedTable:
    sources = tuple(
        replace(source, materialized_table=False)
        if source.name.folded() == table.name.folded()
        else source
        for source in reader.definition.sources
    )
    return replace(reader, definition=replace(reader.definition, sources=sources))


def _enter(table: MaterializedTable, context: Context) -> None:
    if context.services.catalog.by_id(table.id) is None:
        context.services.catalog.create(table)
