"""Processing of fires: they run, are skipped, retried or given up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.model.clock import Clock
from tidegate_server.core.model.freshness import parse_duration
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import RefreshRun, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.versions import PartitionSpec, SourceVector
from tidegate_server.core.refresh.request import Recompute, RefreshRequest
from tidegate_server.gateway.freshness.retries import (
    DEFAULT_RETRIES,
    DEFAULT_SUSPEND_AFTER,
    RETRIES_OPTION,
    SUSPEND_OPTION,
    counts_as_failure,
    interrupted,
    retries_left,
    retry_pause,
    suspension_reason,
    whole_number,
)
from tidegate_server.gateway.scheduler.base import Ledger, Workflow
from tidegate_server.gateway.scheduler.continuous import Tables
from tidegate_server.gateway.scheduler.fire_queue import Fire, FireQueue
from tidegate_server.gateway.scheduler.misfires import (
    JITTER_OPTION,
    MISFIRE_OPTION,
    PAST_RUNS,
    DueFires,
    Misfire,
    due_fires,
    jitter,
    partitions_of_fire,
    read_misfire,
)
from tidegate_server.gateway.scheduler.workflows import Option, WorkflowStore, table_option
from tidegate_server.gateway.store.database import Database

logger = logging.getLogger(__name__)


SkipRefresh = Callable[[RefreshRequest, Reason, str], RefreshRun]
"""Records a fire that does not run: the request, the reason's code and its text."""

Suspended = Callable[[MaterializedTable, str], None]
"""Called with a table that was suspended because it keeps failing, and the reason."""

Newest = Callable[[MaterializedTable], SourceVector | None]
"""Returns the current versions of a table's sources; None if they are not known."""

_RECENT_RUNS = 50
"""Number of recent runs in which those of a fire are searched for."""
_MOST_WAITING = 100
"""Waiting fires of one table up to which further missed ones are enqueued."""


