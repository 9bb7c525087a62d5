"""Mutual exclusion of refreshes and definition changes, across all servers of the store.

A definition is written to the table's own log, where a change and a refresh that commit at the
same time would conflict with a misleading error. So a statement that writes it waits for the
refresh (:func:`at_rest`) and then locks the definition (:func:`alone`). SUSPEND and RESUME do not
write to the log and wait only for definition changes. A ROLLBACK of both takes these leases
several times, within one of its own (:func:`settling`).

Leases are taken in table id order, refreshes before definitions, so no deadlock is possible.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.context import Context, Services
from tidegate_server.gateway.scheduler.base import CREATION_LEASE, DEFINITION_LEASE, ROLLBACK_LEASE
from tidegate_server.gateway.scheduler.leases import LeaseKeeper

log = logging.getLogger(__name__)

_POLL = 0.2


@contextmanager
def at_rest(tables: Iterable[MaterializedTable], context: Context) -> Iterator[None]:
    """Hold the refresh leases of tables; waits until they are free.

    :raises ServerError: MT_STATE if one is not free within ``scheduler.patience``.
    """
    with _holding({table.id: table for table in tables}, context):
        yield


@contextmanager
def alone(tables: Iterable[MaterializedTable], context: Context) -> Iterator[None]:
    """Hold the definition leases of tables, only while writing the definitions.

    Read the definitions inside the block: they may have changed before.

    :raises ServerError: MT_STATE if one is not free within ``scheduler.patience``.
    """
    with _holding({f"{DEFINITION_LEASE}{table.id}": table for table in tables}, context):
        yield


@contextmanager
def settling(table: MaterializedTable, context: Context) -> Iterator[None]:
    """Hold the lease of a ROLLBACK of rows and definition, from its mark to its end.

    Between its steps it holds neither of the other leases. This one shows a starting engine and
    other such statements that the rollback is still alive.

    :raises ServerError: MT_STATE if it is not free within ``scheduler.patience``.
    """
    with _holding({f"{ROLLBACK_LEASE}{table.id}": table}, context):
        yield


@contextmanager
def creating(table: MaterializedTable, context: Context) -> Iterator[None]:
    """Hold the lease of a CREATE until it succeeds or fails.

    Recovery uses it to distinguish a running CREATE from one whose server died.
    """
    with _holding({f"{CREATION_LEASE}{table.id}": table}, context):
        yield


def end_runs(table: MaterializedTable, context: Context) -> None:
    """Cancel all refreshes of a table, on all servers."""
    services = context.services
    runs = [run for run in services.ledger.unfinished_runs() if run.table_id == table.id]
    for run in runs:
        services.ledger.request_cancel(run.refresh_id)
        services.cancel_refresh(run.refresh_id)
    if runs:
        log.info("Canceled %d refreshes of %s", len(runs), table.name)


@contextmanager
def _holding(wanted: Mapping[str, MaterializedTable], context: Context) -> Iterator[None]:
    """Hold leases by key and renew them while the body runs."""
    services = context.services
    owner = f"{services.server_id}/{DEFINITION_LEASE}{context.operation_id}"
    seconds = services.config.scheduler.lease
    deadline = time.monotonic() + services.config.scheduler.patience
    with ExitStack() as held:
        for key in sorted(wanted):
            told = False
            while not _claim(key, owner, services):
                holder = services.ledger.holder(key, services.clock.now()) or ""
                changing = holder.partition("/")[2].startswith(DEFINITION_LEASE)
                if time.monotonic() >= deadline:
                    raise _busy(wanted[key], changing=changing)
                if not told:
                    what = "another statement's change" if changing else "the running refresh"
                    context.log(f"Waiting for {what} of {wanted[key].name}")
                    told = True
                time.sleep(_POLL)
            held.callback(services.ledger.release, key, owner)
            keeper = LeaseKeeper(services.ledger, services.clock, key, owner, seconds)
            held.enter_context(keeper)
        yield


def _claim(key: str, owner: str, services: Services) -> bool:
    seconds = services.config.scheduler.lease
    return services.ledger.claim(key, owner, services.clock.now(), seconds) is not None


def _busy(table: MaterializedTable, *, changing: bool) -> ServerError:
    """Return the error for a table locked by another statement or by a refresh."""
    stop = f"Wait, or stop it with ALTER MATERIALIZED TABLE {table.name} CANCEL REFRESH."
    return error(
        Code.MT_STATE,
        table=table.name,
        found="being changed by another statement" if changing else "being refreshed",
        action="this one" if changing else "this statement",
        expected="at rest",
        hint="Wait for that statement to end." if changing else stop,
    )
