"""One refresh from request to record, with an engine made of plain Python."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.contract.examples import NOON, name, run, source, table
from tests.gateway.scheduler.fakes import FakeClock
from tidegate_server.core.errors import Code, ServerError, error
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
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import HeldVersion, LogicalRefreshMode, RollingBack
from tidegate_server.core.refresh.request import (
    CommittedRefresh,
    Publish,
    Recompute,
    RefreshOrder,
    RefreshOutcome,
    RefreshPlan,
    RefreshPolicy,
    RefreshRequest,
)
from tidegate_server.gateway.catalog.memory import MemoryCatalog
from tidegate_server.gateway.recovery.runs import Recovery
from tidegate_server.gateway.runs.runner import Refresher
from tidegate_server.gateway.scheduler.base import (
    CREATION_LEASE,
    DEFINITION_LEASE,
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
WAITING = HeldVersion(refresh_id="r-0", since=NOON, reason="too few rows")


class FakeEngine:
    """Answers refreshes as told and keeps what it was asked."""

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


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.database.close()


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


# ---- the plain way -----------------------------------------------------------------------------


def test_a_refresh_is_ordered_with_all_the_engine_needs(world: World) -> None:
    task = Recompute(partitions=({"Ds": "x"},), force=True)
    world.refresher.run(request(task=task))
    assert world.engine.requests == [Refresh(order=world.engine.orders[0], task=task)]
    assert world.engine.orders[0] == RefreshOrder(
        refresh_id="server-1-run-1",
        table_id="t-1",
        name=name("Daily"),
        definition_version=1,
        expanded_query="SELECT ...",
        columns=("Ds", "total"),
        partition_keys=("Ds",),
        sources=table().sources,
        epoch=1,
        trigger=Trigger.MANUAL,
        logical_time=NOON,
        settings={"spark.sql.shuffle.partitions": "7"},
        options=table().options,
    )


def test_the_outcome_is_recorded(world: World) -> None:
    answer = world.refresher.run(request(Trigger.SCHEDULED, schedule_time=NOON))
    assert answer == run(
        refresh_id="server-1-run-1",
        trigger=Trigger.SCHEDULED,
        schedule_time=NOON,
        state=RunState.SUCCEEDED,
        epoch=1,
        action=Strategy.FULL,
        reason_code="SOURCES_CHANGED",
        reason_text="sources have newer versions",
        from_version=3,
        to_version=4,
        sources={"delta-ev": 5},
        metrics=RunMetrics(rows_written=10),
        started_at=NOON,
        finished_at=NOON,
    )
    assert world.ledger.runs() == (answer,)


def test_history_shows_the_run_while_it_runs(world: World) -> None:
    seen: list[RefreshRun] = []

    def look(order: RefreshOrder) -> RefreshOutcome:
        seen.extend(world.ledger.runs())
        return OUTCOME

    world.engine.work = look
    world.refresher.run(request())
    assert [(r.state, r.epoch) for r in seen] == [(RunState.RUNNING, 1)]


def test_the_asker_may_choose_the_id(world: World) -> None:
    assert world.refresher.run(request(refresh_id="mine")).refresh_id == "mine"


def test_the_mode_of_a_table_is_the_policy_of_its_refreshes(world: World) -> None:
    for mode, policy in (
        (LogicalRefreshMode.FULL, RefreshPolicy.FULL),
        (LogicalRefreshMode.INCREMENTAL_STRICT, RefreshPolicy.INCREMENTAL_STRICT),
    ):
        world.catalog.replace(table(logical_refresh_mode=mode))
        world.refresher.run(request())
        assert world.engine.orders[-1].policy is policy
    run = world.refresher.run(request(policy=RefreshPolicy.INCREMENTAL))
    assert world.engine.orders[-1].policy is RefreshPolicy.INCREMENTAL
    assert run.requested_action == "INCREMENTAL"


def test_options_of_the_last_resume_hold_for_refreshes(world: World) -> None:
    world.catalog.replace(table(resume_options={"k": "v"}))
    world.refresher.run(request())
    order = world.engine.orders[-1]
    assert (order.settings["k"], order.options["k"]) == ("v", "v")


def test_the_engine_is_told_the_last_runs_and_whether_others_read_the_table(world: World) -> None:
    world.refresher.run(request())
    world.catalog.create(table(id="t-2", name=name("Above"), sources=(source("Daily", "x"),)))
    world.refresher.run(request())
    order = world.engine.orders[-1]
    assert [past.strategy for past in order.history] == [Strategy.FULL]
    assert order.has_consumers


def test_a_run_that_read_a_suspended_table_says_so(world: World) -> None:
    suspended = RefreshStatus.SUSPENDED
    world.catalog.create(table(id="t-2", name=name("ev"), refresh_status=suspended))
    answer = world.refresher.run(request())
    assert "(UPSTREAM_SUSPENDED: spark_catalog.d.ev)" in str(answer.reason_text)


def test_an_enqueued_refresh_goes_on_as_the_same_run(world: World) -> None:
    queued = world.refresher.enqueue(request(refresh_id="mine"))
    assert queued.state is RunState.QUEUED
    assert world.states() == [RunState.QUEUED]
    assert world.refresher.run(request(refresh_id="mine")).state is RunState.SUCCEEDED
    assert world.states() == [RunState.SUCCEEDED]
    assert world.refresher.withdraw("mine", RunState.CANCELLED, "X", "too late") is None


def test_an_enqueued_refresh_can_be_withdrawn_once(world: World) -> None:
    world.refresher.enqueue(request(refresh_id="mine"))
    closed = world.refresher.withdraw("mine", RunState.UPSTREAM_FAILED, "UPSTREAM_FAILED", "why")
    assert closed is not None
    assert (closed.state, closed.reason_text) == (RunState.UPSTREAM_FAILED, "why")
    assert world.ledger.find("mine") == closed
    assert world.refresher.withdraw("mine", RunState.CANCELLED, "X", "again") is None


def test_an_enqueued_refresh_that_was_canceled_never_begins(world: World) -> None:
    world.refresher.enqueue(request(refresh_id="a"))
    world.refresher.enqueue(request(refresh_id="b"))
    assert set(world.refresher.cancel_table("t-1")) == {"a", "b"}
    assert world.refresher.run(request(refresh_id="a")).state is RunState.CANCELLED
    closed = world.refresher.withdraw("b", RunState.UPSTREAM_FAILED, "UPSTREAM_FAILED", "why")
    assert closed is not None
    assert closed.state is RunState.CANCELLED
    assert world.engine.orders == []


def test_canceling_a_table_leaves_the_other_tables_of_its_wave_alone(world: World) -> None:
    world.catalog.create(table(id="t-2", name=name("Above")))
    world.refresher.enqueue(request(refresh_id="op"))
    world.refresher.enqueue(request(refresh_id="op.u1", table_id="t-2"))
    assert world.refresher.cancel_table("t-1") == ("op",)
    assert world.refresher.run(request(refresh_id="op.u1", table_id="t-2")).state is (
        RunState.SUCCEEDED
    )
    assert world.refresher.run(request(refresh_id="op")).state is RunState.CANCELLED


def test_every_refresh_has_a_higher_epoch_and_frees_its_lease(world: World) -> None:
    for _ in range(3):
        world.refresher.run(request())
    assert [order.epoch for order in world.engine.orders] == [1, 2, 3]
    assert world.ledger.holder("t-1", NOON) is None


def test_only_its_own_rollback_touches_a_table_that_is_being_rolled_back(world: World) -> None:
    mark = RollingBack(refresh_id="op", active=True, to=table())
    world.catalog.replace(replace(table(), rolling_back=mark))
    other = world.refresher.run(request())
    assert (other.state, other.error_class) == (RunState.CANCELLED, Code.MT_STATE.name)
    for own in ("op", "op.back"):
        assert world.refresher.run(request(refresh_id=own)).state is RunState.SUCCEEDED


def test_a_missing_table_is_refused_without_a_record(world: World) -> None:
    with pytest.raises(ServerError) as caught:
        world.refresher.run(request(table_id="nope"))
    assert caught.value.code == "MT_NOT_FOUND"
    assert world.ledger.runs() == ()


# ---- failures ----------------------------------------------------------------------------------


def _raising(failure: Exception) -> Callable[[RefreshOrder], RefreshOutcome]:
    def work(order: RefreshOrder) -> RefreshOutcome:
        raise failure

    return work


def test_a_failure_is_in_the_record(world: World) -> None:
    world.engine.work = _raising(
        ServerError(code="DIVIDE_BY_ZERO", sqlstate="22012", message="Division by zero.")
    )
    failed = world.refresher.run(request())
    assert failed.state is RunState.FAILED
    assert (failed.error_class, failed.sqlstate) == ("DIVIDE_BY_ZERO", "22012")
    assert failed.error_message == "Division by zero."
    assert world.ledger.runs() == (failed,)
    assert world.ledger.holder("t-1", NOON) is None


def test_an_unforeseen_error_is_a_failure_too(world: World) -> None:
    world.engine.work = _raising(RuntimeError("boom"))
    failed = world.refresher.run(request())
    assert (failed.state, failed.error_class) == (RunState.FAILED, "INTERNAL")


def test_a_commit_of_an_engine_that_died_counts(world: World) -> None:
    world.engine.work = _raising(error(Code.ENGINE_LOST))
    world.engine.commit = commit("server-1-run-1")
    ended = world.refresher.run(request())
    assert ended.state is RunState.SUCCEEDED
    assert (ended.to_version, ended.sources) == (8, {"delta-ev": 7})
    assert ended.reason_code == "RECOVERED"


def test_an_engine_that_died_before_its_commit_is_a_failure(world: World) -> None:
    world.engine.work = _raising(error(Code.ENGINE_LOST))
    world.engine.commit = commit("an older run")
    ended = world.refresher.run(request())
    assert (ended.state, ended.error_class) == (RunState.FAILED, "ENGINE_LOST")


def test_what_no_engine_can_tell_is_left_to_recovery(world: World) -> None:
    def work(order: RefreshOrder) -> RefreshOutcome:
        world.engine.down = True
        raise error(Code.ENGINE_LOST)

    world.engine.work = work
    answer = world.refresher.run(request())
    assert (answer.state, answer.error_class) == (RunState.FAILED, "ENGINE_LOST")
    assert world.states() == [RunState.RUNNING]
    assert world.ledger.holder("t-1", NOON) is None
    world.engine.down = False
    world.engine.commit = commit("server-1-run-1")
    world.recovery().recover(NOON)
    assert world.states() == [RunState.SUCCEEDED]


def test_a_fenced_refresh_is_abandoned(world: World) -> None:
    world.engine.work = _raising(error(Code.MT_REFRESH_FENCED, epoch=1, table="t", current=2))
    assert world.refresher.run(request()).state is RunState.ABANDONED


def test_a_store_behind_its_table_catches_up(world: World) -> None:
    world.engine.work = _raising(error(Code.MT_REFRESH_FENCED, epoch=1, table="t", current=90))
    world.engine.commit = commit("before the store was lost", epoch=90)
    world.refresher.run(request())
    world.engine.work = lambda order: OUTCOME
    assert world.refresher.run(request()).epoch == 91


# ---- one at a time -----------------------------------------------------------------------------


class Gate:
    """Work that stops until it is let through."""

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


@pytest.fixture
def gate(world: World) -> Gate:
    world.engine.work = gate = Gate()
    return gate


@pytest.mark.parametrize("trigger", [Trigger.SCHEDULED, Trigger.UPSTREAM_CHANGE])
def test_what_comes_again_is_skipped_during_a_run(
    world: World, gate: Gate, trigger: Trigger
) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(world.refresher.run, request())
        assert gate.entered.wait(PATIENT)
        second = world.refresher.run(request(trigger))
        gate.opened.set()
        assert first.result().state is RunState.SUCCEEDED
    assert (second.state, second.reason_code) == (RunState.SKIPPED, "PREVIOUS_RUNNING")
    assert len(world.engine.orders) == 1


def test_a_fire_waits_for_a_statement_that_changes_the_table(world: World) -> None:
    owner = f"server-2/{DEFINITION_LEASE}op-1"
    assert world.ledger.claim("t-1", owner, world.clock.now(), 30) is not None
    with ThreadPoolExecutor(1) as pool:
        fire = pool.submit(world.refresher.run, request(Trigger.SCHEDULED))
        world.ledger.release("t-1", owner)
        assert fire.result().state is RunState.SUCCEEDED


def test_a_manual_refresh_waits_for_the_one_before(world: World, gate: Gate) -> None:
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(world.refresher.run, request())
        assert gate.entered.wait(PATIENT)
        second = pool.submit(world.refresher.run, request())
        gate.opened.set()
        assert {first.result().state, second.result().state} == {RunState.SUCCEEDED}
    assert gate.most == 1
    assert second.result().epoch == 2


def test_waiting_has_a_bound(world: World, gate: Gate) -> None:
    hasty = world.server("server-2", patience=timedelta(0))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(world.refresher.run, request())
        assert gate.entered.wait(PATIENT)
        assert hasty.run(request()).state is RunState.SKIPPED
        gate.opened.set()
        first.result()


def test_servers_with_one_store_refresh_a_table_one_at_a_time(world: World) -> None:
    inside = threading.Semaphore(1)

    def alone(order: RefreshOrder) -> RefreshOutcome:
        assert inside.acquire(blocking=False), "two refreshes at once"
        inside.release()
        return OUTCOME

    world.engine.work = alone
    databases = [Database(str(world.database.url)) for _ in range(2)]
    servers = [world.server(f"s{n}", database) for n, database in enumerate(databases)]
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(servers[n % 2].run, request()) for n in range(12)]
        epochs = [future.result().epoch for future in runs]
    assert sorted(epoch for epoch in epochs if epoch is not None) == list(range(1, 13))
    for database in databases:
        database.close()


def test_a_fire_the_scheduler_holds_back_is_recorded(world: World) -> None:
    skipped = world.refresher.skip(request(Trigger.SCHEDULED, schedule_time=NOON))
    assert (skipped.state, skipped.reason_code) == (RunState.SKIPPED, "PREVIOUS_RUNNING")
    assert world.ledger.runs() == (skipped,)
    assert world.engine.orders == []


def test_a_table_suspended_meanwhile_takes_no_scheduled_refresh(world: World) -> None:
    world.catalog.move("t-1", RefreshStatus.ACTIVATED, RefreshStatus.SUSPENDED)
    skipped = world.refresher.run(request(Trigger.SCHEDULED))
    assert (skipped.state, skipped.reason_code) == (RunState.SKIPPED, "TABLE_SUSPENDED")


def test_a_suspend_lets_the_run_that_is_under_way_end(world: World) -> None:
    def work(order: RefreshOrder) -> RefreshOutcome:
        world.catalog.move("t-1", RefreshStatus.ACTIVATED, RefreshStatus.SUSPENDED)
        return OUTCOME

    world.engine.work = work
    assert world.refresher.run(request(Trigger.SCHEDULED)).state is RunState.SUCCEEDED
    assert world.refresher.run(request(Trigger.SCHEDULED)).state is RunState.SKIPPED


def test_a_suspended_table_can_be_refreshed_by_hand(world: World) -> None:
    world.catalog.move("t-1", RefreshStatus.ACTIVATED, RefreshStatus.SUSPENDED)
    assert world.refresher.run(request()).state is RunState.SUCCEEDED


# ---- sources ---------------------------------------------------------------------------------


def test_sources_that_were_replaced_are_noted(world: World) -> None:
    [first, *others] = table().sources
    found = (replace(first, table_id="created again"), *others)
    world.engine.work = lambda order: replace(OUTCOME, sources=found)
    world.refresher.run(request())
    assert world.catalog.by_id("t-1") == table(sources=found)
    world.engine.work = lambda order: OUTCOME
    world.refresher.run(request())
    assert world.catalog.by_id("t-1") == table(sources=found)


# ---- held versions -----------------------------------------------------------------------------

HELD = error(Code.MT_VERSION_HELD, table="t", reason="the assertion enough: too few rows")


def test_a_result_that_is_held_fails_its_run_and_marks_the_table(world: World) -> None:
    world.engine.work = _raising(HELD)
    ended = world.refresher.run(request())
    assert (ended.state, ended.error_class) == (RunState.FAILED, "MT_VERSION_HELD")
    assert world.catalog.by_id("t-1") == table(
        held=HeldVersion(refresh_id=ended.refresh_id, since=world.clock.now(), reason=HELD.message)
    )


def test_no_refresh_starts_by_itself_while_a_version_is_held(world: World) -> None:
    world.catalog.hold("t-1", WAITING)
    for trigger in (Trigger.SCHEDULED, Trigger.UPSTREAM_CHANGE):
        skipped = world.refresher.run(request(trigger))
        assert (skipped.state, skipped.reason_code) == (RunState.SKIPPED, "VERSION_HELD")
        assert skipped.reason_text == WAITING.reason
    assert world.engine.orders == []


def test_what_a_refresh_commits_takes_the_place_of_a_held_version(world: World) -> None:
    world.catalog.hold("t-1", WAITING)
    nothing = replace(OUTCOME, plan=replace(OUTCOME.plan, strategy=Strategy.NO_DATA))
    world.engine.work = lambda order: nothing
    world.refresher.run(request())
    assert world.catalog.by_id("t-1") == table(held=WAITING)
    world.engine.work = lambda order: OUTCOME
    world.refresher.run(request())
    assert world.catalog.by_id("t-1") == table()


def test_a_publication_names_the_refresh_whose_result_is_held(world: World) -> None:
    world.catalog.hold("t-1", WAITING)
    world.engine.work = lambda order: replace(OUTCOME, definition_version=3)
    ended = world.refresher.run(request(task=Publish()))
    assert (ended.state, ended.definition_version) == (RunState.SUCCEEDED, 3)
    assert world.engine.requests == [
        PublishHeld(order=world.engine.orders[0], held_by=WAITING.refresh_id)
    ]
    assert world.catalog.by_id("t-1") == table()
    late = world.refresher.run(request(task=Publish()))
    assert (late.state, late.error_class) == (RunState.CANCELLED, "MT_NOTHING_HELD")


def test_a_result_that_an_engine_held_before_it_died_is_held(world: World) -> None:
    world.engine.work = _raising(error(Code.ENGINE_LOST))
    world.engine.held = commit("server-1-run-1", breaks="the assertion enough")
    ended = world.refresher.run(request())
    assert (ended.state, ended.error_class) == (RunState.FAILED, "MT_VERSION_HELD")
    assert world.catalog.by_id("t-1").held.refresh_id == ended.refresh_id  # type: ignore[union-attr]


def test_recovery_finds_a_result_that_is_held(world: World) -> None:
    _left_running(world)
    world.engine.commit = commit("an older run")
    world.engine.held = commit("r-1", breaks="the assertion enough")
    world.recovery().recover(NOON)
    [ended] = world.ledger.runs()
    assert (ended.state, ended.error_class) == (RunState.FAILED, "MT_VERSION_HELD")
    mark = world.catalog.by_id("t-1").held  # type: ignore[union-attr]
    assert mark == HeldVersion(refresh_id="r-1", since=NOON, reason=ended.error_message or "")
    assert "breaks the assertion enough" in mark.reason


def test_recovery_finds_that_a_held_version_was_published(world: World) -> None:
    world.catalog.hold("t-1", WAITING)
    _left_running(world)
    world.engine.commit = commit("r-1", strategy="PUBLISH", definition_version=4)
    world.recovery().recover(NOON)
    [ended] = world.ledger.runs()
    assert (ended.action, ended.definition_version) == (Strategy.PUBLISH, 4)
    assert world.catalog.by_id("t-1") == table()


# ---- cancel and lease --------------------------------------------------------------------------


def test_cancel_reaches_the_engine_and_the_record(world: World) -> None:
    def work(order: RefreshOrder) -> RefreshOutcome:
        assert world.refresher.cancel(order.refresh_id)
        assert world.engine.cancel_seen.wait(PATIENT)
        raise error(Code.OPERATION_CANCELED, by="")

    world.engine.work = work
    ended = world.refresher.run(request(refresh_id="mine"))
    assert (ended.state, ended.reason_code) == (RunState.CANCELLED, "CANCELED")
    assert world.engine.cancels[0] == "mine"
    assert not world.refresher.cancel("mine")


def test_a_refresh_can_be_canceled_while_it_waits(world: World, gate: Gate) -> None:
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(world.refresher.run, request())
        assert gate.entered.wait(PATIENT)
        second = pool.submit(world.refresher.run, request(refresh_id="waiting"))
        while not world.refresher.cancel("waiting"):
            assert not second.done()
        assert second.result(PATIENT).state is RunState.CANCELLED
        gate.opened.set()
        first.result()
    assert len(world.engine.orders) == 1


def test_another_server_can_cancel_what_waits_and_what_runs(world: World) -> None:
    entered = threading.Event()

    def work(order: RefreshOrder) -> RefreshOutcome:
        entered.set()
        assert world.engine.cancel_seen.wait(PATIENT)
        raise error(Code.OPERATION_CANCELED, by="")

    world.engine.work = work
    refresher = world.server("s", lease_seconds=0.03)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(refresher.run, request(refresh_id="runs"))
        assert entered.wait(PATIENT)
        second = pool.submit(refresher.run, request(refresh_id="waits"))
        for refresh_id in ("waits", "runs"):
            world.ledger.request_cancel(refresh_id)
        assert first.result(PATIENT).state is RunState.CANCELLED
        assert second.result(PATIENT).state is RunState.CANCELLED
    assert refresher.wait_ended(("runs", "waits"), PATIENT)


def test_close_ends_what_runs_and_what_waits(world: World) -> None:
    entered = threading.Event()

    def work(order: RefreshOrder) -> RefreshOutcome:
        entered.set()
        assert world.engine.cancel_seen.wait(PATIENT)
        raise error(Code.OPERATION_CANCELED, by="")

    world.engine.work = work
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(world.refresher.run, request())
        assert entered.wait(PATIENT)
        second = pool.submit(world.refresher.run, request(refresh_id="waiting"))
        while not world.refresher.at_work("waiting"):
            assert not second.done()
        world.refresher.close()
        assert first.result(PATIENT).state is RunState.CANCELLED
        assert second.result(PATIENT).state is RunState.CANCELLED
    assert {run.reason_code for run in world.ledger.runs()} == {"SERVER_STOPPED"}
    assert len(world.engine.orders) == 1


def test_the_lease_is_prolonged_while_the_engine_works(world: World) -> None:
    prolonged = threading.Event()

    class Watched(SqlLedger):
        def extend(self, *args: Any) -> bool:
            try:
                return super().extend(*args)
            finally:
                prolonged.set()

    def work(order: RefreshOrder) -> RefreshOutcome:
        world.clock.advance(1000)
        assert prolonged.wait(PATIENT)
        return OUTCOME

    world.engine.work = work
    refresher = world.server("s", ledger=Watched(world.database), lease_seconds=0.03)
    assert refresher.run(request()).state is RunState.SUCCEEDED


def test_a_run_whose_lease_was_taken_over_is_stopped_and_abandoned(world: World) -> None:
    def work(order: RefreshOrder) -> RefreshOutcome:
        while world.ledger.claim("t-1", "someone else", world.clock.advance(1000), 30) is None:
            assert world.engine.cancels == []
        assert world.engine.cancel_seen.wait(PATIENT)
        raise error(Code.OPERATION_CANCELED, by="")

    world.engine.work = work
    ended = world.server("s", lease_seconds=0.03).run(request())
    assert (ended.state, ended.reason_code) == (RunState.ABANDONED, "LEASE_LOST")
    assert world.ledger.holder("t-1", world.clock.now()) == "someone else"


# ---- recovery ----------------------------------------------------------------------------------


def _left_running(world: World, server_id: str = "server-1") -> RefreshRun:
    owner = f"{server_id}/r-1"
    epoch = world.ledger.claim("t-1", owner, NOON, 30)
    left = run(state=RunState.RUNNING, epoch=epoch, started_at=NOON, server_id=server_id)
    world.ledger.record(left)
    return left


def test_a_run_whose_commit_stands_is_completed_from_it(world: World) -> None:
    left = _left_running(world)
    world.engine.commit = commit("r-1")
    assert world.recovery().recover(NOON)
    expected = replace(
        left,
        state=RunState.SUCCEEDED,
        action=Strategy.FULL,
        to_version=8,
        sources={"delta-ev": 7},
        finished_at=NOON,
        reason_code="RECOVERED",
        reason_text="read from the table's own last commit",
    )
    assert world.ledger.find("r-1") == expected
    assert world.ledger.last_success("t-1") == expected


def test_a_partial_commit_does_not_become_the_tables_vector(world: World) -> None:
    _left_running(world)
    world.engine.commit = commit("r-1", partial=True)
    world.recovery().recover(NOON)
    assert world.states() == [RunState.SUCCEEDED]
    assert world.ledger.last_success("t-1") is None


@pytest.mark.parametrize("last", [None, commit("an older run")])
def test_a_run_without_its_commit_is_abandoned(world: World, last: CommittedRefresh | None) -> None:
    _left_running(world)
    world.engine.commit = last
    world.recovery().recover(NOON)
    assert world.states() == [RunState.ABANDONED]


def test_the_lease_of_a_dead_run_is_free_at_once(world: World) -> None:
    _left_running(world)
    world.recovery().recover(NOON)
    assert world.ledger.holder("t-1", NOON) is None
    assert world.refresher.run(request()).epoch == 2


def test_a_run_that_had_not_begun_is_cancelled(world: World) -> None:
    world.ledger.record(run())
    world.recovery().recover(NOON)
    assert world.states() == [RunState.CANCELLED]


def test_a_run_of_a_dropped_table_is_abandoned(world: World) -> None:
    _left_running(world)
    world.catalog.drop("t-1")
    world.recovery().recover(NOON)
    assert world.states() == [RunState.ABANDONED]


@pytest.mark.parametrize(
    ("changes", "dead_after"),
    [
        ({"trigger": Trigger.SCHEDULED}, timedelta(minutes=5)),
        ({"trigger": Trigger.SCHEDULED, "wave_id": "w"}, timedelta(hours=2)),
        ({"trigger": Trigger.MANUAL}, timedelta(hours=2)),
    ],
)
def test_a_queued_run_of_another_server_is_given_the_time_it_may_need(
    world: World, changes: dict[str, Any], dead_after: timedelta
) -> None:
    world.ledger.record(run(**changes))
    recovery = world.recovery(shared=True)
    recovery.recover(NOON + dead_after)
    assert world.states() == [RunState.QUEUED]
    recovery.recover(NOON + dead_after + timedelta(seconds=1))
    assert world.states() == [RunState.CANCELLED]


def test_recovery_leaves_the_runs_of_this_process_alone(world: World, gate: Gate) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(world.refresher.run, request())
        assert gate.entered.wait(PATIENT)
        world.recovery().recover(NOON)
        assert world.states() == [RunState.RUNNING]
        gate.opened.set()
        assert first.result().state is RunState.SUCCEEDED


def test_on_a_shared_store_a_run_with_a_lease_is_left_alone(world: World) -> None:
    _left_running(world, "another server")
    recovery = world.recovery(shared=True)
    recovery.recover(NOON)
    assert world.states() == [RunState.RUNNING]
    recovery.recover(NOON + timedelta(seconds=31))
    assert world.states() == [RunState.ABANDONED]


def test_without_an_engine_recovery_is_left_for_later(world: World) -> None:
    _left_running(world)
    world.engine.down = True
    assert not world.recovery().recover(NOON)
    assert world.states() == [RunState.RUNNING]
    world.engine.down = False
    assert world.recovery().recover(NOON)
    assert world.states() == [RunState.ABANDONED]


def _half_created(world: World, **changes: Any) -> None:
    values: dict[str, Any] = {
        "id": "t-2",
        "name": name("half"),
        "refresh_status": RefreshStatus.INITIALIZING,
        "created_at": NOON - timedelta(seconds=1),
        **changes,
    }
    world.catalog.create(table(**values))


def test_a_create_that_never_ended_is_taken_back_with_its_storage(world: World) -> None:
    _half_created(world)
    world.recovery().recover(NOON)
    assert world.catalog.by_id("t-2") is None
    assert world.engine.dropped == ["t-2"]


@pytest.mark.parametrize(
    ("server", "shared", "left"),
    [("server-2", False, True), ("server-1", False, False), ("server-1", True, True)],
)
def test_a_table_that_is_just_being_created_is_left_alone(
    world: World, server: str, shared: bool, left: bool
) -> None:
    """Of one server's store another server's lease is that of a dead one."""
    _half_created(world)
    assert world.ledger.claim(f"{CREATION_LEASE}t-2", f"{server}/definition/op", NOON, 30)
    world.recovery(shared=shared).recover(NOON)
    assert (world.catalog.by_id("t-2") is not None) is left
    world.recovery(shared=shared).recover(NOON + timedelta(seconds=31))
    assert world.catalog.by_id("t-2") is None


def test_a_drop_that_did_not_end_is_completed(world: World) -> None:
    world.catalog.replace(table(dropping=True, location="/place"))
    key = f"{DEFINITION_LEASE}t-1"
    assert world.ledger.claim(key, "server-2/definition/op", NOON, 30)
    world.recovery().recover(NOON)
    assert world.catalog.by_id("t-1") is not None
    world.ledger.release(key, "server-2/definition/op")
    world.recovery().recover(NOON)
    assert world.catalog.by_id("t-1") is None
    assert world.engine.dropped == ["t-1"]
