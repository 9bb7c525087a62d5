"""Keeps what changes a table apart, on all servers of the store: its refreshes, its definition.

A definition stands in the table's own log: a change and a refresh that end at the same time would
stop each other there, with an error about neither. So a statement that writes it waits for the
refresh (:func:`at_rest`), and then has the definition for itself (:func:`alone`). SUSPEND and
RESUME write nothing there and wait for no refresh, only while a definition is written. A ROLLBACK
of both takes these leases several times, and one of its own around them (:func:`settling`).

Several tables are taken in the order of their ids, refreshes before definitions: nobody waits for
somebody who waits for him.
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

_LOOK = 0.2


@contextmanager
def at_rest(tables: Iterable[MaterializedTable], context: Context) -> Iterator[None]:
    """Hold the leases of tables; waits for refreshes or other statements that have them.

    :raises ServerError: MT_STATE if one is not free within ``scheduler.patience``.
    """
    with _holding({table.id: table for table in tables}, context):
        yield


@contextmanager
def alone(tables: Iterable[MaterializedTable], context: Context) -> Iterator[None]:
    """Have the definitions of tables to oneself, for the moments that it takes to write them.

    What is written must be read within: it may have changed until now.

    :raises ServerError: MT_STATE if one is not free within ``scheduler.patience``.
    """
    with _holding({f"{DEFINITION_LEASE}{table.id}": table for table in tables}, context):
        yield


@contextmanager
def settling(table: MaterializedTable, context: Context) -> Iterator[None]:
    """Have a ROLLBACK of rows and definition to oneself, from its mark to its end.

    Between its steps it holds neither of the other leases: by this one an engine that comes up
    meanwhile, or another such statement, knows that it is not one that died.

    :raises ServerError: MT_STATE if it is not free within ``scheduler.patience``.
    """
    with _holding({f"{ROLLBACK_LEASE}{table.id}": table}, context):
        yield


@contextmanager
def creating(table: MaterializedTable, context: Context) -> Iterator[None]:
    """Hold the lease of a CREATE until it ends, whichever way.

    By this recovery tells a CREATE that is at work from one whose server died.
    """
    with _holding({f"{CREATION_LEASE}{table.id}": table}, context):
        yield


def end_runs(table: MaterializedTable, context: Context) -> None:
    """Ask every refresh of a table to stop, here and on other servers."""
    services = context.services
    runs = [run for run in services.ledger.unfinished_runs() if run.table_id == table.id]
    for run in runs:
        services.ledger.request_cancel(run.refresh_id)
        services.cancel_refresh(run.refresh_id)
    if runs:
        log.info("Canceled %d refreshes of %s", len(runs), table.name)


@contextmanager
def _holding(wanted: Mapping[str, MaterializedTable], context: Context) -> Iterator[None]:
    """Hold leases by their keys, and keep them however long the body takes."""
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
                time.sleep(_LOOK)
            held.callback(services.ledger.release, key, owner)
            keeper = LeaseKeeper(services.ledger, services.clock, key, owner, seconds)
            held.enter_context(keeper)
        yield


def _claim(key: str, owner: str, services: Services) -> bool:
    seconds = services.config.scheduler.lease
    return services.ledger.claim(key, owner, services.clock.now(), seconds) is not None


def _busy(table: MaterializedTable, *, changing: bool) -> ServerError:
    """Return the error for a table that another statement, or else a refresh, did not let go."""
    stop = f"Wait, or stop it with ALTER MATERIALIZED TABLE {table.name} CANCEL REFRESH."
    return error(
        Code.MT_STATE,
        table=table.name,
        found="being changed by another statement" if changing else "being refreshed",
        action="this one" if changing else "this statement",
        expected="at rest",
        hint="Wait for that statement to end." if changing else stop,
    )
