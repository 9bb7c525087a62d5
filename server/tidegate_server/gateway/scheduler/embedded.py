"""The workflow scheduler inside the gateway."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

from tidegate_server.core.config import SchedulerSection
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

log = logging.getLogger(__name__)

_FORGET_INTERVAL = 3600.0


class EmbeddedScheduler:
    """Fires due workflows and starts refreshes of changed tables, a bounded number at a time.

    A fire is claimed in the store only when it can start at once, so whatever has to wait stays
    there and survives a crash.
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
        """Take the parts; ``options`` are the server-wide defaults of the tables' options.

        ``server_id`` is under whose name fires are claimed. ``executor`` replaces the threads
        that run refreshes. Without ``arms`` another scheduler fires what is created here.
        ``suspended`` is told of tables that failed too often.
        """
        self._arms = arms
        self._workflows = WorkflowStore(database)
        self._firing = FireProcessor(
            database=database,
            ledger=ledger,
            tables=tables,
            skip_refresh=skip_refresh,
            options=options or {},
            owner=server_id,
            lease=config.lease,
            clock=clock,
            suspended=suspended,
            newest=watcher.newest,
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
        if stored is not None:
            fire = stored.next_fire if self._arms else None
            if replace(wanted, next_fire=fire) == stored:
                return
        self._workflows.replace(self._armed(wanted))
        if not wanted.active:
            self._firing.drop(wanted.table_id)

    def delete(self, request: DeleteWorkflow) -> None:
        self._workflows.remove(request.table_id)
        self._firing.drop(request.table_id)

    def workflow(self, table_id: str) -> Workflow | None:
        return self._workflows.find(table_id)

    def scheduled(self) -> tuple[Workflow, ...]:
        """Return the workflows that have a schedule."""
        return self._workflows.scheduled()

    def load(self, now: datetime) -> tuple[int, int]:
        """Return how many refreshes run here, and how many workflows are due and wait."""
        with self._lock:
            running = len(self._running)
        return running, len(self._workflows.due(now))

    # ---- the looks -------------------------------------------------------------------------

    def tick(self, now: datetime) -> None:
        """Look once for due workflows, then for changed sources."""
        self.fire_due(now)
        self.refresh_changed(now)

    def fire_due(self, now: datetime) -> None:
        """Start what is due, or record that it cannot run."""
        self._firing.look(now, self._is_running)
        for fire in self._firing.ready(now):
            self._start_fire(fire, now)

    def refresh_changed(self, now: datetime) -> None:
        """Start the refreshes whose sources changed."""
        for request in self._watcher.due(now):
            if self._ledger.holder(request.table_id, now) is not None:
                # Refreshed by hand or by another server; if that was not enough it stays due.
                continue
            if self._take_slot(request.table_id):
                self._watcher.started(request.table_id, now)
                self._executor.submit(self._run_changed, request)

    def forget_old_runs(self, now: datetime) -> None:
        """Delete the records of refreshes older than the configuration wants."""
        count = self._ledger.forget(now - timedelta(days=self._config.history_days))
        if count:
            log.info("%s old refresh runs were deleted", count)

    def _start_fire(self, fire: Fire, now: datetime) -> None:
        if not self._take_slot(fire.table_id):
            return
        claimed = None
        try:
            claimed = self._firing.claim(fire, now)
            if claimed is not None:
                self._executor.submit(self._run_fire, *claimed)
        finally:
            if claimed is None:
                self._free_slot(fire.table_id)

    # ---- running ---------------------------------------------------------------------------

    def _run_fire(self, fire: Fire, request: RefreshRequest) -> None:
        self._firing.ended(fire, self._run(request))

    def _run_changed(self, request: RefreshRequest) -> None:
        run: RefreshRun | None = None
        try:
            run = self._run(request)
        finally:
            self._watcher.finished(request.table_id, run, self._clock.now())
        if run is not None:
            self._firing.judge(run)

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
        failing = ""
        while not self._stop.wait(pause):
            try:
                look(self._clock.now())
                failing = ""
            except ServerError as problem:
                # Looks follow each other twice a second: the log gets each reason once.
                if problem.code != failing:
                    log.warning("the scheduler's look failed: %s", problem)
                failing = problem.code
            except Exception:
                # One failed look must not end all later ones.
                log.exception("the scheduler's look failed")

    def _arm_all(self) -> None:
        """Take up what another scheduler fired until this server came."""
        for workflow in self._workflows.scheduled():
            if not workflow.active or workflow.next_fire is not None:
                continue
            try:
                self._workflows.replace(self._armed(workflow))
            except ServerError as problem:
                log.warning("the workflow of table %s cannot fire: %s", workflow.table_id, problem)

    def _armed(self, workflow: Workflow) -> Workflow:
        """Return the workflow with its next fire, which is the scheduler's own to set."""
        if workflow.cron is None or not workflow.active or not self._arms:
            return replace(workflow, next_fire=None)
        fire = next_fire(workflow.cron, workflow.timezone, self._clock.now())
        return replace(workflow, next_fire=fire)
