"""Which strategy a refresh takes, and the reason it gives."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tidegate_server.model.names import TableName
from tidegate_server.model.runs import Strategy, Trigger
from tidegate_server.model.versions import Source, SourceKind
from tidegate_server.refresh.planner import plan_refresh
from tidegate_server.refresh.request import CommittedRefresh, RefreshOrder

NAME = TableName("spark_catalog", "s", "mt")
ORDER = RefreshOrder(
    refresh_id="r2",
    table_id="m",
    name=NAME,
    definition_version=1,
    expanded_query="select a from t",
    columns=("a",),
    partition_keys=("a",),
    sources=(
        Source(name=TableName("spark_catalog", "s", "t"), kind=SourceKind.VERSIONED, table_id="t"),
    ),
    epoch=2,
    trigger=Trigger.SCHEDULED,
    logical_time=datetime(2026, 1, 1, tzinfo=UTC),
)
LAST = CommittedRefresh(epoch=1, version=1, definition_version=1, vector={"t": 4}, refresh_id="r1")
PLAIN = Source(name=TableName("spark_catalog", "s", "p"), kind=SourceKind.PLAIN, table_id="p")


def test_nothing_is_done_when_no_source_changed() -> None:
    plan = plan_refresh(ORDER, {"t": 4}, LAST)
    assert (plan.strategy, plan.reason_code) == (Strategy.NO_DATA, "SOURCES_UNCHANGED")
    assert plan.vector == {"t": 4}


@pytest.mark.parametrize(
    ("order", "current", "last", "code"),
    [
        (ORDER, {"t": 4}, None, "FIRST_REFRESH"),
        (ORDER, {"t": 5}, LAST, "SOURCES_CHANGED"),
        (ORDER, {"new": 4}, LAST, "SOURCES_CHANGED"),
        (ORDER, {}, LAST, "SOURCES_CHANGED"),
        (ORDER, {"t": 3}, LAST, "SOURCES_CHANGED"),
        (replace(ORDER, force=True), {"t": 4}, LAST, "FORCED"),
        (replace(ORDER, definition_version=2), {"t": 4}, LAST, "DEFINITION_CHANGED"),
        (ORDER, {"t": 4}, replace(LAST, partial=True), "PARTIAL_BEFORE"),
        (ORDER, {"t": 4}, replace(LAST, foreign_version=7), "FOREIGN_COMMIT"),
        (replace(ORDER, sources=(PLAIN,)), {"t": 4}, LAST, "SOURCE_WITHOUT_VERSIONS"),
    ],
)
def test_the_whole_table_is_computed_for_a_reason(
    order: RefreshOrder, current: dict[str, int], last: CommittedRefresh | None, code: str
) -> None:
    plan = plan_refresh(order, current, last)
    assert (plan.strategy, plan.reason_code) == (Strategy.FULL, code)
    assert plan.reason_text


def test_a_query_of_the_time_is_computed_again() -> None:
    plan = plan_refresh(ORDER, {"t": 4}, LAST, stable=False)
    assert (plan.strategy, plan.reason_code) == (Strategy.FULL, "UNSTABLE_QUERY")


def test_requested_partitions_are_replaced_whatever_changed() -> None:
    order = replace(ORDER, partitions=({"a": "1"}, {"a": "2"}))
    plan = plan_refresh(order, {"t": 4}, LAST)
    assert plan.strategy is Strategy.PARTITION
    assert plan.partitions == order.partitions
    assert "2 requested" in plan.reason_text


def test_the_vector_of_a_plan_is_a_copy() -> None:
    current = {"t": 5}
    plan = plan_refresh(ORDER, current, LAST)
    current["t"] = 6
    assert plan.vector == {"t": 5}
