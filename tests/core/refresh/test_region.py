"""From when on rows are immutable."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.core.refresh.test_planner import LAST, ORDER, RECORD
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.request import Recompute
from tidegate_server.engine.planning.planner import plan_refresh, with_region
from tidegate_server.engine.planning.region import ImmutableRegion, region_of
from tidegate_server.engine.storage.commit_record import RecordedRefresh

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
FROZEN = replace(ORDER, immutable="a < 5", logical_time=NOW)


def last(*, partial: bool = False, **recorded: Any) -> RecordedRefresh:
    """Return a last refresh that recorded these values."""
    return replace(LAST, partial=partial, record=replace(RECORD, **recorded))


def test_nothing_is_before_the_table_was_computed_as_a_whole() -> None:
    assert region_of(FROZEN, None) == ImmutableRegion(filled=False, frozen_at=None)
    assert region_of(FROZEN, last(partial=True, filled=False)).frozen_at is None
    partly = region_of(FROZEN, last(partial=True, filled=True))
    assert (partly.filled, partly.frozen_at) == (True, NOW)
    assert region_of(replace(FROZEN, immutable=None), LAST).frozen_at is None


def test_the_moment_never_goes_back() -> None:
    for before in (
        last(logical_time=NOW + HOUR),
        last(logical_time=NOW - HOUR, frozen_at=NOW + HOUR),
    ):
        assert region_of(FROZEN, before).frozen_at == NOW + HOUR
    assert region_of(FROZEN, last(logical_time=NOW - HOUR)).frozen_at == NOW


def test_a_plan_says_what_it_leaves_as_it_is() -> None:
    region = region_of(FROZEN, LAST)
    plan = plan_refresh(FROZEN, Recompute(), {"t": 99}, LAST)
    text = with_region(plan, FROZEN, region).reason_text
    assert text == f"{plan.reason_text}; rows where a < 5 stay as they are"
    idle = replace(plan, strategy=Strategy.NO_DATA)
    assert with_region(idle, FROZEN, region) == idle
    assert with_region(plan, FROZEN, region_of(FROZEN, None)) == plan
