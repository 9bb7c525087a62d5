"""The steps of a refresh: which ones a plan has, and how EXPLAIN prints them."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import msgspec
import pytest

from tests.core.refresh.test_planner import ORDER
from tidegate_server.core.model.clauses import Assertion, Violation
from tidegate_server.core.model.runs import ChangeMethod, SourceChange, Strategy
from tidegate_server.core.refresh.request import Recompute, RefreshPlan
from tidegate_server.core.refresh.steps import (
    ComputeChange,
    ReadChange,
    Recording,
    Scope,
    Step,
    describe,
)
from tidegate_server.engine.planning.planner import Evidence
from tidegate_server.engine.planning.steps import full_steps, incremental_steps

CHANGES = (
    SourceChange(source="s.t", before=4, after=5, method=ChangeMethod.APPENDED, rows=3),
    SourceChange(source="s.u", before=1, after=2, method=ChangeMethod.UNCHANGED),
)
READ = ReadChange(source="s.t", before=4, after=5, method=ChangeMethod.APPENDED, rows=3)


@pytest.mark.parametrize(
    ("evidence", "last"),
    [
        (Evidence(appends=True), "COMPUTE_CHANGE APPEND_ROWS"),
        (Evidence(keyed=True), "COMPUTE_CHANGE CHANGE_ROWS"),
        (Evidence(keyed=True, conditional=True), "COMPUTE_CHANGE CHECK_ROWS CHANGE_ROWS"),
        (Evidence(keyed=True, algebraic=True), "COMPUTE_CHANGE MERGE_GROUPS CHANGE_ROWS"),
        (
            Evidence(keyed=True, algebraic=True, recorded=True),
            "COMPUTE_CHANGE ADVANCE_AGGREGATES REPLACE_ROWS",
        ),
        (
            Evidence(leading=True, conditional=True),
            "COMPUTE_CHANGE CHECK_ROWS MERGE_FIRST_ROWS REPLACE_ROWS",
        ),
    ],
)
def test_steps_follow_from_the_evidence(evidence: Evidence, last: str) -> None:
    first, *steps = incremental_steps(ORDER, replace(evidence, changes=CHANGES))
    assert first == READ
    assert " ".join(step.name for step in steps) == last


def test_added_rows_are_checked_before_they_are_appended() -> None:
    enough = Assertion(name="enough", condition="row_count > 0", violation=Violation.FAIL)
    order = replace(ORDER, assertions=(enough,))
    assert incremental_steps(order, Evidence(appends=True))[-1].name == "CHANGE_ROWS"


def test_a_full_refresh_replaces_what_was_requested() -> None:
    *steps, commit = full_steps(Recompute(predicate="n > 1"))
    assert [step.name for step in steps] == ["COMPUTE_QUERY"]
    assert describe(commit) == "replace the rows where n > 1 in one commit"
    *_, commit = full_steps(Recompute(partitions=({"a": "1"}, {"a": "2"})))
    assert describe(commit) == "replace 2 partitions in one commit"
    check, compute, _ = full_steps(Recompute(), checks=True, recording=Recording.BOUNDARY)
    assert check.name == "CHECK_ROWS"
    assert describe(compute) == "compute the query; record whether rows tie where LIMIT cuts"


def test_steps_are_described_in_words() -> None:
    assert describe(READ) == "read the change of s.t from version 4 to 5 (APPENDED, at most 3 rows)"
    change = ComputeChange(scope=Scope.QUERY, keyed=True)
    assert describe(change).endswith("; recompute the rows of affected keys")


def test_a_plan_keeps_its_steps_across_the_link() -> None:
    steps = (READ, ComputeChange(scope=Scope.GROUPED), *full_steps(Recompute(predicate="n > 1")))
    plan = RefreshPlan(
        strategy=Strategy.FULL,
        reason_code="FORCED",
        reason_text="",
        vector={},
        steps=steps,
    )
    sent = msgspec.msgpack.encode(plan)
    assert msgspec.msgpack.decode(sent, type=RefreshPlan).steps == steps


def test_names_of_steps_are_distinct() -> None:
    names = [step.name for step in get_args(Step)]
    assert len(set(names)) == len(names)
