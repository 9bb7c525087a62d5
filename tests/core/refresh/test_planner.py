"""Which strategy a refresh takes, and the reason it gives."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import (
    ChangeMethod,
    RunMetrics,
    SourceChange,
    Strategy,
    Trigger,
    Work,
)
from tidegate_server.core.model.versions import Source, SourceKind
from tidegate_server.core.refresh.eligibility import Obstacle
from tidegate_server.core.refresh.request import (
    CommittedRefresh,
    PastRun,
    Recompute,
    RefreshOrder,
    RefreshPolicy,
)
from tidegate_server.engine.planning.cost import Way
from tidegate_server.engine.planning.planner import (
    Evidence,
    incremental_work,
    plan_incremental,
    plan_refresh,
    records_totals,
    without_fingerprints,
)
from tidegate_server.engine.storage.commit_record import CommitRecord, RecordedRefresh

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
RECORD = CommitRecord(
    vector={"t": 4}, definition_version=1, logical_time=datetime(2025, 12, 31, tzinfo=UTC)
)
LAST = RecordedRefresh(epoch=1, version=1, refresh_id="r1", record=RECORD)
PLAIN = Source(name=TableName("spark_catalog", "s", "p"), kind=SourceKind.PLAIN, table_id="p")


def test_nothing_is_done_when_no_source_changed() -> None:
    plan = plan_refresh(ORDER, Recompute(), {"t": 4}, LAST)
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
        (replace(ORDER, definition_version=2), {"t": 4}, LAST, "DEFINITION_CHANGED"),
        (ORDER, {"t": 4}, replace(LAST, partial=True), "PARTIAL_BEFORE"),
        (ORDER, {"t": 4}, replace(LAST, foreign_version=7), "FOREIGN_COMMIT"),
        (replace(ORDER, sources=(PLAIN,)), {"t": 4}, LAST, "SOURCE_WITHOUT_VERSIONS"),
        (replace(ORDER, checkpoint_floor=1), {"t": 4}, LAST, "FROM_BEGINNING"),
    ],
)
def test_the_whole_table_is_computed_for_a_reason(
    order: RefreshOrder, current: dict[str, int], last: RecordedRefresh | None, code: str
) -> None:
    plan = plan_refresh(order, Recompute(), current, last)
    assert (plan.strategy, plan.reason_code) == (Strategy.FULL, code)
    assert plan.reason_text


def test_a_forced_refresh_is_full() -> None:
    plan = plan_refresh(ORDER, Recompute(force=True), {"t": 4}, LAST)
    assert (plan.strategy, plan.reason_code) == (Strategy.FULL, "FORCED")


@pytest.mark.parametrize("before", [None, "e"])
def test_another_fingerprint_is_a_changed_definition(before: str | None) -> None:
    last = replace(LAST, record=replace(RECORD, fingerprint=before))
    plan = plan_refresh(ORDER, Recompute(), {"t": 4}, last, fingerprint="f")
    assert (plan.strategy, plan.reason_code) == (Strategy.FULL, "DEFINITION_CHANGED")


def test_a_query_of_the_time_is_computed_again() -> None:
    plan = plan_refresh(ORDER, Recompute(), {"t": 4}, LAST, stable=False)
    assert (plan.strategy, plan.reason_code) == (Strategy.FULL, "UNSTABLE_QUERY")


def test_requested_partitions_are_replaced_whatever_changed() -> None:
    task = Recompute(partitions=({"a": "1"}, {"a": "2"}))
    plan = plan_refresh(ORDER, task, {"t": 4}, LAST)
    assert plan.strategy is Strategy.PARTITION
    assert plan.partitions == task.partitions
    assert "2 requested" in plan.reason_text


def test_requested_rows_are_replaced_whatever_changed() -> None:
    plan = plan_refresh(ORDER, Recompute(predicate="a > 1"), {"t": 4}, LAST)
    assert (plan.strategy, plan.reason_code) == (Strategy.PARTITION, "ROWS_REQUESTED")


def test_a_source_of_another_history_is_another_table() -> None:
    plan = plan_refresh(ORDER, Recompute(), {"t": 4}, LAST, others=("spark_catalog.s.t",))
    assert (plan.strategy, plan.reason_code) == (Strategy.FULL, "SOURCES_REPLACED")


def test_snapshots_that_versions_stand_for_are_shown() -> None:
    full = plan_refresh(ORDER, Recompute(), {"t": 5}, LAST, snapshots={"t": "77"})
    [change] = full.changes
    assert (change.before, change.after, change.method, change.snapshot) == (4, 5, "WHOLE", "77")
    found = replace(change, method=ChangeMethod.APPENDED, rows=1, snapshot=None)
    evidence = Evidence(
        changes=(found,), appends=True, whole=Work(rows_read=10_000, rows_written=0)
    )
    [change] = plan_incremental(ORDER, full, evidence).changes
    assert (change.method, change.rows, change.snapshot) == ("APPENDED", 1, "77")


# ---- sources without versions ------------------------------------------------------------------

MIXED = replace(ORDER, sources=(*ORDER.sources, PLAIN))
BOTH = replace(LAST, record=replace(RECORD, vector={"t": 4, "p": 77}))


def test_files_with_the_recorded_fingerprint_are_unchanged() -> None:
    plan = plan_refresh(MIXED, Recompute(), {"t": 4, "p": 77}, BOTH)
    assert plan.strategy is Strategy.NO_DATA
    assert [(c.method, c.before, c.after) for c in plan.changes] == [
        ("UNCHANGED", 4, 4),
        ("FINGERPRINT", 77, 77),
    ]
    assert (
        plan_refresh(MIXED, Recompute(), {"t": 5, "p": 77}, BOTH).reason_code == "SOURCES_CHANGED"
    )


@pytest.mark.parametrize(
    ("current", "last", "text", "method"),
    [
        ({"t": 4, "p": 78}, BOTH, "files of spark_catalog.s.p changed", "FINGERPRINT"),
        ({"t": 4, "p": 77}, LAST, "recorded no fingerprint of spark_catalog.s.p", "FINGERPRINT"),
        ({"t": 4}, BOTH, "spark_catalog.s.p cannot be known and are assumed", "ASSUMED"),
    ],
)
def test_other_files_and_those_nothing_is_known_of_count_as_changed(
    current: dict[str, int], last: CommittedRefresh, text: str, method: str
) -> None:
    plan = plan_refresh(MIXED, Recompute(), current, last)
    assert (plan.strategy, plan.reason_code) == (Strategy.FULL, "SOURCE_WITHOUT_VERSIONS")
    assert text in plan.reason_text
    assert plan.changes[1].method == method


def test_files_that_change_while_they_are_listed_are_recorded_as_unknown() -> None:
    full = plan_refresh(MIXED, Recompute(), {"t": 5, "p": 77}, BOTH)
    incremental = plan_incremental(MIXED, full, LARGE)
    assert incremental.strategy is Strategy.INCREMENTAL
    assert [c.method for c in incremental.changes] == ["CHANGE_FEED", "FINGERPRINT"]
    assert "FINGERPRINT" not in incremental.reason_text
    moved = {"p": "spark_catalog.s.p"}
    for plan in (incremental, full):
        plan = without_fingerprints(plan, moved)
        assert (plan.strategy, dict(plan.vector)) == (Strategy.FULL, {"t": 5})
        assert plan.changes[-1].method == "ASSUMED"
    assert without_fingerprints(incremental, moved).reason_code == "SOURCE_WITHOUT_VERSIONS"
    assert without_fingerprints(full, moved).reason_code == full.reason_code


def test_the_vector_of_a_plan_is_a_copy() -> None:
    current = {"t": 5}
    plan = plan_refresh(ORDER, Recompute(), current, LAST)
    current["t"] = 6
    assert plan.vector == {"t": 5}


# ---- incremental -------------------------------------------------------------------------------

FULL = plan_refresh(ORDER, Recompute(), {"t": 5}, LAST)
LARGE = Evidence(
    changes=(SourceChange(source="t", before=4, after=5, method="CHANGE_FEED", rows=100),),
    keyed=True,
    whole=Work(rows_read=50_000_000, rows_written=0, rows_grouped=50_000_000),
    rows_in_changed=50_000_000,
    rows_in_table=1_000_000,
    affected_keys=90,
)


def _over(rows: int, **others: Any) -> Evidence:
    """Return the evidence over another number of rows, which the query groups."""
    whole = Work(rows_read=rows, rows_written=0, rows_grouped=rows)
    return replace(LARGE, whole=whole, rows_in_changed=rows, **others)


TIES = Obstacle(code="ORDER_NOT_UNIQUE", text="row_number depends on how ties are ordered")


def test_few_changes_of_much_are_applied() -> None:
    plan = plan_incremental(ORDER, FULL, LARGE)
    assert (plan.strategy, plan.reason_code) == (Strategy.INCREMENTAL, "KEYS_AFFECTED")
    assert "t: 100 rows (CHANGE_FEED)" in plan.reason_text
    assert (plan.changes, plan.affected_keys) == (LARGE.changes, 90)
    assert plan.predicted_seconds is not None
    assert plan.full_seconds is not None
    assert plan.predicted_seconds < plan.full_seconds
    assert [(r.strategy, r.cost) for r in plan.rejected] == [("FULL", plan.full_seconds)]


@pytest.mark.parametrize(
    ("evidence", "code"),
    [
        (replace(LARGE, keyed=False, affected_keys=None), "ROWS_CHANGED"),
        (replace(LARGE, keyed=False, appends=True, affected_keys=None), "ROWS_APPENDED"),
        (replace(LARGE, algebraic=True), "GROUPS_COMBINED"),
        (replace(LARGE, rereading=True, rows_reread=1_000), "SOURCES_REREAD"),
    ],
)
def test_the_reason_tells_the_way(evidence: Evidence, code: str) -> None:
    assert plan_incremental(ORDER, FULL, evidence).reason_code == code


@pytest.mark.parametrize(
    ("evidence", "code"),
    [
        (replace(LARGE, obstacles=(TIES,)), "ORDER_NOT_UNIQUE"),
        (replace(LARGE, rows_in_changed=200), "CHANGE_TOO_LARGE"),
        (replace(LARGE, affected_keys=200_000), "TOO_MANY_KEYS"),
        (
            _over(5_000, rows_in_table=1_000),
            "FULL_IS_CHEAPER",
        ),
    ],
)
def test_a_full_refresh_says_why_it_is_not_incremental(evidence: Evidence, code: str) -> None:
    plan = plan_incremental(ORDER, FULL, evidence)
    assert (plan.strategy, plan.reason_code) == (Strategy.FULL, code)
    assert [(r.strategy, r.reason_code) for r in plan.rejected] == [("INCREMENTAL", code)]
    assert plan.vector == FULL.vector


def test_what_was_spent_does_not_count_against_going_on() -> None:
    small = _over(5_000, rows_in_table=1_000)
    assert plan_incremental(ORDER, FULL, small).reason_code == "FULL_IS_CHEAPER"
    plan = plan_incremental(ORDER, FULL, replace(small, spent=1.5))
    assert (plan.strategy, plan.predicted_seconds) == (
        Strategy.INCREMENTAL,
        plan_incremental(ORDER, FULL, small).rejected[0].cost,
    )


def test_groups_that_are_added_up_may_be_many() -> None:
    many = replace(LARGE, affected_keys=400_000, algebraic=True)
    assert plan_incremental(ORDER, FULL, many).reason_code == "GROUPS_COMBINED"
    assert plan_incremental(ORDER, FULL, replace(many, algebraic=False)).strategy is Strategy.FULL


def test_what_is_read_depends_on_the_way() -> None:
    two = replace(LARGE, whole=replace(LARGE.whole, rows_read=50_500_000))
    ways = (
        replace(two, keyed=False, appends=True, affected_keys=None),
        replace(two, algebraic=True),
        two,
    )
    read = [incremental_work(evidence)[1].rows_read for evidence in ways]
    assert read == [100, 500_100, 50_500_100]


def test_what_is_read_at_both_versions_is_dear() -> None:
    little = replace(LARGE, rereading=True, rows_reread=1_000_000, affected_keys=None)
    assert incremental_work(little) == (
        Way.REREAD,
        Work(rows_read=53_000_100, rows_written=0, rows_changed=100, rows_in_table=1_000_000),
    )
    assert plan_incremental(ORDER, FULL, little).reason_code == "SOURCES_REREAD"
    everything = replace(little, rows_reread=50_000_000)
    assert plan_incremental(ORDER, FULL, everything).reason_code == "FULL_IS_CHEAPER"
    all_rows = replace(little, affected_keys=1_000_000)
    assert plan_incremental(ORDER, FULL, all_rows).reason_code == "TOO_MANY_KEYS"


def test_all_obstacles_are_named() -> None:
    other = Obstacle(code="TIME_TRAVEL", text="t is read at a version of its own")
    plan = plan_incremental(ORDER, FULL, replace(LARGE, obstacles=(TIES, other)))
    assert [r.reason_code for r in plan.rejected] == ["ORDER_NOT_UNIQUE", "TIME_TRAVEL"]


@pytest.mark.parametrize("policy", [RefreshPolicy.INCREMENTAL, RefreshPolicy.INCREMENTAL_STRICT])
def test_a_policy_may_ignore_the_cost(policy: RefreshPolicy) -> None:
    dear = _over(10, rows_in_table=10)
    plan = plan_incremental(replace(ORDER, policy=policy), FULL, dear)
    assert plan.strategy is Strategy.INCREMENTAL


def test_the_policy_full_needs_no_other_reason() -> None:
    plan = plan_incremental(replace(ORDER, policy=RefreshPolicy.FULL), FULL, LARGE)
    assert (plan.strategy, plan.reason_code) == (Strategy.FULL, "POLICY_FULL")


def test_rows_are_appended_to_small_tables_too() -> None:
    small = _over(5, keyed=False, appends=True, affected_keys=None)
    assert plan_incremental(ORDER, FULL, small).strategy is Strategy.INCREMENTAL


def _past(strategy: Strategy, seconds: float) -> PastRun:
    reason = "KEYS_AFFECTED" if strategy is Strategy.INCREMENTAL else "FULL_IS_CHEAPER"
    return PastRun(strategy=strategy, seconds=seconds, metrics=RunMetrics(), reason_code=reason)


@pytest.mark.parametrize("fulls", range(12))
def test_the_slower_way_is_tried_once_when_that_costs_little(fulls: int) -> None:
    table = _over(3_000_000, rows_in_table=10)
    history = (_past(Strategy.FULL, 3.5),) * fulls
    plan = plan_incremental(replace(ORDER, history=history), FULL, replace(table, affected_keys=1))
    assert plan.predicted_seconds is not None
    assert plan.full_seconds is not None
    tried = plan.strategy is Strategy.INCREMENTAL
    if tried:
        assert plan.predicted_seconds > plan.full_seconds
        assert "tried" in plan.reason_text
    else:
        assert plan.reason_code == "FULL_IS_CHEAPER"
    # 0.1 s more than a full refresh is a twentieth of one full refresh, not of none.
    assert tried is (fulls >= 1)
    known = (*history, _past(Strategy.INCREMENTAL, 9.0))
    again = plan_incremental(replace(ORDER, history=known), FULL, table)
    assert again.strategy is Strategy.FULL


def test_a_way_that_cannot_be_faster_is_not_tried() -> None:
    table = _over(1_000, rows_in_table=90)
    costly = replace(table, affected_keys=9, changes=LARGE.changes)
    order = replace(ORDER, history=(_past(Strategy.FULL, 0.1),) * 20)
    plan = plan_incremental(order, FULL, costly)
    assert (plan.strategy, plan.reason_code) == (Strategy.FULL, "FULL_IS_CHEAPER")


def test_after_failures_in_a_row_the_next_try_is_put_off() -> None:
    failed = replace(_past(Strategy.FULL, 2.0), reason_code="INCREMENTAL_FAILED")
    history: tuple[PastRun, ...] = (_past(Strategy.INCREMENTAL, 1.0),)
    tries = []
    for number in range(60):
        order = replace(ORDER, history=history[:20])
        plan = plan_incremental(order, FULL, LARGE)
        if plan.strategy is Strategy.INCREMENTAL:
            tries.append(number)
        else:
            assert plan.reason_code == "FAILED_BEFORE"
        run = failed if plan.strategy is Strategy.INCREMENTAL else _past(Strategy.FULL, 2.0)
        history = (run, *history)
    assert tries == [0, 2, *range(6, 60, 8)]
    forced = replace(ORDER, history=(failed,), policy=RefreshPolicy.INCREMENTAL)
    assert plan_incremental(forced, FULL, LARGE).strategy is Strategy.INCREMENTAL
    changed = replace(_past(Strategy.FULL, 2.0), reason_code="DEFINITION_CHANGED")
    altered = replace(ORDER, history=(changed, failed, failed))
    assert plan_incremental(altered, FULL, LARGE).reason_code != "FAILED_BEFORE"


@pytest.mark.parametrize(
    ("rows", "after_incremental", "after_full"),
    [(3_500_000, "FULL", "FULL"), (4_500_000, "INCREMENTAL", "FULL")]
    + [(50_000_000, "INCREMENTAL", "INCREMENTAL")],
)
def test_a_table_becomes_incremental_only_when_it_pays(
    rows: int, after_incremental: str, after_full: str
) -> None:
    table = _over(rows, rows_in_table=1_000)

    def after(strategy: Strategy) -> str:
        known = _past(Strategy.INCREMENTAL, 1.0)
        order = replace(ORDER, history=(_past(strategy, 1.0), known))
        return plan_incremental(order, FULL, table).strategy.value

    plan = plan_incremental(ORDER, FULL, table)
    assert plan.strategy.value == after(Strategy.INCREMENTAL) == after_incremental
    assert after(Strategy.FULL) == after_full


def test_a_table_of_first_rows_does_not_tell_how_many_keys_there_are() -> None:
    few = replace(LARGE, rows_in_table=10, affected_keys=90)
    assert plan_incremental(ORDER, FULL, few).reason_code == "TOO_MANY_KEYS"
    plan = plan_incremental(ORDER, FULL, replace(few, leading=True))
    assert (plan.strategy, plan.reason_code) == (Strategy.INCREMENTAL, "KEYS_AFFECTED")
    assert "merged with the first rows" in plan.reason_text


def test_a_source_whose_rows_were_replaced_has_changed_largely() -> None:
    unknown = SourceChange(source="t", before=4, after=5, method="CHANGE_FEED")
    replaced = replace(LARGE, changes=(unknown,), rows_guessed=LARGE.rows_in_changed)
    plan = plan_incremental(ORDER, FULL, replaced)
    assert (plan.strategy, plan.reason_code) == (Strategy.FULL, "CHANGE_TOO_LARGE")
    one_partition = replace(replaced, rows_guessed=1000)
    assert plan_incremental(ORDER, FULL, one_partition).strategy is Strategy.INCREMENTAL


@pytest.mark.parametrize(
    ("rows", "few"),
    [
        ((), True),
        ((50_000,), True),
        ((50_001,), False),
        ((30_000, 30_000), False),
        ((3, None), False),
    ],
)
def test_a_change_is_small_when_all_of_it_is_known_to_be(
    rows: tuple[int | None, ...], few: bool
) -> None:
    changes = tuple(
        SourceChange(source="t", before=1, after=2, method="CHANGE_FEED", rows=count)
        for count in rows
    )
    assert Evidence(changes=changes).few is few


@pytest.mark.parametrize("policy", RefreshPolicy)
def test_the_policy_says_whether_totals_are_recorded(policy: RefreshPolicy) -> None:
    order = replace(ORDER, policy=policy)
    many, not_full = Work(rows_read=50_000_000, rows_written=0), policy is not RefreshPolicy.FULL
    assert records_totals(order, many) is not_full
    wanted = {RefreshPolicy.INCREMENTAL, RefreshPolicy.INCREMENTAL_STRICT}
    assert records_totals(order, replace(many, rows_read=1_000)) is (policy in wanted)
    assert records_totals(order, replace(many, rows_read=500_000, row_bytes=4_000)) is not_full
