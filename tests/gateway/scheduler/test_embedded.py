"""The embedded scheduler, step by step under a test clock."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.contract.examples import NOON, name, run, source, table
from tests.gateway.scheduler.fakes import FakeClock, FakeRunner, FakeSources, HeldExecutor
from tidegate_server.core.config_sections import SchedulerSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.runs import Strategy, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import RefreshMode
from tidegate_server.gateway.catalog.memory import MemoryCatalog
from tidegate_server.gateway.scheduler.base import (
    CreateWorkflow,
    DeleteWorkflow,
    ModifyWorkflow,
    Workflow,
)
from tidegate_server.gateway.scheduler.continuous import ContinuousWatcher
from tidegate_server.gateway.scheduler.embedded import EmbeddedScheduler
from tidegate_server.gateway.scheduler.fire_queue import FireQueue
from tidegate_server.gateway.scheduler.ledger import SqlLedger
from tidegate_server.gateway.scheduler.workflows import WorkflowStore, workflow_for
from tidegate_server.gateway.store.database import Database

MINUTELY = "0 0/1 * * * ? *"
NEXT = NOON.replace(minute=1, second=0, microsecond=0)


class World:
    """A scheduler with everything around it faked but the store."""

    def __init__(self, path: Path, max_concurrent: int = 2) -> None:
        self.database = Database(f"sqlite:///{path / 'store.db'}")
        self.database.open()
        self.clock = FakeClock()
        self.ledger = SqlLedger(self.database)
        self.catalog = MemoryCatalog()
        self.sources = FakeSources()
        self.runner = FakeRunner(self.ledger, self.clock, self.sources)
        self.executor = HeldExecutor()
        self.config = SchedulerSection(max_concurrent=max_concurrent, poll_interval=0.01)
        self.servers = 0
        self.suspended: list[tuple[str, str]] = []
        self.scheduler = self.another(self.database)

    def another(
        self, database: Database, server_id: str | None = None, *, arms: bool = True
    ) -> EmbeddedScheduler:
        self.servers += 1
        return EmbeddedScheduler(
            database=database,
            ledger=self.ledger,
            tables=self.catalog,
            run_refresh=self.runner.run,
            skip_refresh=self.runner.skip,
            watcher=ContinuousWatcher(
                tables=self.catalog, ledger=self.ledger, source_versions=self.sources
            ),
            config=self.config,
            clock=self.clock,
            server_id=server_id or f"server-{self.servers}",
            executor=self.executor,
            arms=arms,
            suspended=lambda table, reason: self.suspended.append((table.id, reason)),
        )

    def add(self, table_id: str = "t-1", cron: str = MINUTELY, **changes: object) -> Workflow:
        mt = table(id=table_id, name=name(table_id), **{"options": {}, **changes})
        self.catalog.create(mt)
        workflow = replace(workflow_for(mt, "UTC"), cron=cron, freshness_seconds=60)
        self.scheduler.create(CreateWorkflow(workflow=workflow, table=mt))
        return workflow

    def modify(self, workflow: Workflow) -> None:
        mt = self.catalog.by_id(workflow.table_id) or table(id=workflow.table_id)
        self.scheduler.modify(ModifyWorkflow(workflow=workflow, table=mt))

    def tick(self, seconds: float) -> None:
        self.scheduler.tick(self.clock.advance(seconds))

    def fires(self) -> list[object]:
        return [request.schedule_time for request in self.runner.requests]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.database.close()


def test_a_workflow_is_kept_with_its_next_fire(world: World) -> None:
    workflow = world.add()
    assert world.scheduler.workflow("t-1") == replace(workflow, next_fire=NEXT)
    assert world.scheduler.workflow("nope") is None


def test_a_second_workflow_of_a_table_is_refused(world: World) -> None:
    workflow = world.add()
    with pytest.raises(ServerError) as caught:
        world.scheduler.create(CreateWorkflow(workflow=workflow, table=table(id="t-1")))
    assert caught.value.code == "MT_ALREADY_EXISTS"


def test_a_missing_workflow_cannot_be_modified_but_deleted(world: World) -> None:
    workflow = Workflow(table_id="nope", mode=RefreshMode.FULL, freshness_seconds=60)
    with pytest.raises(ServerError) as caught:
        world.modify(workflow)
    assert caught.value.code == "MT_NOT_FOUND"
    world.scheduler.delete(DeleteWorkflow(table_id="nope"))


def test_nothing_runs_before_its_time(world: World) -> None:
    world.add()
    world.tick(59)
    world.executor.run_all()
    assert world.runner.requests == []


def test_a_due_workflow_runs_once_for_its_fire(world: World) -> None:
    world.add()
    world.tick(60)
    world.scheduler.tick(world.clock.now())
    world.executor.run_all()
    [request] = world.runner.requests
    assert request.trigger is Trigger.SCHEDULED
    assert request.schedule_time == NEXT
    assert request.recompute.partitions == ()
    assert request.requested_by == "ana"


def test_each_fire_follows_the_one_before(world: World) -> None:
    world.add()
    for _ in range(3):
        world.tick(60)
        world.executor.run_all()
    assert world.fires() == [NEXT + timedelta(minutes=n) for n in range(3)]


def test_several_missed_fires_become_the_latest_one(world: World) -> None:
    world.add()
    world.tick(5 * 60 + 30)
    world.executor.run_all()
    world.tick(1)
    world.executor.run_all()
    assert world.fires() == [NEXT + timedelta(minutes=4)]


def test_a_fire_during_the_previous_run_is_skipped(world: World) -> None:
    world.add()
    world.tick(60)
    world.tick(60)
    assert [r.schedule_time for r in world.runner.skipped] == [NEXT + timedelta(minutes=1)]
    world.executor.run_all()
    assert world.fires() == [NEXT]
    world.tick(60)
    world.executor.run_all()
    assert len(world.runner.requests) == 2


def test_a_fire_without_a_free_place_stays_due(tmp_path: Path) -> None:
    world = World(tmp_path, max_concurrent=1)
    world.add("t-1")
    world.add("t-2")
    world.tick(60)
    world.executor.run_all()
    world.tick(1)
    world.executor.run_all()
    assert {r.table_id for r in world.runner.requests} == {"t-1", "t-2"}
    assert world.fires() == [NEXT, NEXT]
    assert world.runner.skipped == []
    world.database.close()


def test_a_run_that_cannot_even_be_recorded_frees_its_place(world: World) -> None:
    world.add()
    world.runner.broken = error(Code.MT_NOT_FOUND, table="t-1")
    world.tick(60)
    world.executor.run_all()
    world.tick(60)
    world.executor.run_all()
    assert len(world.runner.requests) == 2


def test_a_suspended_workflow_does_not_fire_and_resumes_with_the_next(world: World) -> None:
    workflow = world.add()
    world.modify(replace(workflow, active=False))
    world.tick(300)
    assert world.executor.held == []
    world.modify(replace(workflow, active=True))
    resumed = world.scheduler.workflow("t-1")
    assert resumed is not None
    assert resumed.next_fire == NEXT + timedelta(minutes=5)


def test_modify_without_a_change_keeps_the_fire_that_is_due(world: World) -> None:
    workflow = world.add()
    world.clock.advance(90)
    world.modify(workflow)
    stored = world.scheduler.workflow("t-1")
    assert stored is not None
    assert stored.next_fire == NEXT


def test_changed_freshness_gives_a_new_fire(world: World) -> None:
    workflow = world.add()
    daily = replace(workflow, cron="0 0 0 * * ? *", freshness_seconds=86_400)
    world.modify(daily)
    stored = world.scheduler.workflow("t-1")
    assert stored is not None
    assert stored.next_fire == NOON.replace(day=3, hour=0, minute=0, second=0, microsecond=0)


def test_the_workflow_of_a_table_that_is_not_active_fires_into_nothing(world: World) -> None:
    world.add()
    world.catalog.move("t-1", RefreshStatus.ACTIVATED, RefreshStatus.SUSPENDED)
    world.tick(60)
    assert world.executor.held == []
    world.catalog.drop("t-1")
    world.tick(60)
    assert world.executor.held == []


def test_a_deleted_workflow_is_gone(world: World) -> None:
    world.add()
    world.scheduler.delete(DeleteWorkflow(table_id="t-1"))
    world.tick(60)
    assert world.executor.held == []


def test_a_partitioned_table_refreshes_its_current_partition_then_closes_it(world: World) -> None:
    formatter = {"partition.fields.Ds.date-formatter": "yyyy-MM-dd"}
    world.add(cron="0 0 0/1 * * ? *", options=formatter)
    world.tick(11 * 3600)
    world.executor.run_all()
    world.tick(3600)
    world.executor.run_all()
    assert [r.recompute.partitions for r in world.runner.requests] == [
        ({"Ds": "2024-01-02"},),
        ({"Ds": "2024-01-02"}, {"Ds": "2024-01-03"}),
    ]


def test_a_closed_partition_is_opened_again_while_late_data_come(world: World) -> None:
    options = {
        "partition.fields.Ds.date-formatter": "yyyy-MM-dd",
        "partition.fields.Ds.lateness": "PT2H",
    }
    versioned = (source("ev", "delta-ev"),)
    world.add(cron="0 0 0/1 * * ? *", options=options, sources=versioned)
    world.tick(11 * 3600)
    world.executor.run_all()
    world.sources.versions["delta-ev"] = 7
    for changed in (False, True, False):
        if changed:
            world.sources.versions["delta-ev"] += 1
        world.tick(3600)
        world.executor.run_all()
    yesterday, today = {"Ds": "2024-01-02"}, {"Ds": "2024-01-03"}
    assert [r.recompute.partitions for r in world.runner.requests] == [
        (yesterday,),
        (yesterday, today),
        (yesterday, today),
        (today,),
    ]


def test_a_refresh_of_single_rows_closes_no_partition(world: World) -> None:
    world.add(cron="0 0 0/1 * * ? *", options={"partition.fields.Ds.date-formatter": "yyyy-MM-dd"})
    world.tick(11 * 3600)
    world.executor.run_all()
    midnight = NOON + timedelta(hours=12, seconds=1)
    rows = {"action": Strategy.PARTITION, "state": RunState.SUCCEEDED, "started_at": midnight}
    world.ledger.record(run(refresh_id="by-hand", **rows))
    world.tick(3600)
    world.executor.run_all()
    assert world.runner.requests[-1].recompute.partitions == (
        {"Ds": "2024-01-02"},
        {"Ds": "2024-01-03"},
    )


def test_the_policy_of_a_table_is_obeyed(world: World) -> None:
    options = {
        "partition.fields.Ds.date-formatter": "yyyy-MM-dd HH:mm",
        "materialized-table.partition-refresh.policy": "WINDOW_START",
    }
    world.add(options=options)
    world.tick(60)
    world.executor.run_all()
    assert world.runner.requests[0].recompute.partitions == ({"Ds": "2024-01-02 12:00"},)


def test_unusable_options_cost_one_fire_at_a_time(world: World) -> None:
    world.add(options={"partition.fields.Ds.date-formatter": "no"})
    world.tick(60)
    assert world.executor.held == []
    stored = world.scheduler.workflow("t-1")
    assert stored is not None
    assert stored.next_fire == NEXT + timedelta(minutes=1)


def test_old_history_is_deleted(world: World) -> None:
    world.add()
    world.tick(60)
    world.executor.run_all()
    world.tick(60)
    world.executor.run_all()
    world.scheduler.forget_old_runs(world.clock.advance(91 * 86_400))
    assert [run.schedule_time for run in world.ledger.runs()] == [NEXT + timedelta(minutes=1)]


def test_schedules_survive_a_restart(world: World) -> None:
    world.add()
    reopened = Database(str(world.database.url))
    reopened.open()
    again = world.another(reopened)
    again.tick(world.clock.advance(60))
    world.executor.run_all()
    assert world.fires() == [NEXT]
    reopened.close()


def test_a_fire_is_claimed_by_one_of_two_servers(world: World) -> None:
    world.add()
    other_database = Database(str(world.database.url))
    stores = [FireQueue(world.database), FireQueue(other_database)]
    due = WorkflowStore(world.database).due(NEXT)[0]
    barrier = threading.Barrier(2)

    def claim(store: FireQueue) -> bool:
        barrier.wait()
        return store.advance(due, NEXT + timedelta(minutes=1), (), supersede=True)

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(claim, stores)) == [False, True]
    other_database.close()


def test_a_changed_source_starts_a_refresh(world: World) -> None:
    mt = table(id="c", name=name("c"), refresh_mode=RefreshMode.CONTINUOUS, options={})
    world.catalog.create(mt)
    world.sources.versions = {"delta-ev": 1}
    world.tick(1)
    world.tick(1)
    world.executor.run_all()
    [request] = world.runner.requests
    assert request.trigger is Trigger.INITIAL


def test_a_change_waits_silently_for_a_refresh_elsewhere(world: World) -> None:
    mt = table(id="c", name=name("c"), refresh_mode=RefreshMode.CONTINUOUS, options={})
    world.catalog.create(mt)
    world.sources.versions = {"delta-ev": 1}
    world.ledger.claim("c", "another server", world.clock.now(), 30)
    world.tick(1)
    assert world.executor.held == []
    world.tick(30)
    world.executor.run_all()
    assert len(world.runner.requests) == 1


def test_an_open_scheduler_fires_by_itself_and_waits_at_its_close(world: World) -> None:
    world.add()
    world.scheduler.open()
    world.clock.advance(60)
    deadline = threading.Event()
    for _ in range(1000):
        if world.executor.held or deadline.wait(0.01):
            break
    world.scheduler.close()
    assert len(world.executor.held) == 1
