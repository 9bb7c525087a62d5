"""The workflow scheduler inside the gateway."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

from tidegate_server.config import SchedulerSection
from tidegate_server.errors import ServerError
from tidegate_server.model.clock import Clock
from tidegate_server.model.runs import RefreshRun, Trigger
from tidegate_server.model.states import RefreshStatus, RunState
from tidegate_server.model.table import MaterializedTable
from tidegate_server.model.versions import PartitionSpec
from tidegate_server.refresh.request import RefreshRequest
from tidegate_server.scheduler.base import (
    CreateWorkflow,
    DeleteWorkflow,
    Ledger,
    ModifyWorkflow,
    RunRefresh,
    Workflow,
)
from tidegate_server.scheduler.continuous import ContinuousWatcher, Tables
from tidegate_server.scheduler.cron import last_fire, next_fire, read_timezone
from tidegate_server.scheduler.partitions import (
    POLICY_OPTION,
    PastRefresh,
    read_policy,
    scheduled_partitions,
)
from tidegate_server.scheduler.workflows import WorkflowStore
from tidegate_server.store.database import Database

log = logging.getLogger(__name__)

SkipRefresh = Callable[[RefreshRequest], RefreshRun]
"""Records a fire that does not run since the table's previous refresh still does."""

_PAST_RUNS = 1000
_FORGET_INTERVAL = 3600.0