class FireProcessor:
    """Enqueues the fires of due workflows, and hands out those that can run.

    A fire stays in the queue until it is completed: if its server dies, another server, or the same
    one after a restart, acquires it again.
    """

    def __init__(
        self,
        *,
        database: Database,
        ledger: Ledger,
        tables: Tables,
        skip_refresh: SkipRefresh,
        options: Mapping[str, str],
        owner: str,
        lease: float,
        clock: Clock,
        suspended: Suspended = lambda table, reason: None,
        newest: Newest = lambda table: None,
    ) -> None:
        self._newest = newest
        self._workflows = WorkflowStore(database)
        self._queue = FireQueue(database)
        self._ledger = ledger
        self._tables = tables
        self._skip_refresh = skip_refresh
        self._options = options
        self._owner = owner
        self._lease = lease
        self._clock = clock
        self._suspended = suspended
        self._extended: datetime | None = None

    # ---- enqueuing -------------------------------------------------------------------------

    def collect_due(self, now: datetime, busy: Callable[[str], bool]) -> None:
        """Enqueue due fires; a fire is skipped while a refresh of its table is running here."""
        for workflow in self._workflows.due(now):
            try:
                self._collect(workflow, now, busy(workflow.table_id))
            except ServerError as error:
                logger.exception("workflow of table %s cannot fire", workflow.table_id)
                if error.code == Code.MT_OPTION_VALUE.name:
                    # Its schedule is invalid and will remain so.
                    self._give_up(workflow.table_id, error)

    def _give_up(self, table_id: str, error: ServerError) -> None:
        table = self._tables.by_id(table_id)
        if table is not None and table.state.status is RefreshStatus.ACTIVATED:
            self._suspend(table, error.message)
        else:
            self._workflows.deactivate(table_id)

    def _collect(self, workflow: Workflow, now: datetime, busy: bool) -> None:
        table = self._tables.by_id(workflow.table_id)
        if workflow.cron is None or workflow.next_fire is None:
            return
        misfire, until = Misfire.ONCE, now
        if table is not None:
            option = table_option(table, self._options)
            misfire = read_misfire(option(MISFIRE_OPTION))
            until = now - self._jitter(table, option)
        if workflow.next_fire > until:
            return
        every = misfire is Misfire.ALL
        if every and self._queue.count(workflow.table_id) >= _MOST_WAITING:
            return
        schedule, zone = workflow.cron, workflow.timezone
        due = due_fires(schedule, zone, workflow.next_fire, until, misfire)
        active = table is not None and table.state.status is RefreshStatus.ACTIVATED
        held = table is not None and table.state.held is not None
        run = due.run if active and not held and (every or not busy) else ()
        fires = [
            Fire(table_id=workflow.table_id, schedule_time=moment, due_at=now) for moment in run
        ]
        taken = self._queue.advance(workflow, due.following, fires, supersede=not every)
        if taken and active and table is not None and not fires:
            self._skip(table, due)

    def _skip(self, table: MaterializedTable, due: DueFires) -> None:
        if table.state.held is not None:
            moment = due.missed or due.run[-1]
            self._skip_refresh(
                _scheduled_request(table, moment), Reason.VERSION_HELD, table.state.held.reason
            )
        elif due.missed is not None:
            text = "it was missed by more than a minute, and the misfire policy is SKIP"
            self._skip_refresh(_scheduled_request(table, due.missed), Reason.MISFIRED, text)
        else:
            request = _scheduled_request(table, due.run[-1])
            self._skip_refresh(request, Reason.PREVIOUS_RUNNING, Reason.PREVIOUS_RUNNING.meaning)

    @staticmethod
    def _jitter(table: MaterializedTable, option: Option) -> timedelta:
        most = parse_duration(option(JITTER_OPTION) or "")
        return jitter(table.id, most.duration) if most is not None else timedelta()

    # ---- acquiring -------------------------------------------------------------------------

    def ready(self, now: datetime) -> tuple[Fire, ...]:
        """Return the fires that can be acquired, and renew the claims of this server."""
        if self._extended is None or now >= self._extended + timedelta(seconds=self._lease / 3):
            self._queue.extend(self._owner, now, self._lease)
            self._extended = now
        return self._queue.ready(now)

    def acquire(self, fire: Fire, now: datetime) -> tuple[Fire, RefreshRequest] | None:
        """Acquire a fire and return it with its request; None if there is nothing to run."""
        table = self._tables.by_id(fire.table_id)
        if table is None or not table.state.kept_fresh:
            self._queue.remove(fire)
            return None
        misfire = read_misfire(table_option(table, self._options)(MISFIRE_OPTION))
        if misfire is Misfire.ALL and self._ledger.holder(table.id, now) is not None:
            # No fire is skipped, so it waits until the refresh that holds the lease has ended.
            return None
        attempt = fire.attempt if fire.owner is None else self._attempt_after_crash(fire, table)
        if attempt is None:
            return None
        if not self._queue.acquire(fire, attempt, self._owner, now, self._lease):
            return None
        fire = replace(fire, attempt=attempt, owner=self._owner)
        try:
            partitions = self._partitions(table, fire.schedule_time)
        except ServerError:
            # The options can be corrected; until then each fire logs this once.
            logger.exception("the partitions of %s at %s are not known", table.name, fire)
            self._queue.remove(fire)
            return None
        request = _scheduled_request(table, fire.schedule_time)
        return fire, replace(request, task=Recompute(partitions=partitions), attempt=attempt)

    def _attempt_after_crash(self, fire: Fire, table: MaterializedTable) -> int | None:
        """Return the number of the next attempt after a server died; None if there is none yet."""
        runs = [
            run
            for run in self._ledger.runs(fire.table_id, limit=_RECENT_RUNS)
            if run.schedule_time == fire.schedule_time and run.trigger is Trigger.SCHEDULED
        ]
        if not runs:
            return fire.attempt
        latest = runs[0]
        if latest.state in (RunState.QUEUED, RunState.RUNNING):
            # Recovery has to determine the outcome first.
            return None
        lost = latest.state is RunState.FAILED or interrupted(latest)
        if lost and latest.attempt <= max(1, self._retries(table)):
            return latest.attempt + 1
        self._queue.remove(fire)
        return None

    def _partitions(self, table: MaterializedTable, fire: datetime) -> tuple[PartitionSpec, ...]:
        workflow = self._workflows.find(table.id)
        if workflow is None:
            return ()
        return partitions_of_fire(
            table.definition,
            fire,
            freshness=timedelta(seconds=workflow.freshness_seconds),
            timezone=workflow.timezone,
            option=table_option(table, self._options),
            past=lambda: self._ledger.runs(table.id, limit=PAST_RUNS),
            newest=lambda: self._newest(table),
        )

    # ---- outcomes --------------------------------------------------------------------------

    def record_end(self, fire: Fire, run: RefreshRun | None) -> None:
        """Retry or complete a fire; ``run`` is None if not even its record could be stored."""
        table = self._tables.by_id(fire.table_id)
        if run is not None and run.state is RunState.CANCELLED and interrupted(run):
            # This server is shutting down; the next one continues.
            self._queue.retry(fire, self._clock.now())
            return
        if run is not None and table is not None and self._should_retry(table, run):
            self._queue.retry(fire, self._clock.now() + retry_pause(run.attempt))
            logger.info("refresh of %s will be retried: %s", table.name, run.error_message)
            return
        self._queue.remove(fire)
        if run is not None:
            self.count_failures(run)

    def count_failures(self, run: RefreshRun) -> None:
        """Count failures in a row and suspend a table that has too many of them."""
        if run.state is RunState.SUCCEEDED:
            self._queue.clear_failures(run.table_id)
        if not counts_as_failure(run):
            return
        if self._succeeded_since(run):
            self._queue.clear_failures(run.table_id)
        failures = self._queue.count_failure(run.table_id)
        table = self._tables.by_id(run.table_id)
        if table is None:
            return
        option = table_option(table, self._options)
        limit = whole_number(option(SUSPEND_OPTION), DEFAULT_SUSPEND_AFTER)
        if 0 < limit <= failures:
            self._suspend(table, suspension_reason(failures, run))

    def drop_waiting(self, table_id: str) -> None:
        """Remove a table's waiting fires."""
        self._queue.drop_unclaimed(table_id)

    def _should_retry(self, table: MaterializedTable, run: RefreshRun) -> bool:
        active = table.state.status is RefreshStatus.ACTIVATED
        return active and retries_left(run, self._retries(table))

    def _succeeded_since(self, failed: RefreshRun) -> bool:
        """Return whether a run of any trigger succeeded since the previous failure."""
        for run in self._ledger.runs(failed.table_id, limit=_RECENT_RUNS):
            if run.state is RunState.SUCCEEDED:
                return True
            same = run.refresh_id == failed.refresh_id or (
                run.schedule_time is not None and run.schedule_time == failed.schedule_time
            )
            if counts_as_failure(run) and not same and run.trigger is failed.trigger:
                return False
        return False

    def _suspend(self, table: MaterializedTable, reason: str) -> None:
        start, end = RefreshStatus.ACTIVATED, RefreshStatus.SUSPENDED
        if not self._tables.move(table.id, start, end, reason):
            return
        logger.warning("%s is suspended: %s", table.name, reason)
        self._workflows.deactivate(table.id)
        self._queue.drop_unclaimed(table.id)
        self._suspended(table, reason)

    def _retries(self, table: MaterializedTable) -> int:
        option = table_option(table, self._options)
        return whole_number(option(RETRIES_OPTION), DEFAULT_RETRIES)


def _scheduled_request(table: MaterializedTable, moment: datetime) -> RefreshRequest:
    return RefreshRequest(
        table_id=table.id,
        trigger=Trigger.SCHEDULED,
        requested_by=table.owner,
        schedule_time=moment,
    )
