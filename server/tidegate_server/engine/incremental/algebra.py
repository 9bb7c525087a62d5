"""Groups brought up to date from their change alone, where sums and counts are exact.

A table that holds one row for each group, and in it nothing but the group's keys and exact
aggregates, already has what the aggregates were. Adding what the changed rows amount to is then all
there is to do, however many rows a group has. Where that cannot tell the new value, as for the
smallest value after it was deleted, the group is left to be computed anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tidegate_server.engine.incremental.catalyst import Catalyst, expression_id
from tidegate_server.engine.incremental.changes import WEIGHT
from tidegate_server.engine.incremental.classify import is_key
from tidegate_server.engine.incremental.shape import PASSING, Node
from tidegate_server.refresh.eligibility import Rule
from tidegate_server.storage.jvm import items, kind

DOUBT = "__doubt"
_ROWS = "__rows"
_STORED = "__stored"
_INTEGERS = frozenset({"byte", "short", "integer", "long"})
# A product with a weight then has at most the 38 digits that a decimal can have.
_DIGITS = 17
_ANSI = "spark.sql.ansi.enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One column of the table."""

    kind: str
    """KEY, COUNT, SUM, MIN or MAX."""
    inputs: tuple[Any, ...]
    """Expressions over the aggregate's input."""
    key: int = 0
    """Which of the grouping expressions a KEY is."""
    certain: bool = False
    """Whether no input can be NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Algebra:
    """A table whose rows are the groups of ``node``, one of each."""

    node: Node
    groups: tuple[Any, ...]
    parts: tuple[Part, ...]
    """For each of the table's columns."""

    @property
    def keys(self) -> list[str]:
        """The names of a change's key columns."""
        return [f"g{index}" for index in range(len(self.groups))]

    @property
    def columns(self) -> tuple[int, ...]:
        """For each key the table's column that holds it."""
        found = {part.key: i for i, part in reversed([*enumerate(self.parts)]) if _is_key(part)}
        return tuple(found[index] for index in range(len(self.groups)))

    @property
    def counter(self) -> int | None:
        """The column that counts a group's rows; None if there is none."""
        return next(
            (i for i, part in enumerate(self.parts) if part.kind == "COUNT" and part.certain), None
        )


def read_algebra(shape: Node, table_types: Sequence[str], catalyst: Catalyst) -> Algebra | None:
    """Return how a table's groups follow from their change; None if they do not."""
    if catalyst.spark.conf.get(_ANSI, "true") != "true":
        return None  # what overflows could not be told from NULL
    node, wanted = _below_projections(shape, table_types)
    if node is None or node.kind != "Aggregate" or not node.operator.replaced:
        return None
    groups = tuple(items(node.plan.groupingExpressions()))
    if len(node.columns) < len(groups):
        return None
    named = {expression_id(each): each for each in items(node.plan.aggregateExpressions())}
    # The joins that subqueries became add NULLs to what is still said to have none.
    padded = any(inner.operator.rule is Rule.OUTER_JOIN for inner in node.nodes())
    parts = [_part(named[i], groups, padded=padded) if i in named else None for i in wanted]
    known = tuple(part for part in parts if part is not None)
    if len(known) < len(parts) or {p.key for p in known if _is_key(p)} != {*range(len(groups))}:
        return None
    return Algebra(node=node, groups=groups, parts=known)


def _below_projections(shape: Node, table_types: Sequence[str]) -> tuple[Node | None, list[int]]:
    """Return the first operator that computes something, and its attribute of each column."""
    output = list(items(shape.plan.output()))
    types = [str(attribute.dataType().catalogString()) for attribute in output]
    wanted, node = [expression_id(attribute) for attribute in output], shape
    if types != list(table_types):
        return None, wanted
    while node.kind == "Project" or node.kind in PASSING:
        if node.kind == "Project":
            passed = {expression_id(each): _plain(each) for each in items(node.plan.projectList())}
            found = [passed.get(id_) for id_ in wanted]
            wanted = [id_ for id_ in found if id_ is not None]
            if len(wanted) < len(found):
                return None, wanted
        (node,) = node.children
    return node, wanted


def _plain(named: Any) -> int | None:
    """Return the id of the attribute that is handed through, or None."""
    inner = named.child() if kind(named) == "Alias" else named
    return expression_id(inner) if kind(inner) == "AttributeReference" else None


def _part(named: Any, groups: Sequence[Any], *, padded: bool) -> Part | None:
    inner = named.child() if kind(named) == "Alias" else named
    for index, group in enumerate(groups):
        if bool(group.semanticEquals(inner)):
            return Part(kind="KEY", inputs=(group,), key=index)
    if kind(inner) != "AggregateExpression" or bool(inner.isDistinct()):
        return None
    if inner.filter().isDefined():
        return None
    function = inner.aggregateFunction()
    inputs = tuple(items(function.children()))
    name = kind(function).upper()
    fits = {
        "COUNT": True,
        "SUM": _sums_exactly(function),
        "MIN": is_key(inputs[0]) if inputs else False,
        "MAX": is_key(inputs[0]) if inputs else False,
    }
    certain = not any(
        bool(each.nullable()) or (padded and not bool(each.foldable())) for each in inputs
    )
    return Part(kind=name, inputs=inputs, certain=certain) if fits.get(name) else None


def _sums_exactly(function: Any) -> bool:
    """Say whether a sum is one of whole or decimal numbers that fails when it overflows."""
    if kind(function) != "Sum" or str(function.evalContext().evalMode().toString()) != "ANSI":
        return False
    summed = function.child().dataType()
    if str(summed.typeName()).startswith("decimal"):
        return int(summed.precision()) <= _DIGITS
    return str(summed.typeName()) in _INTEGERS


