"""Servers, a store and a table's commits under any order of fires, stalls, crashes and failures.

Everything happens on one thread: while an engine works on a refresh, the events that follow happen
inside of it, so that a run may come back to a world that has gone on without it.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.contract.examples import table
from tests.gateway.scheduler.fakes import FakeClock, FakeSources, HeldExecutor
from tidegate_server.core.config_sections import SchedulerSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Answer, Done, LastCommitted, Progress, Refreshed
from tidegate_server.core.messages.requests import ChunkTicket, LastCommit, Refresh, Request
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import RefreshRun, Strategy, Trigger
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
from tidegate_server.gateway.scheduler.base import CreateWorkflow
from tidegate_server.gateway.scheduler.continuous import ContinuousWatcher
from tidegate_server.gateway.scheduler.embedded import EmbeddedScheduler
from tidegate_server.gateway.scheduler.fire_queue import FireQueue
from tidegate_server.gateway.scheduler.ledger import SqlLedger
from tidegate_server.gateway.scheduler.workflows import workflow_for
from tidegate_server.gateway.store.database import Database

pytestmark = pytest.mark.slow

_MEMORY = Path("/dev/shm")
"""Where files are written without waiting for a disk."""
_LAST_BREATH = timedelta(seconds=5)
SERVERS = 2
LEASE = 30.0
CRON = "0 0/5 * * * ? *"
OUTCOMES = ("finish", "fail", "lose", "commit and lose")

Event = tuple[str, int, int]
"""What happens, at which server, after how many seconds."""

events = st.lists(
    st.tuples(
        st.sampled_from(
            ("tick", "tick", "tick", "manual", "renew", "recover", "crash", "finish", *OUTCOMES)
        ),
        st.integers(0, SERVERS - 1),
        st.sampled_from((0, 1, 5, 31, 60, 300, 301, 1000)),
    ),
    max_size=30,
)


class CrashError(BaseException):
    """Ends whatever a dead server still does; nothing may catch it on the way."""


class MortalLedger(SqlLedger):
    """A store that a dead server cannot reach any more."""

    def __init__(self, database: Database, server: Server) -> None:
        super().__init__(database)
        self._server = server

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and self._server.dead:
            raise CrashError
        return super().__getattribute__(name)


@dataclass
class Server:
    """One server's parts; ``at_work`` are the orders its engine calls are about."""

    name: str
    died_at: datetime | None = None
    executor: HeldExecutor = field(default_factory=HeldExecutor)
    at_work: list[RefreshOrder] = field(default_factory=list)
    refresher: Refresher = field(init=False)
    scheduler: EmbeddedScheduler = field(init=False)
    recovery: Recovery = field(init=False)

    @property
    def dead(self) -> bool:
        """Whether the process is gone."""
        return self.died_at is not None

    def engine_dead(self, now: datetime) -> bool:
        """Whether its engine is gone too, which outlives it for a moment only."""
        return self.died_at is not None and now > self.died_at + _LAST_BREATH


