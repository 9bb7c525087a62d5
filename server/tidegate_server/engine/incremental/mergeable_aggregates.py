"""Updates groups from their change alone, where sums and counts are exact.

A table with one row per group, with only the group's keys and exact aggregates, already stores the
old values. Adding the aggregates of the changed rows is enough, however many rows a group has. If
the new value cannot be derived, for example because the minimum was deleted, the group is in doubt
and has to be recomputed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tidegate_server.core.refresh.eligibility import Rule
from tidegate_server.engine.incremental.analysis.classify import is_key
from tidegate_server.engine.incremental.analysis.functional_dependencies import PASSING
from tidegate_server.engine.incremental.analysis.shape import Node
from tidegate_server.engine.incremental.changes import WEIGHT
from tidegate_server.engine.query.catalyst import Catalyst, expression_id
from tidegate_server.engine.storage.jvm import items, kind

DOUBT = "__doubt"
"""Whether a group has to be recomputed."""
FIRST = "__first"
"""True in exactly one row of each changed group."""
_ROWS = "__rows"
_COPIES = "__copies"
_STORED = "__stored"
_REMAINS = "__remains"
INTEGERS = frozenset({"byte", "short", "integer", "long"})
_WHOLE = "DECIMAL(38, 0)"
_PRODUCT_DIGITS = 17
"""With more, multiplying by a weight could exceed the 38 digits of a decimal."""
_SUM_DIGITS = 27
"""With more, adding two sums could exceed 38; a sum has ten digits more than its input."""
_SAFE_SCALE = 6
"""Spark never reduces a scale up to this."""
_ANSI = "spark.sql.ansi.enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One column of the table."""

    kind: str
    """KEY, COUNT, SUM, MIN or MAX."""
    inputs: tuple[Any, ...]
    """Expressions over the aggregate's input."""
    key: int = 0
    """Index of the grouping expression of a KEY."""
    certain: bool = False
    """Whether no input can be NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Algebra:
    """A table whose rows are the groups of ``node``, one row per group."""

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
        """The table's column of each key."""
        found = {part.key: i for i, part in reversed([*enumerate(self.parts)]) if _is_key(part)}
        return tuple(found[index] for index in range(len(self.groups)))

    @property
    def keyed_by_groups(self) -> bool:
        """Whether the node's rows are recomputed by exactly its grouping expressions, in order.

        Grouping by a type such as DOUBLE is possible, but it cannot be a key.
        """
        (keys,) = self.node.keys
        return len(keys) == len(self.groups) and all(
            bool(key.semanticEquals(group)) for key, group in zip(keys, self.groups, strict=True)
        )

    @property
    def often_in_doubt(self) -> bool:
        """Whether each update of a source row puts its group in doubt."""
        return any(part.kind in {"MIN", "MAX"} for part in self.parts)

    @property
    def counter(self) -> int | None:
        """The column that counts a group's rows; None if there is none."""
        return next(
            (i for i, part in enumerate(self.parts) if part.kind == "COUNT" and part.certain), None
        )


def fails_on_overflow(catalyst: Catalyst) -> bool:
    """Say whether a sum that overflows fails; otherwise it is NULL, like a sum of no values."""
    return str(catalyst.spark.conf.get(_ANSI, "true")) == "true"


def read_algebra(shape: Node, table_types: Sequence[str], catalyst: Catalyst) -> Algebra | None:
    """Return how to update a table's groups from their change; None if that is not possible."""
    if not fails_on_overflow(catalyst):
        return None
    node, wanted = _below_projections(shape, table_types, catalyst)
    if node is None or node.kind != "Aggregate":
        return None
    groups = tuple(items(node.plan.groupingExpressions()))
    if not groups or len(node.columns) < len(groups):
        return None
    named = {expression_id(each): each for each in items(node.plan.aggregateExpressions())}
    # Outer joins made from subqueries add NULLs to attributes that Spark still calls not nullable.
    padded = any(inner.operator.rule is Rule.OUTER_JOIN for inner in node.nodes())
    parts = [_part(named[i], groups, padded=padded) if i in named else None for i in wanted]
    known = tuple(part for part in parts if part is not None)
    if len(known) < len(parts) or {p.key for p in known if _is_key(p)} != {*range(len(groups))}:
        return None
    return Algebra(node=node, groups=groups, parts=known)


