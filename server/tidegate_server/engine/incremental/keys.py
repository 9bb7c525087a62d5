"""Affected keys: collected once, then used to restrict whatever is computed anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.engine.incremental.catalyst import Catalyst, items


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
    """How many there are, or a number beyond the limit."""
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
    # The checkpoint runs under the session's settings, as a look at the plan's rows would not.
    found = (
        frame.toDF(*names)
        .limit(limit + 1)
        .agg(
            F.collect_list(F.struct(*names)),
            *(F.collect_set(name) for name in names),
            *(F.coalesce(F.max(F.col(name).isNull()), F.lit(False)) for name in names),
        )
        .localCheckpoint()
    )
    jdf: Any = found._jdf
    row = jdf.queryExecution().executedPlan().executeCollect()[0]
    structs = row.getArray(0)
    count = int(structs.numElements())
    if count > limit:
        return Keys(
            count=count, attributes=tuple(items(distinct.output())), relation=distinct, columns=()
        )
    types = [attribute.dataType() for attribute in items(distinct.output())]
    struct_type = jdf.schema().apply(0).dataType().elementType()
    attributes = tuple(
        catalyst.attribute(name, type_) for name, type_ in zip(names, types, strict=True)
    )
    columns = tuple(
        Values(
            known=row.getArray(1 + index).toObjectArray(type_),
            count=int(row.getArray(1 + index).numElements()),
            has_null=bool(row.getBoolean(1 + len(types) + index)),
        )
        for index, type_ in enumerate(types)
    )
    relation = catalyst.rows(attributes, structs.toObjectArray(struct_type))
    return Keys(count=count, attributes=attributes, relation=relation, columns=columns)


def restrict(catalyst: Catalyst, plan: Any, expressions: Sequence[Any], keys: Keys) -> Any:
    """Return the rows of ``plan`` whose expressions give one of the keys, NULL being a value.

    Lists of values reach the files' statistics; several columns also need their tuples compared.
    """
    conditions = [
        _contained(catalyst, expression, values)
        for expression, values in zip(expressions, keys.columns, strict=False)
    ]
    restricted = catalyst.filter(catalyst.all(conditions), plan) if conditions else plan
    if len(expressions) == 1 and conditions:
        return restricted
    pairs = zip(expressions, keys.attributes, strict=True)
    equal = catalyst.all([catalyst.same(expression, key) for expression, key in pairs])
    return catalyst.semi_join(restricted, keys.relation, equal)


def _contained(catalyst: Catalyst, expression: Any, values: Values) -> Any:
    conditions = []
    if values.count:
        conditions.append(catalyst.contained(expression, values.known))
    if values.has_null or not conditions:
        conditions.append(catalyst.is_null(expression))
    return catalyst.any(conditions)