class World:
    """A table's commits, the servers, and what is still going to happen."""

    def __init__(self, directory: str, happening: list[Event]) -> None:
        self.database = Database(f"sqlite:///{directory}/store.db")
        self.database.open()
        self.catalog = MemoryCatalog()
        mt = table(options={"materialized-table.suspend-after-failures": "0"})
        self.catalog.create(mt)
        self.clock = FakeClock()
        self.ledger = SqlLedger(self.database)
        self.commits: list[CommittedRefresh] = []
        self.orders: list[RefreshOrder] = []
        self.renewed: dict[str, datetime] = {}
        self.broken: list[str] = []
        self.late: set[str] = set()
        """Runs that were given up for dead, and committed before anything could stop them."""
        self.happening = iter(happening)
        self.numbers = itertools.count(1)
        self.servers = [self.server() for _ in range(SERVERS)]
        workflow = workflow_for(mt, "UTC", {"materialized-table.schedule.cron": CRON})
        self.servers[0].scheduler.create(CreateWorkflow(workflow=workflow, table=mt))

    def server(self) -> Server:
        server = Server(f"s{next(self.numbers)}")
        ledger, engine = MortalLedger(self.database, server), Engine(self, server)
        server.refresher = Refresher(
            catalog=self.catalog,
            ledger=ledger,
            engine=engine,
            clock=self.clock,
            new_id=lambda: f"run-{next(self.numbers)}",
            server_id=server.name,
            lease_seconds=LEASE,
            patience=timedelta(0),
        )
        server.scheduler = EmbeddedScheduler(
            database=self.database,
            ledger=ledger,
            tables=self.catalog,
            run_refresh=server.refresher.run,
            skip_refresh=server.refresher.skip,
            watcher=ContinuousWatcher(
                tables=self.catalog, ledger=ledger, source_versions=FakeSources()
            ),
            config=SchedulerSection(lease=LEASE),
            clock=self.clock,
            server_id=server.name,
            executor=server.executor,
        )
        server.recovery = Recovery(
            catalog=self.catalog,
            ledger=ledger,
            engine=engine,
            refresher=server.refresher,
            scheduler=server.scheduler,
            server_id=server.name,
            shared=True,
        )
        return server

    # ---- events --------------------------------------------------------------------------------

    def go_on(self) -> str | None:
        """Let things happen up to the next one that ends an engine's work; None at the end."""
        for kind, number, seconds in self.happening:
            self.clock.advance(seconds)
            if kind in OUTCOMES:
                return kind
            self.happen(kind, number)
        return None

    def happen(self, kind: str, number: int) -> None:
        server = self.servers[number]
        match kind:
            case "tick":
                self.act(server, lambda: self.tick(server))
            case "manual":
                self.act(server, lambda: server.refresher.run(by_hand()))
            case "renew":
                self.renew(server)
            case "recover":
                self.act(server, lambda: server.recovery.recover(self.clock.now()))
            case "crash":
                server.died_at = self.clock.now()
                self.servers[number] = self.server()

    def act(self, server: Server, action: Callable[[], object]) -> None:
        try:
            action()
        except CrashError:
            assert server.dead

    def tick(self, server: Server) -> None:
        server.scheduler.fire_due(self.clock.now())
        server.executor.run_all()

    def renew(self, server: Server) -> None:
        """Prolong leases as the keepers of a server that is not stalled do."""
        for order in server.at_work:
            owner = f"{server.name}/{order.refresh_id}"
            if self.ledger.extend(order.table_id, owner, self.clock.now(), LEASE):
                self.renewed[order.refresh_id] = self.clock.now()

    def end_all(self) -> None:
        """Let every wait and lease end without further trouble."""
        self.clock.advance(7300)
        for server in self.servers:
            server.recovery.recover(self.clock.now())
        self.check_commits(self.ledger.runs())
        for _ in range(3):
            self.clock.advance(LEASE + 1)
            for server in self.servers:
                server.recovery.recover(self.clock.now())
                self.tick(server)
                self.clock.advance(LEASE + 1)
                self.tick(server)

    # ---- the engine ----------------------------------------------------------------------------

    def carry_out(self, server: Server, order: RefreshOrder) -> RefreshOutcome:
        now = self.clock.now()
        # Told at the end: here the refresher would take it for a failure of the engine.
        if self.ledger.holder(order.table_id, now) != f"{server.name}/{order.refresh_id}":
            self.broken.append("a refresh without the lease")
        for other in (o for s in self.servers for o in s.at_work):
            if now < self.renewed[other.refresh_id] + timedelta(seconds=LEASE):
                self.broken.append("two refreshes at a time")
        self.renewed[order.refresh_id] = now
        self.orders.append(order)
        server.at_work.append(order)
        outcome = self.go_on()
        server.at_work.remove(order)
        if server.engine_dead(self.clock.now()):
            raise CrashError
        if outcome == "fail":
            raise ServerError(code="DIVIDE_BY_ZERO", sqlstate="22012", message="Division by zero.")
        if outcome != "lose":
            self.commit(order)
        if outcome in ("lose", "commit and lose"):
            raise error(Code.ENGINE_LOST)
        return RefreshOutcome(
            plan=RefreshPlan(
                strategy=Strategy.FULL,
                reason_code=Reason.SOURCES_CHANGED,
                reason_text="",
                vector={},
            ),
            from_version=None,
            to_version=len(self.commits),
        )

    def commit(self, order: RefreshOrder) -> None:
        last = self.commits[-1].epoch if self.commits else 0
        if order.epoch <= last:
            facts = {"epoch": order.epoch, "table": order.name, "current": last}
            raise error(Code.MT_REFRESH_FENCED, **facts)
        known = self.ledger.find(order.refresh_id)
        if known is not None and known.state is RunState.ABANDONED:
            self.late.add(order.refresh_id)
        self.commits.append(
            CommittedRefresh(
                epoch=order.epoch,
                version=len(self.commits) + 1,
                definition_version=1,
                vector={},
                refresh_id=order.refresh_id,
            )
        )

    # ---- what must hold ------------------------------------------------------------------------

    def check(self) -> None:
        runs = self.ledger.runs()
        assert self.broken == []
        assert not self.ledger.unfinished_runs()
        assert FireQueue(self.database).count("t-1") == 0
        assert all(count == 1 for count in Counter(o.epoch for o in self.orders).values())
        self.check_fires(runs)
        self.check_commits(runs)
        assert self.commits, "the table was never refreshed although a quiet time followed"

    def check_fires(self, runs: tuple[RefreshRun, ...]) -> None:
        fires = [r for r in runs if r.trigger is Trigger.SCHEDULED]
        begun = Counter((r.schedule_time, r.attempt) for r in fires if r.started_at is not None)
        assert all(count == 1 for count in begun.values()), "an attempt at a fire was run twice"
        in_time = (r for r in fires if r.refresh_id not in self.late)
        succeeded = Counter(r.schedule_time for r in in_time if r.state is RunState.SUCCEEDED)
        assert all(count == 1 for count in succeeded.values()), "a fire succeeded twice"

    def check_commits(self, runs: tuple[RefreshRun, ...]) -> None:
        succeeded = {run.refresh_id for run in runs if run.state is RunState.SUCCEEDED}
        assert succeeded <= {commit.refresh_id for commit in self.commits}
        if self.commits:
            assert self.commits[-1].refresh_id in succeeded, "a commit was not noticed"


