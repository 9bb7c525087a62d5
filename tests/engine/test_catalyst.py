"""What is read of Catalyst's expressions in one call."""

from __future__ import annotations

import pytest

from tests.support.fixtures.spark import Lake
from tidegate_server.engine.query.catalyst import Catalyst, Described, expression_id
from tidegate_server.engine.storage.jvm import items

pytestmark = pytest.mark.spark

NAMES = ("a", "with space", 'qu"ote', "line\nbreak", "ünïcode", "back\\slash", "c,d:e")


def test_expressions_are_described_as_they_are(lake: Lake) -> None:
    catalyst = Catalyst(lake.session)
    columns = ", ".join(f"id AS `{name}`" for name in NAMES)
    frame = lake.session.sql(
        f"SELECT *, a + id AS s, a AS b, array(a) AS l FROM (SELECT {columns}, id FROM range(3))"
    )
    plan = catalyst.analyzed_plan(frame)
    output = catalyst.describe(plan.output())
    assert [each.name for each in output] == [*NAMES, "id", "s", "b", "l"]
    assert {each.type for each in output} == {"bigint", "array<bigint>"}
    assert {each.type_name for each in output} == {"long", "array"}
    assert [each.passed for each in output] == [each.id for each in output]
    assert catalyst.ids(plan.output()) == [expression_id(each) for each in items(plan.output())]
    below = {each.name: each.id for each in catalyst.describe(plan.child().output())}
    *_, id_, sum_, b, array = catalyst.describe(plan.projectList())
    assert id_.passed == id_.id == below["id"]
    assert (sum_.passed, sum_.references) == (None, {below["a"], below["id"]})
    assert b == Described(b.id, below["a"], frozenset({below["a"]}))
    assert b.id != b.passed
    assert (array.passed, array.references) == (None, {below["a"]})
    assert catalyst.references(plan.projectList()) == {*below.values()}


def test_an_expression_without_a_name_is_described(lake: Lake) -> None:
    catalyst = Catalyst(lake.session)
    plan = catalyst.analyzed_plan(lake.session.sql("SELECT * FROM range(3) WHERE id > 1"))
    [condition] = catalyst.describe(plan.child().expressions())
    assert (condition.id, condition.passed) == (None, None)
    assert [*condition.references] == catalyst.ids(plan.output())
