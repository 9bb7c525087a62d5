"""Updates FRESHNESS = DOWNSTREAM from the consumers, and warns about mismatches."""

from __future__ import annotations

import logging
from dataclasses import replace

from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.model.freshness import Freshness
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.sql.statements import Name
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve
from tidegate_server.gateway.definition.locks import alone
from tidegate_server.gateway.definition.transaction import pipeline
from tidegate_server.gateway.freshness.downstream import needed_freshness, warnings
from tidegate_server.gateway.scheduler.base import ModifyWorkflow

log = logging.getLogger(__name__)


def settle(changed: Name, context: Context) -> None:
    """Update every table with FRESHNESS = DOWNSTREAM to what its consumers need.

    ``changed`` is the table that was created, dropped or altered; warnings about its freshness
    go to the statement's log.
    """
    services = context.services
    for table in services.catalog.downstream():
        if _requested_freshness(table, context) is not None:
            _settle_alone(table, context)
    found = resolve.find(changed, context)
    if found is not None:
        for line in warnings(found, services.catalog.consumers, services.catalog.find):
            context.warn(line)


def _settle_alone(table: MaterializedTable, context: Context) -> None:
    """Settle one table. A lock timeout must not fail a statement that succeeded."""
    try:
        with alone([table], context):
            _settle(table.id, context)
    except ServerError as problem:
        if problem.code != Code.MT_STATE.name:
            raise
        context.warn(f"the freshness of {table.name} is settled later: {problem.message}")


def _settle(table_id: str, context: Context) -> None:
    """Set the freshness of one table, unless it is already correct or the table is gone."""
    services = context.services
    table = services.catalog.by_id(table_id)
    needed = _requested_freshness(table, context) if table is not None else None
    if table is None or needed is None:
        return
    settled = replace(table, definition=replace(table.definition, freshness=needed))
    services.catalog.replace(settled)
    if services.scheduler.workflow(table.id) is not None:
        workflow = pipeline(settled, context)
        services.scheduler.modify(ModifyWorkflow(workflow=workflow, table=settled))
    log.info("%s is needed with a freshness of %s", table.name, needed)


def _requested_freshness(table: MaterializedTable, context: Context) -> Freshness | None:
    """Return the freshness that the consumers need; None if unchanged."""
    if not table.definition.downstream:
        return None
    needed = needed_freshness(table, context.services.catalog.consumers)
    return None if needed == table.definition.freshness else needed
