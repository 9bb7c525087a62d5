"""Keeps a table's refreshes and the changes of its definition apart, on all servers of the store.

A definition stands in the table's own log: a change and a refresh that end at the same time would
stop each other there, with an error about neither.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tidegate_server.command.context import Context
from tidegate_server.errors import Code, error
from tidegate_server.model.table import MaterializedTable
from tidegate_server.scheduler.base import DEFINITION_LEASE

log = logging.getLogger(__name__)

_LEASE_SECONDS = 120.0
_LOOK = 0.2


@contextmanager
def at_rest(table: MaterializedTable, context: Context) -> Iterator[None]:
    """Hold a table's lease; waits for the refresh or the other statement that has it.

    :raises ServerError: MT_STATE if it is not free within ``scheduler.patience``.
    """
    services = context.services
    owner = f"{services.server_id}/{DEFINITION_LEASE}{context.operation_id}"
    deadline = time.monotonic() + services.config.scheduler.patience
    told = False
    while services.ledger.claim(table.id, owner, services.clock.now(), _LEASE_SECONDS) is None:
        if time.monotonic() >= deadline:
            raise error(
                Code.MT_STATE,
                table=table.name,
                found="being refreshed",
                action="this statement",
                expected="at rest",
                hint=f"Wait, or stop it with ALTER MATERIALIZED TABLE {table.name} CANCEL REFRESH.",
            )
        if not told:
            context.log(f"Waiting for the running refresh of {table.name}")
            told = True
        time.sleep(_LOOK)
    try:
        yield
    finally:
        services.ledger.release(table.id, owner)


def end_runs(table: MaterializedTable, context: Context) -> None:
    """Ask every refresh of a table to stop, here and on other servers."""
    services = context.services
    runs = [run for run in services.ledger.unfinished() if run.table_id == table.id]
    for run in runs:
        services.ledger.ask_cancel(run.refresh_id)
        services.cancel_refresh(run.refresh_id)
    if runs:
        log.info("Canceled %d refreshes of %s", len(runs), table.name)
