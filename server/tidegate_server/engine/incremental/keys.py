"""Affected keys: collected once, then used to restrict whatever is computed anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from tidegate_server.engine.query.catalyst import Catalyst, expression_id
from tidegate_server.engine.storage.jvm import items, kind

_NUMBER = "__number"
# The lower bits of a row's number count within its partition.
_WITHIN = (1 << 33) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """The values one column of the keys has."""

    known: Any
    """An array of Catalyst values, NULL left out."""
    count: int
    has_null: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Distinct key tuples; too many to be collected, they stay a plan."""

    count: int
    """How many there are."""
    attributes: tuple[Any, ...]
    relation: Any
    columns: tuple[Values, ...]
    """Empty when they were not collected."""


def collect_keys(catalyst: Catalyst, plan: Any, limit: int) -> Keys:
    """Return the distinct rows of ``plan``; one Spark job.

    :param limit: how many are brought to this process at most.
    """
    distinct = catalyst.distinct(plan)
    frame = catalyst.frame(distinct)
    names = [f"k{index}" for index in range(len(frame.columns))]
    keys, _ = _collect(catalyst, frame.toDF(*names), distinct, "false", limit)
    return keys


def collect_groups(
    catalyst: Catalyst, groups: DataFrame, keys: Sequence[str], doubt: str, limit: int
) -> tuple[Keys, bool]:
    """Return the keys of distinct groups, and whether one of these is in doubt; one Spark job."""
    plan = catalyst.analyzed(groups.select(*keys))
    named = [f"{key} AS k{index}" for index, key in enumerate(keys)]
    return _collect(catalyst, groups.selectExpr(*named, doubt), plan, doubt, limit)


def _collect(
    catalyst: Catalyst, frame: DataFrame, plan: Any, doubt: str, limit: int
) -> tuple[Keys, bool]:
    """Count the rows of ``frame``, of which ``plan`` has the keys, and bring them if few."""
    types = [attribute.dataType() for attribute in items(plan.output())]
    names = [f"k{index}" for index in range(len(types))]
    # A number within the partition: together there are enough of them, and never far too many.
    numbered = frame.selectExpr("*", f"monotonically_increasing_id() & {_WITHIN}L AS {_NUMBER}")
    few = f"CASE WHEN {_NUMBER} <= {limit} THEN"
    # The checkpoint runs under the session's settings, as a look at the plan's rows would not.
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
    """Return the rows of ``plan`` whose expressions give one of the keys, NULL being a value.

    Lists of values reach the files' statistics; several columns also need their tuples compared.
    """
    expressions = guard_expressions(catalyst, plan, expressions)
    restricted = restrict_roughly(catalyst, plan, zip(expressions, keys.columns, strict=False))
    if len(expressions) == 1 and keys.columns:
        return restricted
    pairs = zip(expressions, keys.attributes, strict=True)
    equal = catalyst.all([catalyst.same(expression, key) for expression, key in pairs])
    return catalyst.semi_join(restricted, keys.relation, equal)


def guard_expressions(catalyst: Catalyst, plan: Any, expressions: Sequence[Any]) -> list[Any]:
    """Return expressions over a plan's rows as they are to be compared with keys.

    Spark may evaluate them before a filter or a join of the query leaves out rows for which they
    fail. Such rows have NULL for a key: they are recomputed together with those that do have
    it, where they fail if they fail in the query.
    """
    return [
        catalyst.attempted(each) if _may_fail(catalyst, plan, each) else each
        for each in expressions
    ]


def _may_fail(catalyst: Catalyst, plan: Any, expression: Any) -> bool:
    """Say whether an expression, or what it reads, is more than a stored value."""
    match kind(expression):
        case "AttributeReference":
            return not _is_stored(plan, expression)
        case "GetStructField":
            return _may_fail(catalyst, plan, expression.child())
        case "Cast" if catalyst.widens(expression):
            return _may_fail(catalyst, plan, expression.child())
    return True


def _is_stored(plan: Any, attribute: Any) -> bool:
    """Say whether an attribute of a plan is a column of a leaf, as it is there."""
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
    """Return all rows that :func:`restrict` would, and perhaps more, without a join.

    :param wanted: expressions with their values; none where they were not collected.
    """
    conditions = [_matches_values(catalyst, expression, values) for expression, values in wanted]
    return catalyst.filter(catalyst.all(conditions), plan) if conditions else plan


def _matches_values(catalyst: Catalyst, expression: Any, values: Values) -> Any:
    conditions = []
    if values.count:
        conditions.append(catalyst.contained(expression, values.known))
    if values.has_null or not conditions:
        conditions.append(catalyst.is_null(expression))
    return catalyst.any(conditions)
