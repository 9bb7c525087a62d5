"""Measured freshness from histories made by hand."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.contract.examples import NOON, run, table
from tidegate_server.core.model.clauses import OnUpdate
from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.core.model.runs import RefreshRun, Strategy, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import HeldVersion, RefreshMode
from tidegate_server.gateway.freshness.lag import LagCause, lag_report

HOURLY = table(freshness=Freshness(1, TimeUnit.HOUR))
WATCHED = table(freshness=Freshness(40, TimeUnit.SECOND), refresh_mode=RefreshMode.CONTINUOUS)


def finished_run(minute: float, took: float = 1, **changes: Any) -> RefreshRun:
    """Return a run that began ``minute`` after noon, and took so many minutes."""
    begin = NOON + timedelta(minutes=minute)
    values: dict[str, Any] = {
        "refresh_id": f"r{minute}",
        "state": RunState.SUCCEEDED,
        "action": Strategy.FULL,
        "trigger": Trigger.SCHEDULED,
        "queued_at": begin,
        "started_at": begin,
        "finished_at": begin + timedelta(minutes=took),
        "sources": {"delta-ev": 1},
        **changes,
    }
    return run(**values)


def at(minute: float) -> Any:
    return NOON + timedelta(minutes=minute)


def test_without_a_refresh_nothing_is_known() -> None:
    report = lag_report(HOURLY, [], NOON)
    assert (report.actual, report.p50, report.within_target) == (None, None, None)
    assert not report.breached
    assert report.cause is None


def test_the_lag_counts_from_what_the_last_refresh_read() -> None:
    report = lag_report(HOURLY, [finished_run(0)], at(31))
    assert (report.actual, report.exact, report.target) == (31 * 60, False, 3600)
    assert report.data_timestamp == NOON
    assert report.causes == {LagCause.SCHEDULE: 30 * 60, LagCause.RUNNING: 60}


def test_a_held_version_is_what_is_waited_for() -> None:
    waiting = table(held=HeldVersion(refresh_id="r30", since=NOON, reason="too few rows"))
    held = finished_run(30, state=RunState.FAILED, error_class="MT_VERSION_HELD")
    skipped = finished_run(60, 0, state=RunState.SKIPPED)
    report = lag_report(waiting, [finished_run(0), held, skipped], at(91))
    assert report.causes == {LagCause.RUNNING: 2 * 60, LagCause.HELD: 89 * 60}
    assert report.cause is LagCause.HELD


def test_unchanged_sources_are_no_lag() -> None:
    report = lag_report(HOURLY, [finished_run(0)], at(600), current={"delta-ev": 1})
    assert (report.actual, report.exact, report.breached) == (0, True, False)
    assert report.longest == 0


def test_a_late_table_breaches_its_target_and_says_why() -> None:
    failed = finished_run(60, 5, state=RunState.FAILED, action=None)
    report = lag_report(HOURLY, [failed, finished_run(0)], at(120))
    assert report.breached
    assert report.causes == {
        LagCause.RUNNING: 6 * 60,
        LagCause.SCHEDULE: 59 * 60,
        LagCause.FAILING: 55 * 60,
    }
    assert report.cause is LagCause.SCHEDULE


def test_a_failed_upstream_and_a_suspension_are_causes() -> None:
    stopped = finished_run(10, 0, state=RunState.UPSTREAM_FAILED, action=None, started_at=None)
    assert lag_report(HOURLY, [finished_run(0), stopped], at(60)).cause is LagCause.UPSTREAM
    suspended = table(status=RefreshStatus.SUSPENDED)
    assert lag_report(suspended, [finished_run(0)], at(60)).cause is LagCause.SUSPENDED


def test_waiting_for_a_place_is_a_cause() -> None:
    queued = run(refresh_id="q", state=RunState.QUEUED, queued_at=at(10))
    report = lag_report(HOURLY, [finished_run(0), queued], at(60))
    assert (report.cause, report.causes[LagCause.QUEUE]) == (LagCause.QUEUE, 50 * 60)


def test_the_share_within_the_target_is_one_of_time() -> None:
    report = lag_report(HOURLY, [finished_run(0, 0), finished_run(120, 0)], at(120))
    assert report.within_target == pytest.approx(0.5)
    assert report.longest == 7200
    assert report.p50 == pytest.approx(3600, abs=0.01)
    assert report.p95 == pytest.approx(7200 * 0.95, abs=0.01)


def test_a_refresh_that_found_nothing_rules_a_lag_out() -> None:
    nothing = finished_run(300, 0, action=Strategy.NO_DATA)
    report = lag_report(HOURLY, [finished_run(0, 0), nothing], at(300))
    assert (report.within_target, report.longest) == (1, 0)


def test_only_the_last_day_counts() -> None:
    old = [finished_run(0, 0), finished_run(600, 0)]
    report = lag_report(HOURLY, [*old, finished_run(2400, 0, action=Strategy.NO_DATA)], at(2400))
    assert report.longest == 0


def test_partitions_alone_do_not_make_a_table_fresh() -> None:
    part = finished_run(50, action=Strategy.PARTITION)
    assert lag_report(HOURLY, [finished_run(0), part], at(60)).actual == 3600


def test_a_watched_table_that_saw_no_change_has_no_lag() -> None:
    assert lag_report(WATCHED, [finished_run(0)], at(600)).actual == 0


def test_a_watched_table_lags_from_the_change_that_it_saw() -> None:
    changed = finished_run(60, 1, trigger=Trigger.UPSTREAM_CHANGE)
    report = lag_report(WATCHED, [finished_run(0), changed], at(90))
    assert report.longest == 70
    failing = finished_run(
        60, 1, trigger=Trigger.UPSTREAM_CHANGE, state=RunState.FAILED, action=None
    )
    report = lag_report(WATCHED, [finished_run(0), failing], at(90))
    assert report.actual == 30 * 60 + 10
    assert report.cause is LagCause.FAILING


def test_a_table_with_a_trigger_is_measured_as_a_watched_one() -> None:
    every = OnUpdate(at_most_every=Freshness(10, TimeUnit.MINUTE))
    triggered = table(freshness=Freshness(1, TimeUnit.HOUR), on_update=every)
    assert lag_report(triggered, [finished_run(0)], at(600)).actual == 0
    changed = finished_run(60, 1, trigger=Trigger.UPSTREAM_CHANGE)
    assert lag_report(triggered, [finished_run(0), changed], at(90)).longest == 11 * 60
