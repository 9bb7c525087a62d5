"""ALTER MATERIALIZED TABLE ... CANCEL REFRESH."""

from __future__ import annotations

import logging

from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.model.types import text_schema
from tidegate_server.core.sql.statements import AlterCancelRefresh
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve

log = logging.getLogger(__name__)

_PATIENCE = 30.0
"""Seconds for runs to end; those of Spark stop at their next task."""


def cancel_refresh(statement: AlterCancelRefresh, context: Context) -> Result:
    """Stop every refresh of a table, whoever asked for it; its data stays as it was.

    Answers the job id and state of each run that was stopped. Those of other servers stop within
    a third of a lease.
    """
    table = resolve.materialized_table(statement.name, context)
    services = context.services
    unfinished = [run for run in services.ledger.unfinished() if run.table_id == table.id]
    for run in unfinished:
        services.ledger.ask_cancel(run.refresh_id)
    here = services.waves.queue.cancel_table(table.id)
    if not services.waves.queue.wait_ended(here, _PATIENCE):
        context.note("A refresh has not stopped yet; it stops when its Spark tasks end.")
    found = dict.fromkeys([*here, *(run.refresh_id for run in unfinished)])
    states = [(refresh_id, services.ledger.find(refresh_id)) for refresh_id in found]
    log.info("Canceled %d refreshes of %s", len(found), table.name)
    rows = [(refresh_id, run.state.value if run else None) for refresh_id, run in states]
    return RowsResult(text_schema("job id", "state"), rows)
