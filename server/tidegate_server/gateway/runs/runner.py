"""Executes one refresh request."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.messages.answers import LastCommitted
from tidegate_server.core.messages.requests import Cancel, LastCommit
from tidegate_server.core.model.clock import Clock
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import RefreshRun, Strategy, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import RollingBack
from tidegate_server.core.refresh.request import RefreshOrder, RefreshRequest
from tidegate_server.gateway.audit.log import AuditLog
from tidegate_server.gateway.audit.record import Event, Record
from tidegate_server.gateway.catalog.base import Catalog
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.runs.engines import Engines
from tidegate_server.gateway.runs.orders import (
    RunRequest,
    as_committed,
    as_undecided,
    close_run,
    held_version,
    informed_order,
    queued_run,
    refuse_half_done,
    run_request,
    version_held,
    with_error,
)
from tidegate_server.gateway.scheduler.base import DEFINITION_LEASE, Ledger
from tidegate_server.gateway.scheduler.leases import LeaseKeeper

log = logging.getLogger(__name__)


GIVES_WAY = frozenset({Trigger.SCHEDULED, Trigger.UPSTREAM_CHANGE})
"""Recurring triggers; their requests are skipped while another refresh runs."""
_RETRY_CANCEL = 1.0
_LOOK_FOR_LEASE = 0.5
_CLOSED_BY = {
    Code.OPERATION_CANCELED.name: RunState.CANCELLED,
    Code.MT_REFRESH_FENCED.name: RunState.ABANDONED,
}


@dataclass(slots=True)
class _ActiveRun:
    """A run active in this process."""

    run: RefreshRun
    keeper: LeaseKeeper
    begun: bool = False
    """Whether a thread executes it already; False while it is enqueued."""
    canceled: bool = False

    @property
    def lease_lost(self) -> bool:
        """Whether another server has taken the table's lease."""
        return self.keeper.lost


