"""Recovery of what a dead server left: runs, creations and drops."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.contract.examples import NOON, name, run, table
from tests.gateway.runs.fakes import PATIENT, Gate, World, commit, record_running, request
from tidegate_server.core.model.runs import Strategy, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import Dropping
from tidegate_server.core.refresh.request import (
    CommittedRefresh,
)
from tidegate_server.gateway.scheduler.base import (
    CREATION_LEASE,
    DEFINITION_LEASE,
)


def test_a_run_whose_commit_stands_is_completed_from_it(world: World) -> None:
    left = record_running(world)
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
    record_running(world)
    world.engine.commit = commit("r-1", partial=True)
    world.recovery().recover(NOON)
    assert world.states() == [RunState.SUCCEEDED]
    assert world.ledger.last_success("t-1") is None


@pytest.mark.parametrize("last", [None, commit("an older run")])
def test_a_run_without_its_commit_is_abandoned(world: World, last: CommittedRefresh | None) -> None:
    record_running(world)
    world.engine.commit = last
    world.recovery().recover(NOON)
    assert world.states() == [RunState.ABANDONED]


def test_the_lease_of_a_dead_run_is_free_at_once(world: World) -> None:
    record_running(world)
    world.recovery().recover(NOON)
    assert world.ledger.holder("t-1", NOON) is None
    assert world.refresher.run(request()).epoch == 2


def test_a_run_that_had_not_begun_is_cancelled(world: World) -> None:
    world.ledger.record(run())
    world.recovery().recover(NOON)
    assert world.states() == [RunState.CANCELLED]


def test_a_run_of_a_dropped_table_is_abandoned(world: World) -> None:
    record_running(world)
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
    record_running(world, "another server")
    recovery = world.recovery(shared=True)
    recovery.recover(NOON)
    assert world.states() == [RunState.RUNNING]
    recovery.recover(NOON + timedelta(seconds=31))
    assert world.states() == [RunState.ABANDONED]


def test_without_an_engine_recovery_is_left_for_later(world: World) -> None:
    record_running(world)
    world.engine.down = True
    assert not world.recovery().recover(NOON)
    assert world.states() == [RunState.RUNNING]
    world.engine.down = False
    assert world.recovery().recover(NOON)
    assert world.states() == [RunState.ABANDONED]


def create_half(world: World, **changes: Any) -> None:
    values: dict[str, Any] = {
        "id": "t-2",
        "name": name("half"),
        "status": RefreshStatus.INITIALIZING,
        "created_at": NOON - timedelta(seconds=1),
        **changes,
    }
    world.catalog.create(table(**values))


def test_a_create_that_never_ended_is_taken_back_with_its_storage(world: World) -> None:
    create_half(world)
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
    create_half(world)
    assert world.ledger.claim(f"{CREATION_LEASE}t-2", f"{server}/definition/op", NOON, 30)
    world.recovery(shared=shared).recover(NOON)
    assert (world.catalog.by_id("t-2") is not None) is left
    world.recovery(shared=shared).recover(NOON + timedelta(seconds=31))
    assert world.catalog.by_id("t-2") is None


def test_a_drop_that_did_not_end_is_completed(world: World) -> None:
    world.catalog.replace(table(pending=Dropping(), location="/place"))
    key = f"{DEFINITION_LEASE}t-1"
    assert world.ledger.claim(key, "server-2/definition/op", NOON, 30)
    world.recovery().recover(NOON)
    assert world.catalog.by_id("t-1") is not None
    world.ledger.release(key, "server-2/definition/op")
    world.recovery().recover(NOON)
    assert world.catalog.by_id("t-1") is None
    assert world.engine.dropped == ["t-1"]