def _below_projections(
    shape: Node, table_types: Sequence[str], catalyst: Catalyst
) -> tuple[Node | None, list[int]]:
    """Return the topmost operator that is not a projection, and its attribute for each column."""
    output = catalyst.describe(shape.plan.output())
    types = [attribute.type for attribute in output]
    wanted, node = [attribute.id for attribute in output if attribute.id is not None], shape
    if types != list(table_types):
        return None, wanted
    while node.kind == "Project" or node.kind in PASSING:
        if node.kind == "Project":
            named = catalyst.describe(node.plan.projectList())
            passed = {each.id: each.passed for each in named}
            found = [passed.get(id_) for id_ in wanted]
            wanted = [id_ for id_ in found if id_ is not None]
            if len(wanted) < len(found):
                return None, wanted
        (node,) = node.children
    return node, wanted


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


def sums_numbers(function: Any) -> bool:
    """Say whether a function sums integers or decimals and fails on overflow."""
    if kind(function) != "Sum" or str(function.evalContext().evalMode().toString()) != "ANSI":
        return False
    summed = str(function.child().dataType().typeName())
    return summed in INTEGERS or summed.startswith("decimal")


def _sums_exactly(function: Any) -> bool:
    """Say whether two sums of a function can be added without losing digits."""
    if not sums_numbers(function):
        return False
    summed = function.child().dataType()
    if str(summed.typeName()).startswith("decimal"):
        return int(summed.precision()) <= _SUM_DIGITS or int(summed.scale()) <= _SAFE_SCALE
    return True


def is_long(expression: Any) -> bool:
    """Say whether a decimal is too long for a product with a weight."""
    type_ = expression.dataType()
    decimal = str(type_.typeName()).startswith("decimal")
    return decimal and int(type_.precision()) > _PRODUCT_DIGITS


def _is_wide(part: Part) -> bool:
    """Say whether a column sums such decimals."""
    return part.kind == "SUM" and is_long(part.inputs[0])


def _is_key(part: Part) -> bool:
    return part.kind == "KEY"


# ---- the change of each group --------------------------------------------------------------------


def changed_groups(
    algebra: Algebra, catalyst: Catalyst, change: Any, weight: Any
) -> tuple[DataFrame, list[str]]:
    """Return one row for each group among changed rows, and the names of its keys.

    The last column is :data:`DOUBT`.

    :param change: a plan with the aggregate's input attributes and their weight.
    """
    named = [catalyst.alias(e, f"g{i}") for i, e in enumerate(algebra.groups)]
    for number, part in enumerate(algebra.parts):
        named += [catalyst.alias(e, f"a{number}_{i}") for i, e in enumerate(part.inputs)]
    rows = catalyst.frame(catalyst.project([*named, catalyst.alias(weight, WEIGHT)], change))
    totals = [f"sum({WEIGHT}) AS {_ROWS}", f"max(abs({WEIGHT})) AS {_COPIES}"]
    for number, part in enumerate(algebra.parts):
        totals += _totals(number, part, rows)
    groups = rows.groupBy(*algebra.keys).agg(*map(F.expr, totals))
    doubt = " OR ".join(_doubts(algebra)) or "false"
    return groups.selectExpr("*", f"{doubt} AS {DOUBT}"), algebra.keys


def _totals(number: int, part: Part, rows: DataFrame) -> Iterator[str]:
    inputs = [f"a{number}_{i}" for i in range(len(part.inputs))]
    given = " AND ".join(f"{value} IS NOT NULL" for value in inputs) or "true"
    match part.kind:
        case "COUNT":
            yield f"sum(CASE WHEN {given} THEN {WEIGHT} ELSE 0 END) AS d{number}"
        case "SUM":
            (value,) = inputs
            total = weighted_sql(value, rows.schema[value].dataType)
            if _is_wide(part):
                yield f"try_sum({total}) AS d{number}"
                yield f"count({value}) > 0 AND try_sum({total}) IS NULL AS o{number}"
            else:
                yield f"sum({total}) AS d{number}"
            yield f"sum(CASE WHEN {given} THEN {WEIGHT} ELSE 0 END) AS n{number}"
        case "MIN" | "MAX":
            yield f"{part.kind}(CASE WHEN {WEIGHT} > 0 THEN {inputs[0]} END) AS d{number}"
            yield f"count_if({WEIGHT} < 0 AND {given}) AS n{number}"


def weighted_sql(value: str, type: T.DataType) -> str:
    """Return a number times its weight in SQL; NULL for a long decimal unless that is 1 or -1."""
    if not isinstance(type, T.DecimalType):
        # Negating the smallest BIGINT would overflow a BIGINT.
        exact = _WHOLE if isinstance(type, T.LongType) else "BIGINT"
        return f"CAST({value} AS {exact}) * {WEIGHT}"
    if type.precision <= _PRODUCT_DIGITS:
        return f"{value} * {WEIGHT}"
    return f"CASE {WEIGHT} WHEN 1 THEN {value} WHEN -1 THEN -{value} END"