class EmbeddedScheduler:
    """Fires due workflows and starts refreshes of changed tables, a bounded number at a time.

    A fire is claimed in the store only when it can start at once, so whatever has to wait stays
    due there and survives a crash. Several missed fires become one, the latest (misfire ONCE).
    """

    def __init__(
        self,
        *,
        database: Database,
        ledger: Ledger,
        tables: Tables,
        run_refresh: RunRefresh,
        skip_refresh: SkipRefresh,
        watcher: ContinuousWatcher,
        config: SchedulerSection,
        clock: Clock,
        options: Mapping[str, str] | None = None,
        executor: Executor | None = None,
    ) -> None:
        """Take the parts; ``options`` are the server-wide defaults of the tables' options.

        ``executor`` replaces the threads that run refreshes.
        """
        self._workflows = WorkflowStore(database)
        self._ledger = ledger
        self._tables = tables
        self._run_refresh = run_refresh
        self._skip_refresh = skip_refresh
        self._watcher = watcher
        self._config = config
        self._clock = clock
        self._options = options or {}
        self._executor = executor or ThreadPoolExecutor(config.max_concurrent, "refresh")
        self._lock = threading.Lock()
        self._running: set[str] = set()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    # ---- requests --------------------------------------------------------------------------

    def open(self) -> None:
        # Threads of their own, so that a slow look at the sources holds no fire back.
        self._start("scheduler", self.fire_due, self._config.poll_interval)
        self._start("watcher", self.refresh_changed, self._config.poll_interval)
        self._start("history", self.forget_old_runs, _FORGET_INTERVAL)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._executor.shutdown(wait=True)

    def create(self, request: CreateWorkflow) -> None:
        self._workflows.add(self._armed(request.workflow))

    def modify(self, request: ModifyWorkflow) -> None:
        wanted = request.workflow
        stored = self._workflows.find(wanted.table_id)
        if stored is not None and replace(wanted, next_fire=stored.next_fire) == stored:
            return
        self._workflows.replace(self._armed(wanted))

    def delete(self, request: DeleteWorkflow) -> None:
        self._workflows.remove(request.table_id)

    def workflow(self, table_id: str) -> Workflow | None:
        return self._workflows.find(table_id)

    # ---- the looks -------------------------------------------------------------------------

    def tick(self, now: datetime) -> None:
        """Look once for due workflows, then for changed sources."""
        self.fire_due(now)
        self.refresh_changed(now)

    def fire_due(self, now: datetime) -> None:
        """Start what is due, or record that it cannot run."""
        for workflow in self._workflows.due(now):
            self._fire(workflow, now)

    def refresh_changed(self, now: datetime) -> None:
        """Start the refreshes whose sources changed."""
        for request in self._watcher.due(now):
            if self._take_slot(request.table_id):
                self._watcher.started(request.table_id, now)
                self._executor.submit(self._run_changed, request)

    def forget_old_runs(self, now: datetime) -> None:
        """Delete the records of refreshes older than the configuration wants."""
        count = self._ledger.forget(now - timedelta(days=self._config.history_days))
        if count:
            log.info("%s old refresh runs were deleted", count)

    def _fire(self, workflow: Workflow, now: datetime) -> None:
        if workflow.cron is None:
            return
        busy = self._is_running(workflow.table_id)
        if not busy and not self._take_slot(workflow.table_id):
            return
        started = False
        try:
            following = next_fire(workflow.cron, workflow.timezone, now)
            request = self._scheduled(workflow, last_fire(workflow.cron, workflow.timezone, now))
            if not self._workflows.claim(workflow, following) or request is None:
                return
            if busy:
                self._skip_refresh(request)
            else:
                self._executor.submit(self._run, request)
                started = True
        except ServerError:
            log.exception("workflow of table %s cannot fire", workflow.table_id)
        finally:
            if not busy and not started:
                self._free_slot(workflow.table_id)

    def _scheduled(self, workflow: Workflow, fire: datetime) -> RefreshRequest | None:
        """Return the request of a fire, or None when its table does not take any."""
        table = self._tables.by_id(workflow.table_id)
        if table is None or table.refresh_status is not RefreshStatus.ACTIVATED:
            return None
        try:
            partitions = self._partitions(table, workflow, fire)
        except ServerError:
            # The options can be mended; until then each fire says so once instead of each look.
            log.exception("the partitions of %s at %s are not known", table.name, fire)
            return None
        return RefreshRequest(
            table_id=table.id,
            trigger=Trigger.SCHEDULED,
            requested_by=table.owner,
            schedule_time=fire,
            partitions=partitions,
        )

    def _partitions(
        self, table: MaterializedTable, workflow: Workflow, fire: datetime
    ) -> tuple[PartitionSpec, ...]:
        formatters = table.date_formatters()
        if not formatters:
            return ()
        return scheduled_partitions(
            formatters,
            timedelta(seconds=workflow.freshness_seconds),
            fire,
            read_timezone(workflow.timezone),
            read_policy(self._option(table, POLICY_OPTION)),
            self._past(table),
        )

    def _past(self, table: MaterializedTable) -> tuple[PastRefresh, ...]:
        return tuple(
            PastRefresh(
                read_at=run.started_at,
                schedule_time=run.schedule_time if run.trigger is Trigger.SCHEDULED else None,
                partitions=run.partitions,
            )
            for run in self._ledger.runs(table.id, limit=_PAST_RUNS)
            if run.state is RunState.SUCCEEDED and run.started_at is not None
        )

    def _option(self, table: MaterializedTable, key: str) -> str | None:
        for layer in (table.options, table.settings, self._options):
            if key in layer:
                return layer[key]
        return None

    # ---- running ---------------------------------------------------------------------------

    def _run_changed(self, request: RefreshRequest) -> None:
        run: RefreshRun | None = None
        try:
            run = self._run(request)
        finally:
            self._watcher.finished(request.table_id, run, self._clock.now())

    def _run(self, request: RefreshRequest) -> RefreshRun | None:
        try:
            return self._run_refresh(request)
        except Exception:
            # The last frame of a worker thread: what escapes here would be seen by nobody.
            log.exception("refresh of table %s could not be run", request.table_id)
            return None
        finally:
            self._free_slot(request.table_id)

    def _take_slot(self, table_id: str) -> bool:
        with self._lock:
            full = len(self._running) >= self._config.max_concurrent
            if full or table_id in self._running:
                return False
            self._running.add(table_id)
            return True

    def _free_slot(self, table_id: str) -> None:
        with self._lock:
            self._running.discard(table_id)

    def _is_running(self, table_id: str) -> bool:
        with self._lock:
            return table_id in self._running

    def _start(self, name: str, look: Callable[[datetime], object], pause: float) -> None:
        thread = threading.Thread(target=self._repeat, args=(look, pause), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _repeat(self, look: Callable[[datetime], object], pause: float) -> None:
        while not self._stop.wait(pause):
            try:
                look(self._clock.now())
            except Exception:
                # One failed look (a locked database, say) must not end all later ones.
                log.exception("the scheduler's look failed")

    def _armed(self, workflow: Workflow) -> Workflow:
        """Return the workflow with its next fire, which is the scheduler's own to set."""
        if workflow.cron is None or not workflow.active:
            return replace(workflow, next_fire=None)
        fire = next_fire(workflow.cron, workflow.timezone, self._clock.now())
        return replace(workflow, next_fire=fire)
