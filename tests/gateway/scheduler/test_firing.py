"""Retries, suspension, missed fires, jitter, and fires that a dead server left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.contract.examples import NOON, run
from tests.gateway.scheduler.test_embedded import MINUTELY, NEXT, World
from tidegate_server.core.model.runs import Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import HeldVersion
from tidegate_server.gateway.scheduler.misfires import Misfire, due_fires, jitter
from tidegate_server.gateway.scheduler.workflows import WorkflowStore

LOST = {"error_class": "ENGINE_LOST", "sqlstate": "08006", "error_message": "it died"}
MINUTE = timedelta(minutes=1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.database.close()


def option(name: str, value: str) -> dict[str, dict[str, str]]:
    return {"options": {f"materialized-table.{name}": value}}


def tick(world: World, seconds: float) -> None:
    world.tick(seconds)
    world.executor.run_all()


def attempts(world: World) -> list[tuple[object, int]]:
    return [(request.schedule_time, request.attempt) for request in world.runner.requests]


# ---- retries -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_failure_that_may_pass_is_tried_again_ever_later(world: World) -> None:
    world.add(cron="0 0 0/1 * * ? *")
    world.runner.end, world.runner.failure = RunState.FAILED, LOST
    for _ in range(3700):
        tick(world, 1)
    assert [attempt for _, attempt in attempts(world)] == [1, 2, 3, 4]
    assert len({fire for fire, _ in attempts(world)}) == 1
    starts = [r.queued_at for r in reversed(world.ledger.runs())]
    gaps = [(b - a).total_seconds() for a, b in zip(starts, starts[1:], strict=False)]
    assert gaps == [5, 10, 20]


def test_any_other_failure_waits_for_the_next_fire(world: World) -> None:
    world.add()
    world.runner.end = RunState.FAILED
    tick(world, 60)
    tick(world, 30)
    assert attempts(world) == [(NEXT, 1)]


def test_a_success_ends_the_retries(world: World) -> None:
    world.add()
    world.runner.end, world.runner.failure = RunState.FAILED, LOST
    tick(world, 60)
    world.runner.end = RunState.SUCCEEDED
    tick(world, 5)
    tick(world, 20)
    assert attempts(world) == [(NEXT, 1), (NEXT, 2)]


def test_retries_can_be_turned_off(world: World) -> None:
    world.add(**option("refresh.retries", "0"))
    world.runner.end, world.runner.failure = RunState.FAILED, LOST
    tick(world, 60)
    tick(world, 30)
    assert attempts(world) == [(NEXT, 1)]


def test_the_next_fire_takes_the_place_of_a_retry(world: World) -> None:
    world.add()
    world.runner.end, world.runner.failure = RunState.FAILED, LOST
    tick(world, 60)
    tick(world, 60)
    assert attempts(world) == [(NEXT, 1), (NEXT + MINUTE, 1)]


def test_a_retry_survives_a_restart(world: World) -> None:
    world.add(cron="0 0 0/1 * * ? *")
    world.runner.end, world.runner.failure = RunState.FAILED, LOST
    tick(world, 3600)
    world.scheduler = world.another(world.database)
    tick(world, 5)
    assert [attempt for _, attempt in attempts(world)] == [1, 2]


def test_a_suspended_table_is_not_tried_again(world: World) -> None:
    workflow = world.add()
    world.runner.end, world.runner.failure = RunState.FAILED, LOST
    tick(world, 60)
    world.catalog.move("t-1", RefreshStatus.ACTIVATED, RefreshStatus.SUSPENDED)
    world.modify(replace(workflow, active=False))
    tick(world, 30)
    assert attempts(world) == [(NEXT, 1)]


# ---- suspension --------------------------------------------------------------------------------


def status(world: World) -> tuple[RefreshStatus, str]:
    found = world.catalog.by_id("t-1")
    assert found is not None
    return found.state.status, found.state.status_reason or ""


def fail(world: World, times: int) -> None:
    world.runner.end = RunState.FAILED
    for _ in range(times):
        tick(world, 60)


def test_five_failures_in_a_row_suspend_a_table(world: World) -> None:
    world.add()
    fail(world, 4)
    assert status(world) == (RefreshStatus.ACTIVATED, "")
    fail(world, 3)
    assert len(world.runner.requests) == 5
    found, reason = status(world)
    assert found is RefreshStatus.SUSPENDED
    assert reason.startswith("SUSPENDED_DUE_TO_ERRORS: 5 refreshes failed in a row")
    assert world.suspended == [("t-1", reason)]
    workflow = world.scheduler.workflow("t-1")
    assert workflow is not None
    assert not workflow.active


def test_a_success_begins_the_count_anew(world: World) -> None:
    world.add()
    fail(world, 4)
    world.runner.end = RunState.SUCCEEDED
    tick(world, 60)
    fail(world, 4)
    assert status(world)[0] is RefreshStatus.ACTIVATED


def test_a_success_by_hand_counts_too(world: World) -> None:
    world.add()
    fail(world, 4)
    world.ledger.record(run(refresh_id="hand", state=RunState.SUCCEEDED, started_at=NEXT))
    fail(world, 4)
    assert status(world)[0] is RefreshStatus.ACTIVATED


def test_a_resume_begins_the_count_anew(world: World) -> None:
    workflow = world.add(**option("suspend-after-failures", "2"))
    fail(world, 2)
    assert status(world)[0] is RefreshStatus.SUSPENDED
    world.catalog.move("t-1", RefreshStatus.SUSPENDED, RefreshStatus.ACTIVATED)
    world.modify(workflow)
    fail(world, 1)
    assert status(world)[0] is RefreshStatus.ACTIVATED
    fail(world, 1)
    assert status(world)[0] is RefreshStatus.SUSPENDED


def test_zero_never_suspends(world: World) -> None:
    world.add(**option("suspend-after-failures", "0"))
    fail(world, 20)
    assert status(world)[0] is RefreshStatus.ACTIVATED


def test_the_attempts_for_one_fire_are_one_failure(world: World) -> None:
    world.add(cron="0 0 0/1 * * ? *", **option("suspend-after-failures", "2"))
    world.runner.end, world.runner.failure = RunState.FAILED, LOST
    for _ in range(40):
        tick(world, 100)
    assert len(world.runner.requests) == 4
    assert status(world)[0] is RefreshStatus.ACTIVATED


# ---- missed fires ------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "fires"), [("ONCE", 1), ("SKIP", 0), ("ALL", 5)])
def test_the_misfire_policy_is_obeyed(world: World, policy: str, fires: int) -> None:
    world.add(cron="0 0 0/1 * * ? *", **option("schedule.misfire", policy))
    tick(world, 5 * 3600 + 300)
    for _ in range(10):
        tick(world, 1)
    times = [request.schedule_time for request in world.runner.requests]
    assert times == sorted(times, key=str)
    assert len(set(times)) == len(times) == fires


def test_a_fire_that_is_skipped_as_missed_is_recorded(world: World) -> None:
    world.add(cron="0 0 0/1 * * ? *", **option("schedule.misfire", "SKIP"))
    tick(world, 5 * 3600 + 300)
    [skipped] = world.ledger.runs()
    assert (skipped.state, skipped.reason_code) == (RunState.SKIPPED, "MISFIRED")
    tick(world, 3600)
    assert len(world.runner.requests) == 0
    tick(world, 3600 - 290)
    assert len(world.runner.requests) == 1


def test_fires_of_a_table_with_a_held_version_are_skipped(world: World) -> None:
    world.add()
    held = HeldVersion(refresh_id="r-1", since=NOON, reason="too few rows")
    world.catalog.record_held_version("t-1", held)
    tick(world, 70)
    assert world.runner.requests == []
    [skipped] = world.ledger.runs()
    assert (skipped.state, skipped.reason_code, skipped.reason_text) == (
        RunState.SKIPPED,
        "VERSION_HELD",
        held.reason,
    )
    world.catalog.record_held_version("t-1", None)
    tick(world, 60)
    assert len(world.runner.requests) == 1


def test_with_all_a_fire_during_a_run_is_not_skipped(world: World) -> None:
    world.add(**option("schedule.misfire", "ALL"))
    world.tick(60)
    world.tick(60)
    assert world.runner.skipped == []
    world.executor.run_all()
    tick(world, 1)
    assert world.fires() == [NEXT, NEXT + MINUTE]


def test_with_all_a_fire_waits_for_a_refresh_elsewhere(world: World) -> None:
    world.add(**option("schedule.misfire", "ALL"))
    world.ledger.claim("t-1", "another server", NEXT - MINUTE, 90)
    tick(world, 60)
    assert world.runner.requests == []
    tick(world, 30)
    assert world.fires() == [NEXT]


def test_endless_missed_fires_are_taken_up_in_portions() -> None:
    first, now = NEXT, NEXT + timedelta(days=30)
    due = due_fires(MINUTELY, "UTC", first, now, Misfire.ALL)
    assert len(due.run) == 100
    assert due.following == first + 100 * MINUTE


# ---- jitter ------------------------------------------------------------------------------------


def test_jitter_delays_a_table_always_by_the_same(world: World) -> None:
    world.add(**option("schedule.jitter", "30 s"))
    delay = jitter("t-1", timedelta(seconds=30))
    assert timedelta() < delay < timedelta(seconds=30)
    world.clock.moment = NEXT - timedelta(seconds=1)
    tick(world, 1)
    assert world.runner.requests == []
    tick(world, delay.total_seconds() + 0.001)
    assert world.fires() == [NEXT]


def test_jitter_spreads_tables(world: World) -> None:
    delays = {jitter(f"t-{n}", timedelta(seconds=60)) // timedelta(seconds=10) for n in range(100)}
    assert delays == set(range(6))


# ---- a server that died ------------------------------------------------------------------------


def die(world: World) -> None:
    """Forget what was begun, as a crash does, and start again under another name."""
    world.executor.held.clear()
    world.scheduler = world.another(world.database)


def record_run(world: World, state: RunState, attempt: int = 1) -> None:
    left = run(
        refresh_id=f"left-{attempt}",
        trigger=Trigger.SCHEDULED,
        schedule_time=NEXT,
        state=state,
        attempt=attempt,
        started_at=NEXT,
    )
    world.ledger.record(left)


def test_a_fire_whose_server_died_is_run_when_its_claim_ends(world: World) -> None:
    world.add(cron="0 1 12 * * ? *")
    world.tick(60)
    die(world)
    tick(world, 29)
    assert world.runner.requests == []
    tick(world, 1)
    assert attempts(world) == [(NEXT, 1)]


def test_a_fire_that_had_begun_is_tried_again(world: World) -> None:
    world.add(cron="0 1 12 * * ? *")
    world.tick(60)
    record_run(world, RunState.RUNNING)
    die(world)
    tick(world, 60)
    assert world.runner.requests == []
    record_run(world, RunState.ABANDONED)
    tick(world, 1)
    assert attempts(world) == [(NEXT, 2)]


def test_a_fire_that_was_committed_is_not_run_again(world: World) -> None:
    world.add(cron="0 1 12 * * ? *")
    world.tick(60)
    record_run(world, RunState.SUCCEEDED)
    die(world)
    for _ in range(5):
        tick(world, 60)
    assert world.runner.requests == []


def test_a_fire_that_a_stop_interrupted_is_run_by_the_next_server(world: World) -> None:
    world.add(cron="0 1 12 * * ? *")
    world.runner.end, world.runner.changes = RunState.CANCELLED, {"reason_code": "SERVER_STOPPED"}
    tick(world, 60)
    world.runner.end, world.runner.changes = RunState.SUCCEEDED, {}
    die(world)
    tick(world, 1)
    assert attempts(world) == [(NEXT, 1), (NEXT, 2)]


def test_a_fire_that_somebody_canceled_is_done(world: World) -> None:
    world.add(cron="0 1 12 * * ? *")
    world.runner.end, world.runner.changes = RunState.CANCELLED, {"reason_code": "CANCELED"}
    tick(world, 60)
    tick(world, 600)
    assert attempts(world) == [(NEXT, 1)]


def test_a_refresh_that_kills_its_server_is_given_up(world: World) -> None:
    world.add(cron="0 1 12 * * ? *", **option("refresh.retries", "0"))
    world.tick(60)
    record_run(world, RunState.ABANDONED, attempt=2)
    die(world)
    tick(world, 60)
    assert world.runner.requests == []


def test_claims_last_while_their_server_lives(world: World) -> None:
    world.add(cron="0 1 12 * * ? *")
    world.tick(60)
    other = world.another(world.database, server_id="other")
    for _ in range(20):
        now = world.clock.advance(10)
        world.scheduler.fire_due(now)
        other.fire_due(now)
    world.executor.run_all()
    assert attempts(world) == [(NEXT, 1)]


def test_the_last_fire_of_a_schedule_runs_and_none_follows(world: World) -> None:
    world.add(cron="0 1 12 2 1 ? 2024")
    tick(world, 60)
    tick(world, 3600)
    assert attempts(world) == [(NEXT, 1)]
    stored = world.scheduler.workflow("t-1")
    assert stored is not None
    assert (stored.active, stored.next_fire) == (True, None)


@pytest.mark.parametrize("policy", ["ONCE", "ALL", "SKIP"])
def test_a_schedule_that_ended_while_the_server_was_down_is_made_up_for(
    world: World, policy: str
) -> None:
    world.add(cron="0 1,2 12 2 1 ? 2024", **option("schedule.misfire", policy))
    tick(world, 86_400)
    for _ in range(3):
        tick(world, 1)
    second = NEXT + MINUTE
    fires = {"ONCE": [second], "ALL": [NEXT, second], "SKIP": []}
    assert [moment for moment, _ in attempts(world)] == fires[policy]


def test_a_schedule_that_cannot_be_read_suspends_its_table(world: World) -> None:
    workflow = world.add()
    stored = replace(workflow, cron="0 12 * * 1-5", next_fire=NEXT)
    WorkflowStore(world.database).replace(stored)
    tick(world, 60)
    tick(world, 60)
    [(table_id, reason)] = world.suspended
    assert table_id == "t-1"
    assert "in Quartz it is 0 0 12 ? * MON-FRI" in reason
    table = world.catalog.by_id("t-1")
    assert table is not None
    assert table.state.status is RefreshStatus.SUSPENDED


def test_the_partitions_of_a_fire_are_those_of_its_schedules_zone(world: World) -> None:
    options = {
        "partition.fields.Ds.date-formatter": "yyyy-MM-dd",
        "materialized-table.schedule.timezone": "Asia/Shanghai",
    }
    world.add(cron="0 0 0/1 * * ? *", options=options)
    for _ in range(6):  # noon in UTC is eight in the evening in Shanghai
        tick(world, 3600)
    yesterday, today = {"Ds": "2024-01-02"}, {"Ds": "2024-01-03"}
    assert [request.recompute.partitions for request in world.runner.requests] == [
        (yesterday,),
        (yesterday,),
        (yesterday,),
        (yesterday, today),
        (today,),
        (today,),
    ]


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Asia/Kolkata", "2024-03-31", 24),
        ("Europe/Berlin", "2024-03-31", 23),
        ("Europe/Berlin", "2024-10-27", 24),
        ("America/Havana", "2024-03-10", 23),
        ("America/Havana", "2024-11-03", 24),
        ("Australia/Lord_Howe", "2024-04-07", 24),
        ("Australia/Lord_Howe", "2024-10-06", 24),
    ],
)
@pytest.mark.parametrize("policy", ["SCHEDULE_TIME", "WINDOW_START", "WINDOW"])
def test_every_hour_of_a_day_is_read_after_its_end_when_clocks_are_changed(
    world: World, zone: str, day: str, hours: int, policy: str
) -> None:
    clock = ZoneInfo(zone)
    midnight = datetime.fromisoformat(day).replace(tzinfo=clock).astimezone(UTC)
    world.clock.moment = midnight - timedelta(hours=2)
    options = {
        "partition.fields.Ds.date-formatter": "yyyy-MM-dd HH",
        "materialized-table.schedule.timezone": zone,
        "materialized-table.partition-refresh.policy": policy,
    }
    workflow = world.add(cron="0 0 0/1 * * ? *", options=options)
    world.modify(replace(workflow, freshness_seconds=3600))
    for _ in range(30 * 2):
        tick(world, 1800)
    ends: dict[str, datetime] = {}
    for n in range(27 * 12):
        moment = midnight + timedelta(minutes=5) * n
        ends[f"{moment.astimezone(clock):%Y-%m-%d %H}"] = moment
    read = [name for name in ends if name.startswith(day)]
    assert len(read) == hours
    for name in read:
        times = [
            r.schedule_time for r in world.runner.requests if {"Ds": name} in r.recompute.partitions
        ]
        assert max(time for time in times if time is not None) > ends[name], name
