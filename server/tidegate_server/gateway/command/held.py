"""ALTER MATERIALIZED TABLE ... PUBLISH and DISCARD HELD VERSION."""

from __future__ import annotations

import logging

from tidegate_server.core.messages.requests import DiscardHeld
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.core.model.runs import Trigger
from tidegate_server.core.refresh.request import Publish, RefreshRequest
from tidegate_server.core.sql.statements import AlterDiscardHeld, AlterPublishHeld
from tidegate_server.gateway.command.lifecycle import current
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve
from tidegate_server.gateway.definition.locks import at_rest
from tidegate_server.gateway.runs.failures import raise_failure
from tidegate_server.gateway.runs.orders import nothing_held

log = logging.getLogger(__name__)


def publish(statement: AlterPublishHeld, context: Context) -> Result:
    """Publish the held version in one commit; automatic refreshes resume.

    :raises ServerError: MT_NOTHING_HELD, or the failed run's error.
    """
    table = resolve.materialized_table(statement.name, context)
    held = table.state.held
    if held is None:
        raise nothing_held(table)
    request = RefreshRequest(
        table_id=table.id,
        trigger=Trigger.MANUAL,
        requested_by=context.session.user,
        refresh_id=context.operation_id,
        task=Publish(),
    )
    raise_failure(context.services.run_refresh(request))
    log.info("Published the held version of %s, made by %s", table.name, held.refresh_id)
    context.note(f"{table.name} serves what refresh {held.refresh_id} made.")
    return nothing()


def discard(statement: AlterDiscardHeld, context: Context) -> Result:
    """Discard the held version; automatic refreshes resume.

    Repeating the statement after a crash is harmless.

    :raises ServerError: MT_NOTHING_HELD, or MT_STATE if a refresh of the table does not end.
    """
    table = resolve.materialized_table(statement.name, context)
    if table.state.held is None:
        raise nothing_held(table)
    with at_rest([table], context):
        table = current(table, context)
        held = table.state.held
        if held is None:
            raise nothing_held(table)
        context.services.engine.call(DiscardHeld(name=table.storage, table_id=table.id))
        context.services.catalog.record_held_version(table.id, None)
    log.info("Discarded the held version of %s, made by %s", table.name, held.refresh_id)
    context.note(f"What refresh {held.refresh_id} of {table.name} made is thrown away.")
    return nothing()
