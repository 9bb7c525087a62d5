"""Detects plans whose result depends on whether IN with a subquery is NULL or false.

Spark rewrites IN and NOT IN as joins that treat NULL as false. That is exact wherever NULL and
false are equivalent. Elsewhere the result depends on the form of the expression at the end of
Spark's optimization.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from tidegate_server.engine.query.catalyst import Catalyst, expression_id
from tidegate_server.engine.storage.jvm import items, kind


class _Place(Enum):
    """Where an expression is used."""

    CONDITION = "condition"
    """NULL is equivalent to false."""
    JOIN_CONDITION = "join condition"
    """As CONDITION, but Spark does not distinguish NOT IN from IN."""
    COLUMN = "column"
    """Its value becomes a column unchanged."""
    OPERAND = "operand"
    """Something else is computed from it."""


_CONDITIONS = frozenset({_Place.CONDITION, _Place.JOIN_CONDITION})


def shows_null(catalyst: Catalyst, plan: Any, *, inner: bool = False) -> bool:
    """Say whether the rows of a plan may depend on whether IN is NULL or false.

    :param plan: with NOT pushed down to IN, and predicates to where Spark evaluates them.
    :param inner: whether it is the plan of a subquery, whose result is an operand.
    """
    if not catalyst.has_in_subqueries(plan):
        return False
    columns = _Reader(catalyst).read(plan)
    return columns is None or (inner and bool(columns))


class _Reader:
    def __init__(self, catalyst: Catalyst) -> None:
        self._catalyst = catalyst

    def read(self, plan: Any) -> frozenset[int] | None:
        """Return the ids of a plan's columns that are false where IN is NULL.

        None if something is computed from one of them, or from IN itself.
        """
        below = [self.read(child) for child in items(plan.children())]
        known = frozenset[int]().union(*(each for each in below if each is not None))
        if any(each is None for each in below) or not self._is_plain(plan, known):
            return None
        output = self._catalyst.ids(plan.output())
        found = known.intersection(output)
        match kind(plan):
            case "Project":
                found = self._columns(items(plan.projectList()), known)
            case "Aggregate":
                found = self._columns(items(plan.aggregateExpressions()), known)
            case "Union" | "Intersect" | "Except":
                children = [list(items(child.output())) for child in items(plan.children())]
                found = frozenset(
                    id_
                    for index, id_ in enumerate(output)
                    if any(expression_id(own[index]) in known for own in children)
                )
        return found

    def _is_plain(self, plan: Any, known: frozenset[int]) -> bool:
        """Say whether an operator uses IN only as a condition or column."""
        name = kind(plan)
        place = {
            "Filter": _Place.CONDITION,
            "Join": _Place.JOIN_CONDITION,
            "Project": _Place.COLUMN,
            "Aggregate": _Place.COLUMN,
        }.get(name, _Place.OPERAND)
        for expression in items(plan.expressions()):
            if self._depends_on_null(expression, place):
                return False
            passed_on = place not in _CONDITIONS and _attribute(expression) is not None
            if not passed_on and not known.isdisjoint(_references(expression)):
                return False
        return True

    def _columns(self, named: Iterator[Any], known: frozenset[int]) -> frozenset[int]:
        return frozenset(
            expression_id(each)
            for each in named
            if (_attribute(each) in known or self._depends_on_null(each, _Place.OPERAND))
        )

    def _depends_on_null(self, expression: Any, place: _Place) -> bool:
        """Say whether an expression's value depends on whether IN is NULL, not only false."""
        if not self._catalyst.has_in_subqueries(expression):
            return False
        children = list(items(expression.children()))
        below = [_Place.OPERAND] * len(children)
        match kind(expression):
            case "InSubquery":
                if place is _Place.OPERAND and _may_be_null(expression):
                    return True
            case "Not" if kind(children[0]) == "InSubquery":
                if place is _Place.JOIN_CONDITION and _may_be_null(children[0]):
                    return True
                below = [place]
            case "Alias":
                below = [place]
            case "And" | "Or":
                below = [place, place]
            case "If" if place in _CONDITIONS:
                below = [place, place, place]
            case "If":
                below[0] = _Place.CONDITION
            case "CaseWhen":
                below = [
                    _condition(place)
                    if index % 2 == 0 and index + 1 < len(children)
                    else (place if place in _CONDITIONS else _Place.OPERAND)
                    for index in range(len(children))
                ]
            case "EqualNullSafe" if any(map(_is_true, children)):
                below = [_condition(place)] * 2
            case "Coalesce" if len(children) == 2 and _is_false(children[1]):
                below[0] = _condition(place)
            case "CountIf":
                below = [_Place.CONDITION]
            case "AggregateExpression":
                below[1:] = [_Place.CONDITION] * (len(children) - 1)
        return any(map(self._depends_on_null, children, below))


def _condition(place: _Place) -> _Place:
    """Return the place of a condition within an expression."""
    return place if place in _CONDITIONS else _Place.CONDITION


def _may_be_null(subquery: Any) -> bool:
    """Say whether a value that IN compares may be NULL."""
    compared = (*items(subquery.values()), *items(subquery.query().childOutputs()))
    return any(bool(each.nullable()) for each in compared)


def _attribute(expression: Any) -> int | None:
    """Return the id of the attribute that is passed on, or None."""
    if kind(expression) in {"Alias", "SortOrder"}:
        expression = expression.child()
    return expression_id(expression) if kind(expression) == "AttributeReference" else None


def _references(expression: Any) -> frozenset[int]:
    return frozenset(expression_id(each) for each in items(expression.references().toSeq()))


def _is_true(expression: Any) -> bool:
    return kind(expression) == "Literal" and expression.value() is True


def _is_false(expression: Any) -> bool:
    return kind(expression) == "Literal" and expression.value() is False