class Engine:
    """A server's way to the one table."""

    generation = 1
    ready = True

    def __init__(self, world: World, server: Server) -> None:
        self._world = world
        self._server = server

    def call(
        self,
        request: Request,
        *,
        on_progress: Callable[[Progress], None] | None = None,
        wait: float | None = None,
    ) -> Answer:
        match request:
            case Refresh(order=order):
                outcome = self._world.carry_out(self._server, order)
                if self._server.dead:
                    raise CrashError
                return Refreshed(outcome=outcome)
            case LastCommit():
                commits = self._world.commits
                return LastCommitted(commit=commits[-1] if commits else None, exists=True)
        return Done()

    def read(self, ticket: ChunkTicket) -> Iterator[pa.RecordBatch]:
        raise AssertionError(f"unexpected {ticket}")


def by_hand() -> RefreshRequest:
    return RefreshRequest(table_id="t-1", trigger=Trigger.MANUAL, requested_by="ana")


@given(events)
@example([("tick", 0, 301), ("crash", 0, 0), ("finish", 0, 0)])
@example([("tick", 0, 301), ("manual", 1, 0), ("finish", 0, 0), ("finish", 0, 0)])
@example([("tick", 0, 301), ("manual", 1, 31), ("finish", 0, 0), ("finish", 0, 0)])
@example([("tick", 0, 300), ("manual", 1, 31), ("renew", 0, 300), ("tick", 1, 0)])
@example([("tick", 0, 301), ("recover", 1, 31), ("tick", 1, 0), ("finish", 0, 0), ("finish", 0, 0)])
def test_nothing_is_done_twice_and_nothing_is_left_undone(happening: list[Event]) -> None:
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.exists() else None) as directory:
        world = World(directory, happening)
        try:
            while world.go_on() is not None:
                pass
            world.end_all()
            world.check()
        finally:
            world.database.close()
