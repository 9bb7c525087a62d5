"""Keeps FRESHNESS = DOWNSTREAM in line with the consumers, and warns of odd neighbours."""

from __future__ import annotations

import logging
from dataclasses import replace

from tidegate_server.command import resolve
from tidegate_server.command.context import Context
from tidegate_server.command.lifecycle import pipeline
from tidegate_server.refresh.downstream import needed_freshness, warnings
from tidegate_server.scheduler.base import ModifyWorkflow
from tidegate_server.sql.statements import Name

log = logging.getLogger(__name__)


def settle(changed: Name, context: Context) -> None:
    """Give every table with FRESHNESS = DOWNSTREAM the freshness its consumers need by now.

    ``changed`` is the table whose definition came, went or changed; what is odd about its
    freshness is written to the statement's log.
    """
    services = context.services
    for table in services.catalog.tables():
        needed = needed_freshness(table, services.catalog.consumers) if table.downstream else None
        if needed is None or needed == table.freshness:
            continue
        table = services.catalog.by_id(table.id) or table
        settled = replace(table, freshness=needed)
        services.catalog.replace(settled)
        if services.scheduler.workflow(table.id) is not None:
            workflow = pipeline(settled, context)
            services.scheduler.modify(ModifyWorkflow(workflow=workflow, table=settled))
        log.info("%s is needed with a freshness of %s", table.name, needed)
    found = resolve.find(changed, context)
    if found is not None:
        for line in warnings(found, services.catalog.consumers, services.catalog.find):
            context.log(f"Warning: {line}")