def _doubts(algebra: Algebra) -> Iterator[str]:
    """Yield the conditions under which a group's old row does not determine its new one."""
    if algebra.counter is None:
        yield f"{_ROWS} < 0"  # perhaps no rows are left
    if any(_is_wide(part) for part in algebra.parts):
        yield f"{_COPIES} > 1"  # see weighted_sql
    for number, part in enumerate(algebra.parts):
        if _is_wide(part):
            yield f"o{number}"  # plus the old value it may not overflow
        if part.kind == "SUM" and not part.certain:
            yield f"n{number} < 0"  # perhaps only NULLs are left
        elif part.kind in {"MIN", "MAX"}:
            yield f"n{number} > 0"


# ---- the change of the table ---------------------------------------------------------------------


def combine_groups(algebra: Algebra, groups: DataFrame, stored: DataFrame) -> DataFrame:
    """Return the signed change of the table, each row once, in the order of its columns.

    The weight is followed by :data:`DOUBT`, which makes the rest of the row invalid if it is true,
    and by :data:`FIRST`.

    :param groups: the result of :func:`changed_groups`.
    :param stored: the table, or any part of it that has the rows of these groups.
    """
    names, types = stored.columns, [f.dataType.simpleString() for f in stored.schema.fields]
    old = stored.toDF(*(f"s{i}" for i in range(len(names)))).selectExpr("*", f"1 AS {_STORED}")
    pairs = zip(algebra.keys, algebra.columns, strict=True)
    same = " AND ".join(f"{key} <=> s{column}" for key, column in pairs)
    both = groups.join(old, F.expr(same), "left")
    before = [f"s{i}" for i in range(len(names))]
    after = [f"v{i}" for i in range(len(names))]
    values = (
        f"CAST({_value(i, part, types[i])} AS {types[i]}) AS v{i}"
        for i, part in enumerate(algebra.parts)
    )
    was = f"{_STORED} IS NOT NULL AS {FIRST}"
    remains = f"{DOUBT} OR {_remains(algebra)} AS {_REMAINS}"
    rows = both.selectExpr(*before, *values, DOUBT, was, remains)
    equal = " AND ".join(f"{a} <=> {b}" for a, b in zip(before, after, strict=True))
    changed = rows.where(f"{DOUBT} OR NOT {FIRST} OR NOT {_REMAINS} OR NOT ({equal})")
    taken = _signed_row_sql(before, f"if({FIRST}, -1L, 0L)", FIRST)
    given = _signed_row_sql(after, f"if({_REMAINS}, 1L, 0L)", f"NOT {FIRST}")
    signed = changed.selectExpr(f"inline(array({taken}, {given}))").where("weight <> 0")
    return signed.toDF(*names, WEIGHT, DOUBT, FIRST)


def _signed_row_sql(columns: Sequence[str], weight: str, first: str) -> str:
    named = ", ".join(f"'c{number}', {column}" for number, column in enumerate(columns))
    return f"named_struct({named}, 'weight', {weight}, 'doubt', {DOUBT}, 'first', {first})"


def _value(number: int, part: Part, type: str) -> str:
    old, change = f"s{number}", f"d{number}"
    match part.kind:
        case "KEY":
            return f"g{part.key}"
        case "COUNT":
            return f"coalesce({old}, 0L) + {change}"
        case "SUM":
            first = f"CASE WHEN n{number} > 0 THEN {change} END"
            # In the table's type, since wider decimals could lose digits. Integers need a wider
            # one, as the new sum may fit into a BIGINT even if the change does not.
            exact = _WHOLE if type == "bigint" else type
            change = f"coalesce(CAST({change} AS {exact}), CAST(0 AS {exact}))"
            added = f"CAST({old} AS {exact}) + {change}"
            return f"CASE WHEN {old} IS NULL THEN {first} ELSE {added} END"
        case "MIN":
            return f"least({old}, {change})"
        case _:
            return f"greatest({old}, {change})"


def _remains(algebra: Algebra) -> str:
    """Return the condition that the group has a row after the change.

    Without a count, a group that may have lost all its rows is in doubt, so it need not be
    considered here.
    """
    if algebra.counter is None:
        return f"({_STORED} IS NOT NULL OR {_ROWS} > 0)"
    rows = f"(coalesce(s{algebra.counter}, 0L) + {_ROWS})"
    lacking = "raise_error('the table lacks rows of a group')"
    return f"CASE WHEN {rows} < 0 THEN {lacking} ELSE {rows} > 0 END"