def _is_key(part: Part) -> bool:
    return part.kind == "KEY"


# ---- the change of each group --------------------------------------------------------------------


def changed_groups(
    algebra: Algebra, catalyst: Catalyst, change: Any, weight: Any
) -> tuple[DataFrame, list[str]]:
    """Return one row for each group among changed rows, and the names of its keys.

    The column :data:`DOUBT` says that the group has to be computed anew.

    :param change: a plan with the aggregate's input attributes and their weight.
    """
    named = [catalyst.alias(e, f"g{i}") for i, e in enumerate(algebra.groups)]
    for number, part in enumerate(algebra.parts):
        named += [catalyst.alias(e, f"a{number}_{i}") for i, e in enumerate(part.inputs)]
    rows = catalyst.frame(catalyst.project([*named, catalyst.alias(weight, WEIGHT)], change))
    totals = [F.sum(WEIGHT).alias(_ROWS)]
    for number, part in enumerate(algebra.parts):
        totals += _totals(number, part, rows)
    groups = rows.groupBy(*algebra.keys).agg(*totals)
    doubts = [F.lit(False), *_doubts(algebra)]
    return groups.withColumn(DOUBT, reduce(lambda a, b: a | b, doubts)), algebra.keys


def _totals(number: int, part: Part, rows: DataFrame) -> Iterator[Column]:
    weight = F.col(WEIGHT)
    inputs = [F.col(f"a{number}_{i}") for i in range(len(part.inputs))]
    given = reduce(and_, (value.isNotNull() for value in inputs), F.lit(True))
    match part.kind:
        case "COUNT":
            yield F.sum(F.when(given, weight).otherwise(0)).alias(f"d{number}")
        case "SUM":
            (value,) = inputs
            if not isinstance(rows.schema[f"a{number}_0"].dataType, T.DecimalType):
                value = value.cast("bigint")
            yield F.sum(value * weight).alias(f"d{number}")
            yield F.sum(F.when(given, weight).otherwise(0)).alias(f"n{number}")
        case "MIN" | "MAX":
            best = F.min if part.kind == "MIN" else F.max
            yield best(F.when(weight > 0, inputs[0])).alias(f"d{number}")
            yield F.count_if((weight < 0) & given).alias(f"n{number}")


def _doubts(algebra: Algebra) -> Iterator[Column]:
    """Yield when a group's new row does not follow from its old one."""
    if algebra.counter is None:
        yield F.col(_ROWS) < 0  # perhaps these were all
    for number, part in enumerate(algebra.parts):
        if part.kind == "SUM" and not part.certain:
            yield F.col(f"n{number}") < 0  # perhaps only NULLs are left
        elif part.kind in {"MIN", "MAX"}:
            yield F.col(f"n{number}") > 0


# ---- the change of the table ---------------------------------------------------------------------


def combined(algebra: Algebra, groups: DataFrame, stored: DataFrame) -> DataFrame:
    """Return the signed change of the table, in the order of its columns.

    :param groups: what :func:`changed_groups` returned, none of it in doubt.
    :param stored: at least the table's rows of these groups; at most all of its rows.
    """
    names, fields = stored.columns, stored.schema.fields
    old = stored.toDF(*(f"s{i}" for i in range(len(names)))).withColumn(_STORED, F.lit(1))
    pairs = zip(algebra.keys, algebra.columns, strict=True)
    same = reduce(and_, (F.col(key).eqNullSafe(F.col(f"s{column}")) for key, column in pairs))
    both = groups.join(old, same, "left")
    before = [F.col(f"s{i}").alias(f"c{i}") for i in range(len(names))]
    after = [
        _value(i, part, fields[i].dataType).cast(fields[i].dataType).alias(f"c{i}")
        for i, part in enumerate(algebra.parts)
    ]
    is_old = F.when(F.col(_STORED).isNotNull(), -1).otherwise(0).cast("bigint").alias(WEIGHT)
    is_new = F.when(_remains(algebra), 1).otherwise(0).cast("bigint").alias(WEIGHT)
    rows = F.array(F.struct(*before, is_old), F.struct(*after, is_new))
    return both.select(F.inline(rows)).where(F.col(WEIGHT) != 0).toDF(*names, WEIGHT)


def _value(number: int, part: Part, type: T.DataType) -> Column:
    old, change = F.col(f"s{number}"), F.col(f"d{number}")
    match part.kind:
        case "KEY":
            return F.col(f"g{part.key}")
        case "COUNT":
            return F.coalesce(old, F.lit(0)) + change
        case "SUM":
            first = F.when(F.col(f"n{number}") > 0, change)
            # In the type of the table, since a sum of wider ones could lose digits.
            added = old + F.coalesce(change.cast(type), F.lit(0).cast(type))
            return F.when(old.isNull(), first).otherwise(added)
        case "MIN":
            return F.least(old, change)
        case _:
            return F.greatest(old, change)


def _remains(algebra: Algebra) -> Column:
    """Say whether the group has rows now.

    Without a count it was not left without any: that is in doubt, and was ruled out.
    """
    if algebra.counter is None:
        return F.col(_STORED).isNotNull() | (F.col(_ROWS) > 0)
    rows = F.coalesce(F.col(f"s{algebra.counter}"), F.lit(0)) + F.col(_ROWS)
    return F.when(rows < 0, F.raise_error(F.lit("the table lacks rows of a group"))).otherwise(
        rows > 0
    )
