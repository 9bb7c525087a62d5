"""Closes runs and tables that a dead server or engine left unfinished."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import LastCommitted
from tidegate_server.core.messages.requests import DropTable, LastCommit
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import Dropping, MaterializedTable
from tidegate_server.gateway.catalog.base import Catalog
from tidegate_server.gateway.definition.derived import drop_view, views
from tidegate_server.gateway.link.client import ABSENCE, Engine
from tidegate_server.gateway.runs.orders import (
    as_committed,
    close_run,
    held_version,
    version_held,
    with_error,
)
from tidegate_server.gateway.runs.runner import GIVES_WAY, Refresher
from tidegate_server.gateway.scheduler.base import (
    CREATION_LEASE,
    DEFINITION_LEASE,
    DeleteWorkflow,
    Ledger,
    WorkflowScheduler,
)

logger = logging.getLogger(__name__)

_SLOWEST_WAIT = timedelta(hours=2)
_SLOWEST_BEGIN = timedelta(minutes=5)
"""How long a refresh may stay QUEUED that waits neither for another one nor for its wave."""


def _repaired(name: TableName, repair: Callable[[], None]) -> bool:
    """Repair what belongs to a table; return False if its catalog does not allow that now.

    :raises ServerError: for a table of the session catalog, or if there is no engine.
    """
    try:
        repair()
    except ServerError as problem:
        if problem.code in ABSENCE or not name.is_foreign:
            raise
        logger.warning("%s is not recovered yet: %s", name, problem)
        return False
    return True


class Recovery:
    """Repairs the store from the tables' own commits; may run at any time and is idempotent.

    A run is dead if neither this process nor another one can be working on it. On a shared store,
    another server may be, until the run's lease expires or another run takes it.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        ledger: Ledger,
        engine: Engine,
        refresher: Refresher,
        scheduler: WorkflowScheduler,
        server_id: str,
        shared: bool,
    ) -> None:
        """``shared`` says whether other servers may use the store."""
        self._catalog = catalog
        self._ledger = ledger
        self._engine = engine
        self._refresher = refresher
        self._scheduler = scheduler
        self._server_id = server_id
        self._shared = shared

    def recover(self, now: datetime) -> bool:
        """Recover everything that can be recovered now; False if some of it needs an engine, or a
        catalog that cannot be reached."""
        complete = True
        try:
            for run in self._ledger.unfinished_runs():
                if self._is_dead(run, now):
                    complete &= _repaired(run.table, partial(self._close_dead_run, run, now))
            for table in self._catalog.tables():
                if self._is_stuck(table, now):
                    complete &= _repaired(table.name, partial(self._remove, table))
        except ServerError as error:
            if error.code not in ABSENCE:
                raise
            logger.info("recovery waits for an engine: %s", error)
            return False
        return complete

    def _is_dead(self, run: RefreshRun, now: datetime) -> bool:
        if self._refresher.at_work(run.refresh_id):
            return False
        if not self._shared or run.server_id == self._server_id:
            return True
        if run.state is RunState.QUEUED:
            at_once = run.trigger in GIVES_WAY and run.wave_id is None
            return now > run.queued_at + (_SLOWEST_BEGIN if at_once else _SLOWEST_WAIT)
        return self._ledger.holder(run.table_id, now) != self._refresher.lease_owner(run)

    def _close_dead_run(self, run: RefreshRun, now: datetime) -> None:
        if run.state is RunState.QUEUED:
            text = "its server stopped before it began"
            close_run(self._ledger, run, RunState.CANCELLED, now, Reason.SERVER_STOPPED, text)
        elif self._catalog.by_id(run.table_id) is None:
            close_run(self._ledger, run, RunState.ABANDONED, now, Reason.TABLE_DROPPED)
        else:
            self._close_by_commit(run, now)
        self._ledger.release(run.table_id, self._refresher.lease_owner(run))

    def _close_by_commit(self, run: RefreshRun, now: datetime) -> None:
        answer = self._last_commit(run.table, run.table_id)
        commit = answer.commit
        if commit is not None:
            self._ledger.raise_epoch(run.table_id, commit.epoch)
        if answer.held is not None and answer.held.refresh_id == run.refresh_id:
            failure = version_held(run, answer.held)
            self._catalog.record_held_version(run.table_id, held_version(run, failure, now))
            close_run(self._ledger, with_error(run, failure), RunState.FAILED, now)
        elif commit is not None and commit.refresh_id == run.refresh_id:
            self._catalog.record_held_version(run.table_id, None)
            close_run(self._ledger, as_committed(run, commit), RunState.SUCCEEDED, now)
        else:
            text = "its server or its lease was lost before it committed"
            close_run(self._ledger, run, RunState.ABANDONED, now, Reason.LEASE_LOST, text)

    def _is_stuck(self, table: MaterializedTable, now: datetime) -> bool:
        """Return whether the CREATE or DROP of a table was interrupted."""
        if isinstance(table.pending, Dropping):
            return not self._is_at_work(f"{DEFINITION_LEASE}{table.id}", now)
        creating = table.state.status is RefreshStatus.INITIALIZING
        return creating and not self._is_at_work(f"{CREATION_LEASE}{table.id}", now)

    def _is_at_work(self, key: str, now: datetime) -> bool:
        """Return whether a statement holds a lease, of this server or one that may be alive."""
        holder = self._ledger.holder(key, now)
        own = holder is not None and holder.startswith(f"{self._server_id}/")
        return own or (self._shared and holder is not None)

    def _remove(self, table: MaterializedTable) -> None:
        """Complete an interrupted DROP, or undo an interrupted CREATE."""
        action = "DROP" if isinstance(table.pending, Dropping) else "CREATE"
        logger.warning("removing %s, whose %s was interrupted", table.name, action)
        self._scheduler.delete(DeleteWorkflow(table_id=table.id))
        for view in views(table):
            self._engine.call(drop_view(view), wait=0)
        drop = DropTable(name=table.storage, table_id=table.id, location=table.location)
        self._engine.call(drop, wait=0)
        self._catalog.drop(table.id)

    def _last_commit(self, name: TableName, table_id: str) -> LastCommitted:
        return self._engine.call(LastCommit(name=name, table_id=table_id), wait=0)
