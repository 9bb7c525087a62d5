"""Replaces uncorrelated scalar subqueries by their values before and after a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as T  # noqa: N812  Spark's own convention

from tidegate_server.engine.incremental.analysis.shape import Node, Subquery
from tidegate_server.engine.incremental.analysis.simplify import map_subqueries
from tidegate_server.engine.query.catalyst import Catalyst, expression_id
from tidegate_server.engine.storage.exact import comparable, key_sql
from tidegate_server.engine.storage.jvm import items


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacements:
    """An operator with the values of its subqueries in their place."""

    after: Any
    """Its plan with the new values."""
    before: Any
    """Its plan with the previous values."""
    same: bool
    """Whether all values stayed the same."""


def replace_subqueries(
    catalyst: Catalyst, node: Node, subqueries: Sequence[tuple[Subquery, Any, Any]]
) -> Replacements:
    """Compute subqueries of an operator; one Spark action.

    :param subqueries: each with its plan after and before the change.
    :raises pyspark.errors.PySparkException: if a subquery returns more than one row.
    """
    columns = []
    for number, (_, after, before) in enumerate(subqueries):
        for letter, plan in (("a", after), ("b", before)):
            columns.append(catalyst.alias(catalyst.scalar_subquery(plan), f"{letter}{number}"))
    frame = catalyst.frame(catalyst.project(columns, catalyst.one_row()))
    same = " AND ".join(_is_same(number, f) for number, f in enumerate(frame.schema.fields[::2]))
    # Unlike executing the plan directly, the checkpoint runs under the session's settings.
    values: Any = frame.selectExpr("*", f"{same} AS same").localCheckpoint()._jdf
    rows = values.queryExecution().executedPlan().executeCollect()
    relation = _as_relation(catalyst, values, rows)
    attributes = list(items(relation.output()))
    new: dict[int, Any] = {}
    old: dict[int, Any] = {}
    for number, (subquery, _, _) in enumerate(subqueries):
        id_ = expression_id(subquery.expression)
        new[id_] = catalyst.project([attributes[2 * number]], relation)
        old[id_] = catalyst.project([attributes[2 * number + 1]], relation)
    return Replacements(
        after=_with_plans(catalyst, node.plan, new),
        before=_with_plans(catalyst, node.plan, old),
        same=bool(rows[0].getBoolean(len(attributes) - 1)),
    )


def _is_same(number: int, field: T.StructField) -> str:
    """Return SQL that says whether a value is the same bit by bit."""
    if not comparable(field.dataType):
        return "false"
    after, before = (key_sql(f"{letter}{number}", field.dataType) for letter in "ab")
    return f"{after} <=> {before}"


def _as_relation(catalyst: Catalyst, values: Any, rows: Any) -> Any:
    """Return collected rows as a relation."""
    fields = items(values.schema().toSeq())
    attributes = [catalyst.attribute(str(f.name()), f.dataType()) for f in fields]
    return catalyst.rows(attributes, rows)


def _with_plans(catalyst: Catalyst, plan: Any, plans: Mapping[int, Any]) -> Any:
    """Return an operator with other plans in its scalar subqueries, by their id.

    The subqueries get new ids, since Spark computes only one of several with the same id.
    """

    def change(expression: Any) -> Any:
        known = plans.get(expression_id(expression))
        return expression if known is None else catalyst.scalar_subquery(known)

    return map_subqueries(catalyst, plan, change)
