"""What stands against an incremental refresh, told from the shape of a query."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate_server.core.refresh.eligibility import (
    ALL_RULES,
    Obstacle,
    Operator,
    Rule,
    obstacles,
    read_rules,
)

T = Operator(name="LogicalRelation", source="t")
U = Operator(name="LogicalRelation", source="u")
KEYLESS = Obstacle(code="AGGREGATE_WITHOUT_KEYS", text="no keys")
ROUNDED = Obstacle(code="AGGREGATE_NOT_TOP_NODE", text="sum of doubles")
TIES = Obstacle(code="ORDER_NOT_UNIQUE", text="ties")
BOTH = frozenset({"t", "u"})


def aggregate(child: Operator, **changed: object) -> Operator:
    made = Operator(name="Aggregate", rule=Rule.AGGREGATE, children=(child,), keyed_by=(0,))
    return replace(made, **changed)  # type: ignore[arg-type]


def join(left: Operator, right: Operator) -> Operator:
    return Operator(name="Join", rule=Rule.JOIN, children=(left, right))


def codes(root: Operator, changed: frozenset[str], rules: frozenset[Rule] = ALL_RULES) -> list[str]:
    return [obstacle.code for obstacle in obstacles(root, changed, rules)]


def test_what_is_recognised_has_no_obstacle() -> None:
    assert codes(aggregate(join(T, U)), BOTH) == []


def test_keys_are_needed_only_where_something_changed() -> None:
    root = join(T, aggregate(U, keyless=KEYLESS))
    assert codes(root, frozenset({"t"})) == []
    assert codes(root, BOTH) == ["AGGREGATE_WITHOUT_KEYS"]


def test_an_only_row_that_follows_from_its_change_needs_no_keys() -> None:
    root = aggregate(T, keyless=KEYLESS)
    assert codes(root, BOTH) == ["AGGREGATE_WITHOUT_KEYS"]
    assert obstacles(root, BOTH, combined=root) == ()
    refused = replace(root, obstacles=(TIES,))
    assert obstacles(refused, BOTH, combined=refused) == (TIES,)


def test_what_is_above_rows_that_are_all_there_is_computed_from_them() -> None:
    root = aggregate(T)
    above = aggregate(root, keyless=KEYLESS, inexact=ROUNDED)
    assert codes(above, BOTH) == ["AGGREGATE_NOT_TOP_NODE", "AGGREGATE_WITHOUT_KEYS"]
    assert obstacles(above, BOTH, combined=root) == ()
    assert obstacles(above, BOTH, combined=root, rules=frozenset({Rule.LINEAR})) != ()
    assert obstacles(replace(above, ambiguous=TIES), BOTH, combined=root) == (TIES,)


def test_an_outer_join_needs_keys_for_the_side_it_looks_up() -> None:
    outer = Operator(
        name="Join", rule=Rule.OUTER_JOIN, children=(T, U), keyed_by=(1,), keyless=KEYLESS
    )
    assert codes(outer, frozenset({"t"})) == []
    assert codes(outer, frozenset({"u"})) == ["AGGREGATE_WITHOUT_KEYS"]


def test_what_is_not_deterministic_counts_below_unchanged_sources_too() -> None:
    assert codes(join(T, replace(U, obstacles=(TIES,))), frozenset({"t"})) == ["ORDER_NOT_UNIQUE"]


def test_rounded_sums_may_be_replaced_but_not_taken_away() -> None:
    assert codes(aggregate(T, inexact=ROUNDED, replaced=True), BOTH) == []
    assert codes(aggregate(T, inexact=ROUNDED), BOTH) == ["AGGREGATE_NOT_TOP_NODE"]
    unchanged = join(T, aggregate(U, inexact=ROUNDED))
    assert codes(unchanged, frozenset({"t"})) == ["AGGREGATE_NOT_TOP_NODE"]


def test_sums_of_bounded_numbers_may_be_taken_away() -> None:
    averages = aggregate(T, inexact=ROUNDED, bounded=True)
    assert obstacles(averages, BOTH, provided=True) == ()
    assert obstacles(averages, BOTH, provided=False) == (ROUNDED,)


def test_a_scalar_subquery_must_not_change() -> None:
    root = Operator(name="Filter", children=(T,), subqueries=(aggregate(U, keyless=KEYLESS),))
    assert codes(root, frozenset({"t"})) == []
    assert codes(root, frozenset({"u"})) == ["SUBQUERY_EXPRESSION_NOT_INCREMENTALIZABLE"]


def test_nor_must_one_inside_a_scalar_subquery() -> None:
    inner = Operator(name="Filter", children=(T,), subqueries=(U,))
    root = Operator(name="Project", children=(T,), subqueries=(inner,))
    found = codes(root, frozenset({"u"}))
    assert {*found} == {"SUBQUERY_EXPRESSION_NOT_INCREMENTALIZABLE"}


def test_what_has_no_keys_is_compared_at_both_versions() -> None:
    root = aggregate(T, keyless=KEYLESS, whole=True)
    assert codes(root, BOTH) == []
    assert codes(root, BOTH, ALL_RULES - {Rule.WHOLE}) == ["AGGREGATE_WITHOUT_KEYS"]
    assert codes(replace(root, inexact=ROUNDED), BOTH) == ["AGGREGATE_NOT_TOP_NODE"]


def test_below_what_is_compared_no_keys_are_needed_but_exact_rows() -> None:
    inner = aggregate(T, keyless=KEYLESS)
    assert codes(aggregate(inner, keyless=KEYLESS, whole=True), BOTH) == []
    rounded = aggregate(T, inexact=ROUNDED, replaced=True)
    root = aggregate(rounded, keyless=KEYLESS, whole=True)
    assert codes(root, BOTH) == ["AGGREGATE_NOT_TOP_NODE"]


def test_a_subquery_that_can_be_replaced_by_its_values_may_change() -> None:
    inner = aggregate(U, keyless=KEYLESS)
    root = Operator(name="Filter", children=(T,), subqueries=(inner,), replaceable=True)
    assert codes(root, BOTH) == []
    off = ALL_RULES - {Rule.WHOLE}
    assert codes(root, BOTH, off) == ["SUBQUERY_EXPRESSION_NOT_INCREMENTALIZABLE"]
    assert codes(replace(root, subqueries=(replace(inner, inexact=ROUNDED),)), BOTH) == [
        "AGGREGATE_NOT_TOP_NODE"
    ]


def test_above_stored_sums_that_are_rounded_a_subquery_must_not_change() -> None:
    groups = aggregate(T, inexact=ROUNDED, replaced=True)
    root = Operator(name="Filter", children=(groups,), subqueries=(U,), replaceable=True)
    assert codes(root, frozenset({"t"})) == []
    assert codes(root, BOTH) == ["AGGREGATE_NOT_TOP_NODE"]


def test_what_varies_inside_a_scalar_subquery_is_found() -> None:
    root = Operator(name="Filter", children=(T,), subqueries=(replace(U, obstacles=(TIES,)),))
    assert codes(root, frozenset({"t"})) == ["ORDER_NOT_UNIQUE"]


@pytest.mark.parametrize(
    ("root", "rule"),
    [
        (join(T, U), Rule.JOIN),
        (aggregate(T), Rule.AGGREGATE),
        (aggregate(T), Rule.NESTED),
        (Operator(name="Filter", children=(T,)), Rule.LINEAR),
        (Operator(name="GlobalLimit", rule=Rule.LIMIT, children=(T,)), Rule.LIMIT),
    ],
)
def test_every_rule_can_be_switched_off(root: Operator, rule: Rule) -> None:
    assert codes(root, BOTH, ALL_RULES - {rule}) == ["RULE_DISABLED"]
    assert rule.value in obstacles(root, BOTH, ALL_RULES - {rule})[0].text


def test_what_the_table_tells_by_its_keys_needs_no_nesting() -> None:
    assert codes(aggregate(T, replaced=True), BOTH, ALL_RULES - {Rule.NESTED}) == []


def test_the_same_obstacle_is_named_once() -> None:
    root = join(replace(T, obstacles=(TIES,)), replace(U, obstacles=(TIES,)))
    assert codes(root, BOTH) == ["ORDER_NOT_UNIQUE"]


def test_rules_are_read_from_an_option() -> None:
    assert read_rules("all") == ALL_RULES
    assert read_rules("linear, Join,") == {Rule.LINEAR, Rule.JOIN}
    assert read_rules("") == frozenset()
    with pytest.raises(ValueError, match="MAGIC"):
        read_rules("LINEAR, MAGIC")
