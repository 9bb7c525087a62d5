"""One refresh of a table at a time, and the refreshes that are skipped."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from tests.contract.examples import NOON
from tests.gateway.runs.fakes import OUTCOME, PATIENT, Gate, World, request
from tidegate_server.core.model.runs import Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.refresh.request import (
    RefreshOrder,
    RefreshOutcome,
)
from tidegate_server.gateway.scheduler.base import (
    DEFINITION_LEASE,
)
from tidegate_server.gateway.store.database import Database


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