class Refresher:
    """Runs refreshes, one per table at a time across all servers of the store.

    The lease makes a second refresh wait or be skipped; its epoch fences, at the table itself, a
    refresh that outlived its lease.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        ledger: Ledger,
        engine: Engine,
        clock: Clock,
        new_id: Callable[[], str],
        server_id: str,
        lease_seconds: float,
        patience: timedelta = timedelta(hours=1),
        engines: Engines = MappingProxyType({}),
        admit: Callable[[RunRequest, Record], RunRequest] = lambda request, record: request,
        audit: AuditLog | None = None,
    ) -> None:
        """``patience`` limits how long a request waits for a running refresh.

        ``engines`` are those that tables may choose. ``admit`` adds what a run may access, to the
        request and to what ``audit`` records; raises if its executor may not read its sources.
        """
        self._catalog = catalog
        self._ledger = ledger
        self._engine = engine
        self._clock = clock
        self._new_id = new_id
        self._server_id = server_id
        self._lease_seconds = lease_seconds
        self._patience = patience
        self._engines = engines
        self._admit = admit
        self._audit = audit or AuditLog()
        self._changed = threading.Condition()
        self._active: dict[str, _ActiveRun] = {}
        self._followers: dict[str, Callable[[str], None]] = {}
        self._stopping = False

    def run(self, request: RefreshRequest) -> RefreshRun:
        """Execute a request and return its record, including any failure; blocks.

        An enqueued request continues as the run recorded for it.

        :raises ServerError: MT_NOT_FOUND if there is no such table.
        """
        active = self._claim_enqueued(request.refresh_id) or self._begin(request, begun=True)
        try:
            return self._run(active, request)
        except ServerError as failure:
            return self._record_failure(active, failure)
        except Exception as failure:
            log.exception("refresh %s broke", active.run.refresh_id)
            return self._record_failure(active, error(Code.INTERNAL, reason=repr(failure)))
        finally:
            self._end(active)

    def enqueue(self, request: RefreshRequest) -> RefreshRun:
        """Record a request for a later :meth:`run` or :meth:`withdraw`.

        It can be canceled from now on. Raises like :meth:`run`.
        """
        return self._begin(request).run

    def withdraw(
        self, refresh_id: str, end: RunState, code: Reason, text: str
    ) -> RefreshRun | None:
        """Close an enqueued request that never ran; None if there is none left."""
        active = self._claim_enqueued(refresh_id)
        if active is None:
            return None
        try:
            if active.canceled:
                cause = self._cause("canceled before it began")
                return self._settle(active, RunState.CANCELLED, *cause)
            return self._settle(active, end, code, text)
        finally:
            self._end(active)

    def skip(
        self,
        request: RefreshRequest,
        code: Reason = Reason.PREVIOUS_RUNNING,
        text: str | None = None,
    ) -> RefreshRun:
        """Record a skipped request; by default because the previous refresh still runs."""
        run = self._queued_run(request)
        self._ledger.record(run)
        return self._close(run, RunState.SKIPPED, code, text)

    def cancel(self, refresh_id: str) -> bool:
        """Ask a run of this server to stop; False if it is not active here.

        Also stops runs whose id is a :func:`~orders.step_id` of the given one.
        """
        return bool(self._stop(lambda run: _asked_by(run.refresh_id, refresh_id)))

    def cancel_table(self, table_id: str) -> tuple[str, ...]:
        """Ask every local run of a table to stop; return their ids."""
        return self._stop(lambda run: run.table_id == table_id)

    @contextmanager
    def following(self, operation_id: str, tell: Callable[[str], None]) -> Iterator[None]:
        """Call ``tell`` when a run that the operation has asked for begins to wait, and for what.

        The runs are those of this server.
        """
        with self._changed:
            self._followers[operation_id] = tell
        try:
            yield
        finally:
            with self._changed:
                self._followers.pop(operation_id, None)

    def wait_ended(self, refresh_ids: Collection[str], seconds: float) -> bool:
        """Wait until none of these runs is active here; False on timeout."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._active.keys().isdisjoint(refresh_ids), seconds
            )

    def close(self) -> None:
        """Cancel every local run; those waiting for a lease end at once."""
        self._stopping = True
        self._stop(lambda run: True)

    def _stop(self, meant: Callable[[RefreshRun], bool]) -> tuple[str, ...]:
        """Ask the matching local runs to stop; return their ids."""
        with self._changed:
            found = [active for active in self._active.values() if meant(active.run)]
            for active in found:
                active.canceled = True
                active.keeper.wake()
            self._changed.notify_all()
        return tuple(active.run.refresh_id for active in found)

    def at_work(self, refresh_id: str) -> bool:
        """Return whether a run is active in this process."""
        with self._changed:
            return refresh_id in self._active

    def lease_owner(self, run: RefreshRun) -> str:
        """Return the name under which a run holds its table's lease."""
        return f"{run.server_id}/{run.refresh_id}"

    # ---- one run ---------------------------------------------------------------------------

    def _begin(self, request: RefreshRequest, *, begun: bool = False) -> _ActiveRun:
        run = self._queued_run(request)
        active = self._activate(run, begun=begun)
        with self._changed:
            self._active[run.refresh_id] = active
        try:
            self._ledger.record(run)
        except Exception:
            self._end(active)
            raise
        return active

    def _activate(self, run: RefreshRun, *, begun: bool) -> _ActiveRun:
        def pass_cancel_on(keeper: LeaseKeeper) -> float | None:
            self._note_cancel_request(active)
            if not active.canceled and not keeper.lost:
                return None
            # Repeated, as the engine may not have begun at the first call.
            self._engine.call(Cancel(operation_id=run.refresh_id), wait=0)
            return _RETRY_CANCEL

        keeper = LeaseKeeper(
            self._ledger,
            self._clock,
            run.table_id,
            self.lease_owner(run),
            self._lease_seconds,
            after_renewal=pass_cancel_on,
        )
        active = _ActiveRun(run, keeper, begun=begun)
        return active

    def _claim_enqueued(self, refresh_id: str | None) -> _ActiveRun | None:
        with self._changed:
            active = self._active.get(refresh_id) if refresh_id is not None else None
            if active is None or active.begun:
                return None
            active.begun = True
            return active

    def _end(self, active: _ActiveRun) -> None:
        try:
            self._ledger.release(active.run.table_id, active.keeper.owner)
        finally:
            with self._changed:
                self._active.pop(active.run.refresh_id, None)
                self._changed.notify_all()

    def _run(self, active: _ActiveRun, request: RefreshRequest) -> RefreshRun:
        pause_at(Point.BEFORE_LEASE)
        epoch = self._claim(active, wait=request.trigger not in GIVES_WAY)
        pause_at(Point.AFTER_LEASE)
        if active.canceled:
            cause = self._cause("canceled before it began")
            return self._settle(active, RunState.CANCELLED, *cause)
        if epoch is None:
            holder = self._ledger.holder(active.run.table_id, self._clock.now())
            return self._settle(active, RunState.SKIPPED, *_previous(holder))
        # The table may have changed while the request waited.
        table = self._catalog.by_id(request.table_id)
        if table is None:
            return self._settle(active, RunState.CANCELLED, Reason.TABLE_DROPPED)
        mark = table.pending
        own = isinstance(mark, RollingBack) and _asked_by(active.run.refresh_id, mark.refresh_id)
        if not own:
            refuse_half_done(table, "a refresh")
        state = table.state
        if request.trigger in GIVES_WAY and state.status is not RefreshStatus.ACTIVATED:
            text = f"the table is {state.status.value}"
            return self._settle(active, RunState.SKIPPED, Reason.TABLE_SUSPENDED, text)
        if request.trigger in GIVES_WAY and state.held is not None:
            return self._settle(active, RunState.SKIPPED, Reason.VERSION_HELD, state.held.reason)
        order = informed_order(
            table,
            request,
            self._catalog,
            self._ledger,
            self._engines,
            refresh_id=active.run.refresh_id,
            epoch=epoch,
            asked_at=active.run.queued_at,
        )
        return self._carry_out(active, run_request(table, request.task, order))

    def _claim(self, active: _ActiveRun, *, wait: bool) -> int | None:
        """Claim the lease, waiting if asked to; return its epoch, or None."""
        deadline = active.run.queued_at + self._patience
        while True:
            now = self._clock.now()
            if active.canceled:
                return None
            epoch = self._ledger.claim(
                active.run.table_id, active.keeper.owner, now, self._lease_seconds
            )
            if epoch is not None or now >= deadline:
                return epoch
            if not wait and not self._is_changing(active, now):
                return None
            with self._changed:
                # A local run notifies us when it ends; runs of other servers must be polled.
                self._changed.wait(_LOOK_FOR_LEASE)
            self._note_cancel_request(active)

    def _is_changing(self, active: _ActiveRun, now: datetime) -> bool:
        """Return whether the lease is free, or held briefly by a statement."""
        holder = self._ledger.holder(active.run.table_id, now)
        return holder is None or holder.partition("/")[2].startswith(DEFINITION_LEASE)

    def _carry_out(self, active: _ActiveRun, request: RunRequest) -> RefreshRun:
        order = request.order
        active.run = replace(
            active.run,
            state=RunState.RUNNING,
            epoch=order.epoch,
            started_at=self._clock.now(),
            definition_version=order.definition_version,
            execution_target=order.engine,
        )
        self._ledger.record(active.run)
        log.info("refresh %s of %s begins, epoch %s", order.refresh_id, order.name, order.epoch)
        record = _record(active.run, request)
        try:
            with active.keeper, self._audit.recording(record):
                answer = self._engine.call(
                    self._admit(request, record),
                    on_progress=lambda progress: self._note_waiting(active, progress.message),
                )
                pause_at(Point.BEFORE_STORE)
        except ServerError as failure:
            return self._after_failure(active, order, failure)
        outcome = answer.outcome
        run = replace(
            active.run,
            action=outcome.plan.strategy,
            partitions=outcome.plan.partitions,
            from_version=outcome.from_version,
            to_version=outcome.to_version,
            sources=dict(outcome.plan.vector),
            metrics=outcome.metrics,
            changes=outcome.plan.changes,
            rejected=outcome.plan.rejected,
            data_timestamp=outcome.data_timestamp,
            definition_version=outcome.definition_version or order.definition_version,
        )
        if outcome.sources not in (None, order.sources):
            self._catalog.note_sources(order.table_id, outcome.sources)
        if outcome.plan.strategy is not Strategy.NO_DATA:
            self._catalog.record_held_version(order.table_id, None)
        text = outcome.plan.reason_text + self._suspended_sources(order)
        active.run = self._close(run, RunState.SUCCEEDED, outcome.plan.reason_code, text)
        pause_at(Point.AFTER_STORE)
        return active.run

    def _note_waiting(self, active: _ActiveRun, message: str) -> None:
        """Record why a run does not get on, and tell those who follow it."""
        if message == (active.run.reason_text or ""):
            return
        active.run = replace(active.run, reason_text=message or None)
        try:
            self._ledger.record(active.run)
        except Exception:
            # The engine goes on, so the run must not end here.
            log.warning("the reason of a wait was not recorded", exc_info=True)
        if not message:
            return
        log.warning("refresh %s of %s: %s", active.run.refresh_id, active.run.table, message)
        with self._changed:
            followers = dict(self._followers)
        for operation_id, tell in followers.items():
            if _asked_by(active.run.refresh_id, operation_id):
                tell(f"{active.run.table}: {message}")

    def _suspended_sources(self, order: RefreshOrder) -> str:
        """Return a reason suffix for a run that read suspended tables."""
        read = (self._catalog.find(source.name) for source in order.sources)
        names = [
            str(table.name)
            for table in read
            if table is not None and table.state.status is RefreshStatus.SUSPENDED
        ]
        return f" ({Reason.UPSTREAM_SUSPENDED}: {', '.join(names)})" if names else ""

    def _after_failure(
        self, active: _ActiveRun, order: RefreshOrder, failure: ServerError
    ) -> RefreshRun:
        """Decide the outcome of a failed call, which may have committed nevertheless."""
        if failure.code == Code.MT_VERSION_HELD.name:
            return self._record_held(active, failure)
        lost = failure.code == Code.ENGINE_LOST.name
        # Fenced without losing the lease: the store is behind the table's own epoch.
        behind = failure.code == Code.MT_REFRESH_FENCED.name and not active.lease_lost
        if not lost and not behind:
            return self._record_failure(active, failure)
        try:
            answer = self._last_commit(order)
        except ServerError as unreadable:
            log.warning("the last commit of %s cannot be read: %s", order.name, unreadable)
            return (
                as_undecided(active.run, failure) if lost else self._record_failure(active, failure)
            )
        commit, held = answer.commit, answer.held
        if held is not None and lost and held.refresh_id == order.refresh_id:
            return self._record_held(active, version_held(active.run, held))
        if commit is not None and lost and commit.refresh_id == order.refresh_id:
            self._catalog.record_held_version(order.table_id, None)
            active.run = self._close(as_committed(active.run, commit), RunState.SUCCEEDED)
            return active.run
        if commit is not None and behind:
            self._ledger.raise_epoch(order.table_id, commit.epoch)
        return self._record_failure(active, failure)

    def _record_held(self, active: _ActiveRun, failure: ServerError) -> RefreshRun:
        """Record that a run's result is held, then the run's end."""
        if not active.lease_lost:
            mark = held_version(active.run, failure, self._clock.now())
            self._catalog.record_held_version(active.run.table_id, mark)
        return self._record_failure(active, failure)

    def _last_commit(self, order: RefreshOrder) -> LastCommitted:
        return self._engine.call(LastCommit(name=order.name, table_id=order.table_id))

    def _note_cancel_request(self, active: _ActiveRun) -> None:
        """Pick up a cancel request that another server stored."""
        if not active.canceled:
            active.canceled = self._ledger.is_cancel_requested(active.run.refresh_id)

    # ---- records ---------------------------------------------------------------------------

    def _queued_run(self, request: RefreshRequest) -> RefreshRun:
        table = self._catalog.by_id(request.table_id)
        if table is None:
            raise error(Code.MT_NOT_FOUND, table=request.table_id)
        refresh_id = request.refresh_id or self._new_id()
        return queued_run(table, request, refresh_id, self._clock.now(), self._server_id)

    def _record_failure(self, active: _ActiveRun, failure: ServerError) -> RefreshRun:
        end = _CLOSED_BY.get(failure.code, RunState.FAILED)
        reason: tuple[Reason | None, str | None] = (None, None)
        if active.run.state is RunState.QUEUED:
            end = RunState.CANCELLED
        elif active.lease_lost and not active.canceled:
            end, reason = RunState.ABANDONED, (Reason.LEASE_LOST, None)
        elif active.canceled or end is RunState.CANCELLED:
            end, reason = RunState.CANCELLED, self._cause(failure.message)
        active.run = self._close(with_error(active.run, failure), end, *reason)
        return active.run

    def _cause(self, text: str) -> tuple[Reason, str | None]:
        """Return why a run was canceled: by a user, or because the server stops."""
        return (Reason.SERVER_STOPPED, None) if self._stopping else (Reason.CANCELED, text)

    def _settle(
        self, active: _ActiveRun, end: RunState, code: Reason, text: str | None = None
    ) -> RefreshRun:
        active.run = self._close(active.run, end, code, text)
        return active.run

    def _close(
        self, run: RefreshRun, end: RunState, code: Reason | None = None, text: str | None = None
    ) -> RefreshRun:
        return close_run(self._ledger, run, end, self._clock.now(), code, text)


def _asked_by(refresh_id: str, operation_id: str) -> bool:
    return refresh_id == operation_id or refresh_id.startswith(f"{operation_id}.")


def _record(run: RefreshRun, request: RunRequest) -> Record:
    record = Record(
        event=Event.REFRESH,
        user=request.order.executor,
        real_user=run.requested_by,
        operation_id=run.refresh_id,
        statement_kind=run.trigger.value,
    )
    record.add("REFRESH", SecuredKind.MATERIALIZED_TABLE.value, run.table)
    return record


def _previous(holder: str | None) -> tuple[Reason, str]:
    by = f" ({holder})" if holder else ""
    return Reason.PREVIOUS_RUNNING, f"{Reason.PREVIOUS_RUNNING.meaning}{by}"
