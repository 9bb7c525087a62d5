"""From when on rows are immutable."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tests.core.refresh.test_planner import LAST, ORDER
from tidegate_server.core.model.runs import Strategy
from tidegate_server.engine.planning.planner import plan_refresh, telling_region
from tidegate_server.engine.planning.region import with_region

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
FROZEN = replace(ORDER, immutable="a < 5", logical_time=NOW)


def test_nothing_is_before_the_table_was_computed_as_a_whole() -> None:
    assert with_region(FROZEN, None) == FROZEN
    assert with_region(FROZEN, replace(LAST, partial=True, filled=False)).frozen_at is None
    partly = with_region(FROZEN, replace(LAST, partial=True, filled=True))
    assert (partly.filled, partly.frozen_at) == (True, NOW)
    assert with_region(replace(FROZEN, immutable=None), LAST).frozen_at is None


def test_the_moment_never_goes_back() -> None:
    for last in (
        replace(LAST, logical_time=NOW + HOUR),
        replace(LAST, logical_time=NOW - HOUR, frozen_at=NOW + HOUR),
    ):
        assert with_region(FROZEN, last).frozen_at == NOW + HOUR
    assert with_region(FROZEN, replace(LAST, logical_time=NOW - HOUR)).frozen_at == NOW


def test_a_plan_says_what_it_leaves_as_it_is() -> None:
    order = with_region(FROZEN, LAST)
    plan = plan_refresh(order, {"t": 99}, LAST)
    told = telling_region(plan, order)
    assert told.reason_text == f"{plan.reason_text}; rows where a < 5 stay as they are"
    idle = replace(plan, strategy=Strategy.NO_DATA)
    assert telling_region(idle, order) == idle
    assert telling_region(plan, FROZEN) == plan
