"""A runner of refreshes over an engine and a scheduler made of plain Python."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.contract.examples import NOON, run, table
from tests.gateway.scheduler.fakes import FakeClock
from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.answers import Answer, Done, LastCommitted, Progress, Refreshed
from tidegate_server.core.messages.requests import (
    Cancel,
    ChunkTicket,
    DropTable,
    LastCommit,
    PublishHeld,
    Refresh,
    Request,
)
from tidegate_server.core.model.runs import RefreshRun, RunMetrics, Strategy, Trigger
from tidegate_server.core.model.states import RunState
from tidegate_server.core.refresh.request import (
    CommittedRefresh,
    RefreshOrder,
    RefreshOutcome,
    RefreshPlan,
    RefreshRequest,
)
from tidegate_server.gateway.catalog.memory import MemoryCatalog
from tidegate_server.gateway.recovery.runs import Recovery
from tidegate_server.gateway.runs.runner import Refresher
from tidegate_server.gateway.scheduler.base import (
    CreateWorkflow,
    DeleteWorkflow,
    ModifyWorkflow,
    Workflow,
)
from tidegate_server.gateway.scheduler.ledger import SqlLedger
from tidegate_server.gateway.store.database import Database

OUTCOME = RefreshOutcome(
    plan=RefreshPlan(
        strategy=Strategy.FULL,
        reason_code="SOURCES_CHANGED",
        reason_text="sources have newer versions",
        vector={"delta-ev": 5},
    ),
    from_version=3,
    to_version=4,
    metrics=RunMetrics(rows_written=10),
)
PATIENT = 10.0


class FakeEngine:
    """Answers refreshes with what a test sets and records its requests."""

    def __init__(self) -> None:
        self.orders: list[RefreshOrder] = []
        self.cancels: list[str] = []
        self.dropped: list[str] = []
        self.commit: CommittedRefresh | None = None
        self.held: CommittedRefresh | None = None
        self.exists = True
        self.down = False
        self.requests: list[Request] = []
        self.work: Callable[[RefreshOrder], RefreshOutcome] = lambda order: OUTCOME
        self.cancel_seen = threading.Event()
        self.report: Callable[[str], None] = lambda message: None
        """Reports progress with a message to whoever has asked for the running request."""

    generation = 1
    ready = True

    def call(
        self,
        request: Request,
        *,
        on_progress: Callable[[Progress], None] | None = None,
        wait: float | None = None,
    ) -> Answer:
        if self.down:
            raise error(Code.ENGINE_UNAVAILABLE, reason="it is down")
        match request:
            case Refresh() | PublishHeld():
                self.requests.append(request)
                self.orders.append(request.order)
                self.report = lambda message: _report(message, on_progress)
                return Refreshed(outcome=self.work(request.order))
            case Cancel(operation_id=operation_id):
                self.cancels.append(operation_id)
                self.cancel_seen.set()
                return Done()
            case DropTable(table_id=table_id):
                self.dropped.append(table_id)
                return Done()
            case LastCommit():
                return LastCommitted(commit=self.commit, exists=self.exists, held=self.held)
        raise AssertionError(f"unexpected {request}")

    def read(self, ticket: ChunkTicket) -> Iterator[pa.RecordBatch]:
        raise AssertionError(f"unexpected {ticket}")


def _report(message: str, on_progress: Callable[[Progress], None] | None) -> None:
    if on_progress is not None:
        none_done = Progress(
            stages_done=0, stages_total=1, tasks_done=0, tasks_running=0, tasks_total=1
        )
        on_progress(replace(none_done, message=message))


class FakeScheduler:
    """Keeps workflows in a dictionary and never fires."""

    def __init__(self) -> None:
        self.workflows: dict[str, Workflow] = {}

    def open(self) -> None: ...

    def close(self) -> None: ...

    def create(self, request: CreateWorkflow) -> None:
        self.workflows[request.workflow.table_id] = request.workflow

    def modify(self, request: ModifyWorkflow) -> None:
        self.workflows[request.workflow.table_id] = request.workflow

    def delete(self, request: DeleteWorkflow) -> None:
        self.workflows.pop(request.table_id, None)

    def workflow(self, table_id: str) -> Workflow | None:
        return self.workflows.get(table_id)


class World:
    def __init__(self, path: Path) -> None:
        self.database = Database(f"sqlite:///{path / 'store.db'}")
        self.database.open()
        self.ledger = SqlLedger(self.database)
        self.catalog = MemoryCatalog()
        self.catalog.create(table())
        self.engine = FakeEngine()
        self.clock = FakeClock()
        self.scheduler = FakeScheduler()
        self.refresher = self.server("server-1")

    def server(self, server_id: str, database: Database | None = None, **changes: Any) -> Refresher:
        numbers = itertools.count(1)
        return Refresher(
            **{
                "catalog": self.catalog,
                "ledger": SqlLedger(database or self.database),
                "engine": self.engine,
                "clock": self.clock,
                "new_id": lambda: f"{server_id}-run-{next(numbers)}",
                "server_id": server_id,
                "lease_seconds": 30.0,
                **changes,
            }
        )

    def recovery(self, refresher: Refresher | None = None, **changes: Any) -> Recovery:
        return Recovery(
            **{
                "catalog": self.catalog,
                "ledger": self.ledger,
                "engine": self.engine,
                "refresher": refresher or self.refresher,
                "scheduler": self.scheduler,
                "server_id": "server-2",
                "shared": False,
                **changes,
            }
        )

    def states(self) -> list[RunState]:
        return [r.state for r in self.ledger.runs()]


def request(trigger: Trigger = Trigger.MANUAL, **changes: Any) -> RefreshRequest:
    return RefreshRequest(
        **{"table_id": "t-1", "trigger": trigger, "requested_by": "ana", **changes}
    )


def commit(refresh_id: str, **changes: Any) -> CommittedRefresh:
    values: dict[str, Any] = {
        "epoch": 1,
        "version": 8,
        "definition_version": 1,
        "vector": {"delta-ev": 7},
        "refresh_id": refresh_id,
        **changes,
    }
    return CommittedRefresh(**values)


def failing_with(failure: Exception) -> Callable[[RefreshOrder], RefreshOutcome]:
    def work(order: RefreshOrder) -> RefreshOutcome:
        raise failure

    return work


class Gate:
    """Work that waits until a test opens the gate."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.inside = 0
        self.most = 0
        self._lock = threading.Lock()

    def __call__(self, order: RefreshOrder) -> RefreshOutcome:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.entered.set()
        assert self.opened.wait(PATIENT)
        with self._lock:
            self.inside -= 1
        return OUTCOME


def record_running(world: World, server_id: str = "server-1") -> RefreshRun:
    owner = f"{server_id}/r-1"
    epoch = world.ledger.claim("t-1", owner, NOON, 30)
    left = run(state=RunState.RUNNING, epoch=epoch, started_at=NOON, server_id=server_id)
    world.ledger.record(left)
    return left
