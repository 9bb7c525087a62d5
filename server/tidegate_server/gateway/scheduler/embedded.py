"""The workflow scheduler inside the gateway."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

from tidegate_server.core.config_sections import SchedulerSection
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.clock import Clock
from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.refresh.request import RefreshRequest
from tidegate_server.gateway.scheduler.base import (
    CreateWorkflow,
    DeleteWorkflow,
    Ledger,
    ModifyWorkflow,
    RunRefresh,
    Workflow,
)
from tidegate_server.gateway.scheduler.continuous import ContinuousWatcher, Tables
from tidegate_server.gateway.scheduler.cron import next_fire
from tidegate_server.gateway.scheduler.fire_queue import Fire
from tidegate_server.gateway.scheduler.firing import FireProcessor, SkipRefresh, Suspended
from tidegate_server.gateway.scheduler.workflows import WorkflowStore
from tidegate_server.gateway.store.database import Database

logger = logging.getLogger(__name__)

_FORGET_INTERVAL = 3600.0


class EmbeddedScheduler:
    """Fires due workflows and starts refreshes of changed tables, a bounded number at a time.

    A fire is acquired only when it can start immediately, so fires that have to wait stay in the
    store and survive a crash.
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
        server_id: str = "server",
        executor: Executor | None = None,
        arms: bool = True,
        suspended: Suspended = lambda table, reason: None,
    ) -> None:
        """Create the scheduler.

        :param options: the server's defaults of the tables' options.
        :param server_id: the name under which this server acquires fires.
        :param executor: replaces the threads that run refreshes.
        :param arms: whether workflows fire here; False if an external scheduler fires them.
        :param suspended: called for each table that is suspended after too many failures.
        """
        self._arms = arms
        self._workflows = WorkflowStore(database)
        self._fires = FireProcessor(
            database=database,
            ledger=ledger,
            tables=tables,
            skip_refresh=skip_refresh,
            options=options or {},
            owner=server_id,
            lease=config.lease,
            clock=clock,
            suspended=suspended,
            newest=watcher.newest_versions,
        )
        self._ledger = ledger
        self._run_refresh = run_refresh
        self._watcher = watcher
        self._config = config
        self._clock = clock
        self._executor = executor or ThreadPoolExecutor(config.max_concurrent, "refresh")
        self._lock = threading.Lock()
        self._running: set[str] = set()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    # ---- requests --------------------------------------------------------------------------

    def open(self) -> None:
        if self._arms:
            self._arm_all()
        # Separate threads, so that slow polling of the sources delays no fire.
        self._start("scheduler", self.fire_due, self._config.poll_interval)
        self._start("watcher", self.refresh_changed, self._config.poll_interval)
        self._start("history", self.forget_old_runs, _FORGET_INTERVAL)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._executor.shutdown(wait=True)

    def create(self, request: CreateWorkflow) -> None:
        self._workflows.add(self._arm(request.workflow))

    def modify(self, request: ModifyWorkflow) -> None:
        wanted = request.workflow
        stored = self._workflows.find(wanted.table_id)
        if stored is not None:
            fire = stored.next_fire if self._arms else None
            if replace(wanted, next_fire=fire) == stored:
                return
        self._workflows.replace(self._arm(wanted))
        if not wanted.active:
            self._fires.drop_waiting(wanted.table_id)

    def delete(self, request: DeleteWorkflow) -> None:
        self._workflows.remove(request.table_id)
        self._fires.drop_waiting(request.table_id)

    def workflow(self, table_id: str) -> Workflow | None:
        return self._workflows.find(table_id)

    def scheduled_workflows(self) -> tuple[Workflow, ...]:
        """Return the workflows that have a schedule."""
        return self._workflows.scheduled_workflows()

    def load(self, now: datetime) -> tuple[int, int]:
        """Return how many refreshes are running here, and how many due workflows are waiting."""
        with self._lock:
            running = len(self._running)
        return running, len(self._workflows.due(now))

    # ---- polling ---------------------------------------------------------------------------

    def tick(self, now: datetime) -> None:
        """Poll once for due workflows, then for changed sources."""
        self.fire_due(now)
        self.refresh_changed(now)

    def fire_due(self, now: datetime) -> None:
        """Start due workflows, or record that they cannot run."""
        self._fires.collect_due(now, self._is_running)
        for fire in self._fires.ready(now):
            self._start_fire(fire, now)

    def refresh_changed(self, now: datetime) -> None:
        """Refresh the tables whose sources changed."""
        for request in self._watcher.due(now):
            if self._ledger.holder(request.table_id, now) is not None:
                # Being refreshed by another server or manually; it stays due if that is not enough.
                continue
            if self._take_slot(request.table_id):
                self._watcher.record_start(request.table_id, now)
                self._executor.submit(self._run_changed, request)

    def forget_old_runs(self, now: datetime) -> None:
        """Delete records of refreshes that are older than the configured retention."""
        count = self._ledger.forget(now - timedelta(days=self._config.history_days))
        if count:
            logger.info("deleted %s old refresh runs", count)

    def _start_fire(self, fire: Fire, now: datetime) -> None:
        if not self._take_slot(fire.table_id):
            return
        claimed = None
        try:
            claimed = self._fires.acquire(fire, now)
            if claimed is not None:
                self._executor.submit(self._run_fire, *claimed)
        finally:
            if claimed is None:
                self._free_slot(fire.table_id)

    # ---- running ---------------------------------------------------------------------------

    def _run_fire(self, fire: Fire, request: RefreshRequest) -> None:
        self._fires.record_end(fire, self._run(request))

    def _run_changed(self, request: RefreshRequest) -> None:
        run: RefreshRun | None = None
        try:
            run = self._run(request)
        finally:
            self._watcher.record_end(request.table_id, run, self._clock.now())
        if run is not None:
            self._fires.count_failures(run)

    def _run(self, request: RefreshRequest) -> RefreshRun | None:
        try:
            return self._run_refresh(request)
        except Exception:
            # The last frame of a worker thread: an exception that escapes here would be lost.
            logger.exception("refresh of table %s could not be run", request.table_id)
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

    def _start(self, name: str, task: Callable[[datetime], object], pause: float) -> None:
        thread = threading.Thread(target=self._repeat, args=(task, pause), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _repeat(self, task: Callable[[datetime], object], pause: float) -> None:
        failing = ""
        while not self._stop.wait(pause):
            try:
                task(self._clock.now())
                failing = ""
            except ServerError as error:
                # The task runs twice a second: log each reason only once.
                if error.code != failing:
                    logger.warning("a task of the scheduler failed: %s", error)
                failing = error.code
            except Exception:
                # A failure must not end the thread.
                logger.exception("a task of the scheduler failed")

    def _arm_all(self) -> None:
        """Arm the workflows that an external scheduler fired until this server started."""
        for workflow in self._workflows.scheduled_workflows():
            if not workflow.active or workflow.next_fire is not None:
                continue
            try:
                self._workflows.replace(self._arm(workflow))
            except ServerError as error:
                logger.warning("the workflow of table %s cannot fire: %s", workflow.table_id, error)

    def _arm(self, workflow: Workflow) -> Workflow:
        """Return the workflow with its next fire, which only the scheduler sets."""
        if workflow.cron is None or not workflow.active or not self._arms:
            return replace(workflow, next_fire=None)
        fire = next_fire(workflow.cron, workflow.timezone, self._clock.now())
        return replace(workflow, next_fire=fire)
