"""Affected keys: collected once, then used to restrict recomputation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from tidegate_server.engine.query.catalyst import Catalyst, expression_id
from tidegate_server.engine.storage.jvm import items, kind

_NUMBER = "__number"
# The lower bits of a row's number count the rows of its partition.
_WITHIN = (1 << 33) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """The values of one key column."""

    known: Any
    """An array of Catalyst values without NULL."""
    count: int
    has_null: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Distinct key tuples; only a plan if there are too many to collect."""

    count: int
    """Number of key tuples."""
    attributes: tuple[Any, ...]
    relation: Any
    columns: tuple[Values, ...]
    """Empty if the keys were not collected."""


def collect_keys(catalyst: Catalyst, plan: Any, limit: int) -> Keys:
    """Return the distinct rows of ``plan``; one Spark job.

    :param limit: the maximum number to collect.
    """
    distinct = catalyst.distinct(plan)
    frame = catalyst.frame(distinct)
    names = [f"k{index}" for index in range(len(frame.columns))]
    keys, _ = _collect(catalyst, frame.toDF(*names), distinct, "false", limit)
    return keys


def collect_groups(
    catalyst: Catalyst, groups: DataFrame, keys: Sequence[str], doubt: str, limit: int
) -> tuple[Keys, bool]:
    """Return the keys of distinct groups, and whether any group is in doubt; one Spark job."""
    plan = catalyst.analyzed_plan(groups.select(*keys))
    named = [f"{key} AS k{index}" for index, key in enumerate(keys)]
    return _collect(catalyst, groups.selectExpr(*named, doubt), plan, doubt, limit)


def _collect(
    catalyst: Catalyst, frame: DataFrame, plan: Any, doubt: str, limit: int
) -> tuple[Keys, bool]:
    """Count the rows of ``frame``, whose keys ``plan`` computes, and collect them if few."""
    types = [attribute.dataType() for attribute in items(plan.output())]
    names = [f"k{index}" for index in range(len(types))]
    # At most ``limit`` rows per partition are collected: enough in total, and never far too many.
    numbered = frame.selectExpr("*", f"monotonically_increasing_id() & {_WITHIN}L AS {_NUMBER}")
    few = f"CASE WHEN {_NUMBER} <= {limit} THEN"
    # Unlike executing the plan directly, the checkpoint runs under the session's settings.
    found = numbered.selectExpr(
        f"collect_list({few} struct({', '.join(names)}) END)",
        *(f"collect_set({few} {name} END)" for name in names),
        *(f"coalesce(max({name} IS NULL), false)" for name in names),
        "count(*)",
        f"coalesce(max({doubt}), false)",
    ).localCheckpoint()
    jdf: Any = found._jdf
    row = jdf.queryExecution().executedPlan().executeCollect()[0]
    count, doubted = int(row.getLong(1 + 2 * len(types))), bool(row.getBoolean(2 + 2 * len(types)))
    if count > limit:
        attributes = tuple(items(plan.output()))
        return Keys(count=count, attributes=attributes, relation=plan, columns=()), doubted
    columns = tuple(
        Values(
            known=row.getArray(1 + index).toObjectArray(type_),
            count=int(row.getArray(1 + index).numElements()),
            has_null=bool(row.getBoolean(1 + len(types) + index)),
        )
        for index, type_ in enumerate(types)
    )
    struct_type = jdf.schema().apply(0).dataType().elementType()
    attributes = tuple(
        catalyst.attribute(name, type_) for name, type_ in zip(names, types, strict=True)
    )
    relation = catalyst.rows(attributes, row.getArray(0).toObjectArray(struct_type))
    return Keys(count=count, attributes=attributes, relation=relation, columns=columns), doubted


def restrict(catalyst: Catalyst, plan: Any, expressions: Sequence[Any], keys: Keys) -> Any:
    """Return the rows of ``plan`` whose expressions match one of the keys, with NULL equal to NULL.

    Conditions on single columns let Delta skip files; tuples of several are matched by a join.
    """
    expressions = guard_expressions(catalyst, plan, expressions)
    restricted = restrict_roughly(catalyst, plan, zip(expressions, keys.columns, strict=False))
    if len(expressions) == 1 and keys.columns:
        return restricted
    pairs = zip(expressions, keys.attributes, strict=True)
    equal = catalyst.all([catalyst.same(expression, key) for expression, key in pairs])
    return catalyst.semi_join(restricted, keys.relation, equal)


def guard_expressions(catalyst: Catalyst, plan: Any, expressions: Sequence[Any]) -> list[Any]:
    """Return key expressions over a plan's rows that give NULL instead of failing.

    Spark may evaluate them before a filter or a join of the query removes rows for which they fail.
    Such rows are recomputed together with those whose key is NULL, and fail there only if they fail
    in the query.
    """
    return [
        catalyst.try_eval(each) if _may_fail(catalyst, plan, each) else each for each in expressions
    ]


def _may_fail(catalyst: Catalyst, plan: Any, expression: Any) -> bool:
    """Say whether an expression computes more than a stored value, directly or below."""
    match kind(expression):
        case "AttributeReference":
            return not _is_stored(plan, expression)
        case "GetStructField":
            return _may_fail(catalyst, plan, expression.child())
        case "Cast" if catalyst.widens(expression):
            return _may_fail(catalyst, plan, expression.child())
    return True


def _is_stored(plan: Any, attribute: Any) -> bool:
    """Say whether an attribute of a plan is an unchanged column of a leaf."""
    children, id_ = list(items(plan.children())), expression_id(attribute)
    match kind(plan):
        case "Project":
            named = next(each for each in items(plan.projectList()) if expression_id(each) == id_)
            inner = named.child() if kind(named) == "Alias" else named
            return kind(inner) == "AttributeReference" and _is_stored(children[0], inner)
        case "Union":
            output = enumerate(items(plan.output()))
            index = next(index for index, own in output if expression_id(own) == id_)
            return all(_is_stored(child, child.output().apply(index)) for child in children)
    return not children or any(
        bool(child.outputSet().contains(attribute)) and _is_stored(child, attribute)
        for child in children
    )


def restrict_roughly(catalyst: Catalyst, plan: Any, wanted: Iterable[tuple[Any, Values]]) -> Any:
    """Return at least the rows that :func:`restrict` returns, without a join.

    :param wanted: expressions with their values; none if these were not collected.
    """
    conditions = [_matches_values(catalyst, expression, values) for expression, values in wanted]
    return catalyst.filter(catalyst.all(conditions), plan) if conditions else plan


def _matches_values(catalyst: Catalyst, expression: Any, values: Values) -> Any:
    conditions = []
    if values.count:
        conditions.append(catalyst.in_set(expression, values.known))
    if values.has_null or not conditions:
        conditions.append(catalyst.is_null(expression))
    return catalyst.any(conditions)
