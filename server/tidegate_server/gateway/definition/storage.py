"""Creates the storage of a new materialized table, or replaces lost storage."""

from __future__ import annotations

import logging
from dataclasses import replace

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.messages.requests import CreateTable, InspectTable
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition.build import definition_properties
from tidegate_server.gateway.definition.derived import views
from tidegate_server.gateway.definition.transaction import changing

log = logging.getLogger(__name__)


def create_storage(table: MaterializedTable, context: Context) -> str:
    """Create storage and views and return the location; an existing one is kept.

    :raises ServerError: MT_ALREADY_EXISTS if a plain table or view has one of the names.
    """
    definition = table.definition
    activated = replace(table, state=replace(table.state, status=RefreshStatus.ACTIVATED))
    request = CreateTable(
        name=table.storage,
        schema=definition.schema,
        partition_keys=definition.partition_keys,
        comment=definition.comment,
        properties=definition_properties(activated),
        location=table.location,
    )
    making = table.name
    pause_at(Point.BEFORE_STORAGE)
    try:
        answer = context.services.engine.call(request)
        for view in views(table):
            making = view.name
            context.services.engine.call(view)
    except ServerError as problem:
        if problem.code.endswith("ALREADY_EXISTS"):
            raise error(Code.MT_ALREADY_EXISTS, kind="Table or view", table=making) from problem
        raise
    pause_at(Point.AFTER_STORAGE)
    return answer.location


def restore_lost_storage(table: MaterializedTable, context: Context) -> None:
    """Create the storage of a table again if its files or metastore entry are lost.

    The next full refresh restores the rows that the query still produces.

    :raises ServerError: as :func:`create_storage`, MT_STATE on a concurrent change.
    """
    if _is_stored(table, context):
        return
    with changing([table], context) as [found]:
        if _is_stored(found, context):
            return
        context.services.catalog.replace(replace(found, location=create_storage(found, context)))
    context.note(f"The storage of {table.name} was lost; it was created again.")
    log.warning("created the lost storage of %s again", table.name)


def _is_stored(table: MaterializedTable, context: Context) -> bool:
    answer = context.services.engine.call(InspectTable(name=table.storage))
    return answer.materialized_id == table.id
