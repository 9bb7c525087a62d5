"""Computes tables of few groups from totals recorded in the last commit.

If a query ends in an aggregate followed by operators such as HAVING, or computes an average or a
quotient of sums, the table lacks the values to add to. For few groups, sums and counts fit into the
commit itself: the change of the sources is added to them, and the aggregate's expressions are
evaluated over the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tidegate_server.engine.incremental.analysis.classify import is_key
from tidegate_server.engine.incremental.analysis.functional_dependencies import ROW_WISE
from tidegate_server.engine.incremental.analysis.shape import Node
from tidegate_server.engine.incremental.changes import WEIGHT
from tidegate_server.engine.incremental.mergeable_aggregates import (
    INTEGERS,
    fails_on_overflow,
    is_long,
    sums_numbers,
    weighted_sql,
)
from tidegate_server.engine.query.catalyst import Catalyst, descend, expression_id
from tidegate_server.engine.storage.commit_record import AggregateState, TooManyGroups
from tidegate_server.engine.storage.exact import as_text, from_text
from tidegate_server.engine.storage.jvm import items, kind

MOST_GROUPS = 200
"""With more groups, commits would become too long."""

_LONGEST = 8192
_ROWS = "rows"
_CHANGED = "changed"
# A DOUBLE holds every integer up to this, so the order of a sum does not matter.
_EXACT = 1 << 53
_EXTREMES = frozenset({"Min", "Max"})
_ABOVE = frozenset({"Window", "Aggregate", "Distinct"}) | ROW_WISE


@dataclass(frozen=True, slots=True, kw_only=True)
class Addend:
    """An aggregate function call with results that add up."""

    function: Any
    name: str
    """Count, Sum, Average, Min or Max."""
    inputs: tuple[Any, ...]
    condition: Any | None
    """The FILTER clause."""
    buffers: tuple[Any, ...]
    """The function's aggregation buffer attributes in Spark."""
    kept_as: str
    """The first buffer's SQL type: the sum's, if there is one."""

    @property
    def extreme(self) -> bool:
        """Whether it is a minimum or maximum, which is unknown once it was removed."""
        return self.name in _EXTREMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """A query whose rows are computed from the groups of ``node``."""

    node: Node
    above: tuple[Node, ...]
    """The operators above the aggregate, from the query's result down."""
    groups: tuple[Any, ...]
    addends: tuple[Addend, ...]

    @property
    def keys(self) -> list[str]:
        """The key columns' names in totals."""
        return [f"g{index}" for index in range(len(self.groups))]

    @property
    def topmost(self) -> bool:
        """Whether all operators above the aggregate work row by row."""
        return all(node.kind in ROW_WISE for node in self.above)


def read_totals(shape: Node, catalyst: Catalyst) -> Iterator[Totals]:
    """Yield the query's aggregates that can be kept as totals, topmost first."""
    if not fails_on_overflow(catalyst):
        return
    node = shape
    above: list[Node] = []
    while node.kind in _ABOVE:
        if node.kind == "Aggregate" and (found := _totals(node, above)) is not None:
            yield found
        above.append(node)
        (node,) = node.children


def _totals(node: Node, above: Sequence[Node]) -> Totals | None:
    groups = tuple(items(node.plan.groupingExpressions()))
    results = items(node.plan.aggregateExpressions())
    calls = [c for each in results for c in descend(each) if kind(c) == "AggregateExpression"]
    addends = tuple(addend for call in calls if (addend := _addend(call)) is not None)
    if len(addends) < len(calls) or not all(map(is_key, groups)):
        return None
    return Totals(node=node, above=tuple(above), groups=groups, addends=addends)


def _addend(call: Any) -> Addend | None:
    function = call.aggregateFunction()
    name = kind(function)
    inputs = tuple(items(function.children()))
    exact = (
        name == "Count"
        or (name in _EXTREMES and is_key(inputs[0]))
        or sums_numbers(function)
        or _averages_exactly(function)
    )
    if bool(call.isDistinct()) or not exact:
        return None
    condition = call.filter().get() if call.filter().isDefined() else None
    buffers = tuple(items(function.aggBufferAttributes()))
    return Addend(
        function=function,
        name=name,
        inputs=inputs,
        condition=condition,
        buffers=buffers,
        kept_as=str(buffers[0].dataType().sql()),
    )


def _averages_exactly(function: Any) -> bool:
    if kind(function) != "Average" or str(function.evalMode().toString()) != "ANSI":
        return False
    type_ = str(function.child().dataType().typeName())
    return type_ in INTEGERS or type_.startswith("decimal")


# ---- totals --------------------------------------------------------------------------------------


def _partial_aggregates(
    totals: Totals, catalyst: Catalyst, rows: Any, weight: Any | None
) -> DataFrame:
    """Return the totals of each group in ``rows``.

    :param rows: a plan with the aggregate's input attributes.
    :param weight: the attribute with each row's weight; None for 1.
    """
    named = [catalyst.alias(e, name) for e, name in zip(totals.groups, totals.keys, strict=True)]
    for number, addend in enumerate(totals.addends):
        named += [catalyst.alias(e, f"a{number}_{i}") for i, e in enumerate(addend.inputs)]
        if addend.condition is not None:
            named.append(catalyst.alias(addend.condition, f"c{number}"))
    named.append(catalyst.alias(catalyst.long(1) if weight is None else weight, WEIGHT))
    frame = catalyst.frame(catalyst.project(named, rows))
    if weight is not None and any(is_long(each) for a in totals.addends for each in a.inputs):
        # Long decimals cannot be multiplied by a weight, so each copy is a row.
        copies = f"array_repeat(CAST(signum({WEIGHT}) AS BIGINT), CAST(abs({WEIGHT}) AS INT))"
        frame = frame.withColumn(WEIGHT, F.explode(F.expr(copies)))
    parts = [f"{WEIGHT} AS {_ROWS}"]
    for number, addend in enumerate(totals.addends):
        parts += _parts(number, addend, frame, once=weight is None)
    return _group(totals, frame.selectExpr(*totals.keys, *parts))


def _extremes(totals: Totals) -> list[tuple[int, Addend]]:
    return [(n, addend) for n, addend in enumerate(totals.addends) if addend.extreme]


def _parts(number: int, addend: Addend, frame: DataFrame, *, once: bool) -> Iterator[str]:
    inputs = [f"a{number}_{i}" for i in range(len(addend.inputs))]
    given = [f"{value} IS NOT NULL" for value in inputs]
    if addend.condition is not None:
        given.append(f"c{number}")
    when = " AND ".join(given) or "true"
    yield f"CASE WHEN {when} THEN {WEIGHT} ELSE 0L END AS n{number}"
    if addend.name == "Count":
        return
    (value,) = inputs
    if addend.extreme:
        yield f"CASE WHEN {when} AND {WEIGHT} > 0 THEN {value} END AS x{number}"
        yield f"CASE WHEN {when} AND {WEIGHT} < 0 THEN {value} END AS r{number}"
        return
    type_ = frame.schema[value].dataType
    if isinstance(type_, T.DecimalType):
        total = value if once else weighted_sql(value, type_)
    else:
        total = f"CAST({value} AS BIGINT) * {WEIGHT}"
    yield f"CASE WHEN {when} THEN {total} END AS t{number}"
    if _in_doubles(addend):
        yield f"CASE WHEN {when} THEN abs(CAST({value} AS BIGINT)) * {WEIGHT} END AS m{number}"


def _in_doubles(addend: Addend) -> bool:
    """Say whether Spark sums integers as floating-point numbers."""
    return addend.name == "Average" and addend.kept_as == "DOUBLE"


def _group(totals: Totals, parts: DataFrame) -> DataFrame:
    extremes = {f"{column}{n}": a.name for n, a in _extremes(totals) for column in "xr"}
    # Integers are summed as BIGINT even if Spark uses DOUBLE.
    decimals = {
        f"t{n}": a.kept_as for n, a in enumerate(totals.addends) if a.kept_as.startswith("DECIMAL")
    }
    found = []
    for name in parts.columns[len(totals.groups) :]:
        type_ = decimals.get(name, "BIGINT")
        total = f"coalesce(CAST(sum({name}) AS {type_}), CAST(0 AS {type_}))"
        value = f"{extremes[name]}({name})" if name in extremes else total
        found.append(F.expr(f"{value} AS {name}"))
    return parts.groupBy(*totals.keys).agg(*found)


def _sound(totals: Totals) -> str:
    """Return the SQL condition under which totals determine every value."""
    conditions = [f"{_ROWS} >= 0"]
    for number, addend in enumerate(totals.addends):
        if _in_doubles(addend):
            conditions.append(f"m{number} <= {_EXACT}")
        elif addend.extreme:
            # Even if an equal one was added: rows of a join's change may cancel out.
            removed = f"r{number} {'<=' if addend.name == 'Min' else '>='} x{number}"
            conditions.append(f"NOT coalesce({removed}, false)")
    return " AND ".join(conditions)


# ---- the query's rows ----------------------------------------------------------------------------


def _compute_plans(totals: Totals, catalyst: Catalyst, frame: DataFrame) -> list[Any]:
    """Return a plan that computes the query's rows from all groups' totals, followed by the plans
    of the rows that each operator above the aggregate reads."""
    buffers: dict[int, tuple[Any, str]] = {}
    for number, addend in enumerate(totals.addends):
        for buffer, value in zip(addend.buffers, _values(number, addend), strict=True):
            buffers.setdefault(expression_id(buffer), (buffer, value))
    values = [value for _, value in buffers.values()]
    names = [f"b{index}" for index in range(len(values))]
    columns = [f"{value} AS {name}" for value, name in zip(values, names, strict=True)]
    plan = catalyst.analyzed_plan(frame.selectExpr(*totals.keys, *columns))
    attributes = list(items(plan.output()))
    keys, rest = attributes[: len(totals.groups)], attributes[len(totals.groups) :]
    labelled = [
        catalyst.alias(attribute, name, buffer)
        for attribute, name, (buffer, _) in zip(rest, names, buffers.values(), strict=True)
    ]
    plan = catalyst.project([*keys, *labelled], plan)
    results = items(totals.node.plan.aggregateExpressions())
    plan = catalyst.project([_result(each, totals, keys, catalyst) for each in results], plan)
    plans = [plan]
    for node in reversed(totals.above):
        plans.insert(0, catalyst.with_children(node.plan, plans[:1]))
    return plans


def _values(number: int, addend: Addend) -> list[str]:
    """Return the values of the function's Spark buffers, in SQL."""
    if addend.name == "Count":
        return [f"n{number}"]
    if addend.extreme:
        return [f"x{number}"]
    total = f"CAST(t{number} AS {addend.kept_as})"
    if addend.name == "Average":
        return [total, f"n{number}"]
    found = [f"CASE WHEN n{number} > 0 THEN {total} END"]
    return found if len(addend.buffers) == 1 else [*found, f"n{number} = 0"]


def _result(named: Any, totals: Totals, keys: Sequence[Any], catalyst: Catalyst) -> Any:
    found = _evaluate(named, totals, keys, catalyst)
    return found if kind(found) == "Alias" else catalyst.alias(found, str(named.name()), named)


def _evaluate(expression: Any, totals: Totals, keys: Sequence[Any], catalyst: Catalyst) -> Any:
    """Rewrite an aggregate's expression to totals."""
    for group, key in zip(totals.groups, keys, strict=True):
        if bool(group.semanticEquals(expression)):
            return key
    if kind(expression) == "AggregateExpression":
        return expression.aggregateFunction().evaluateExpression()
    children = list(items(expression.children()))
    if not children:
        return expression
    evaluated = [_evaluate(child, totals, keys, catalyst) for child in children]
    return catalyst.with_children(expression, evaluated)


# ---- recorded state ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Totals of all groups, and the rows computed from them."""

    state: AggregateState | TooManyGroups
    """Their form in a commit; the text is a JSON array of arrays of strings."""
    plans: Sequence[Any]
    """The query's rows, followed by the rows that each operator above the aggregate reads."""
    changed: int = 0
    """The number of groups affected by a change."""

    @property
    def plan(self) -> Any:
        """The query's rows."""
        return self.plans[0]


def compute_state(
    totals: Totals, catalyst: Catalyst, resources: ExitStack, *, few: bool
) -> Recorded | None:
    """Compute totals and rows from the sources; None if there are too many, or an average is not
    exact.

    :param resources: resources to release after the rows are written.
    :param few: whether few groups are expected; otherwise the groups are cached.
    """
    frame = _partial_aggregates(totals, catalyst, totals.node.plan.child(), None)
    if not few and totals.groups:
        frame = frame.persist()
        resources.callback(frame.unpersist)
        look = frame.selectExpr("count(*) AS groups", f"bool_and({_sound(totals)}) AS sound")
        groups, sound = look.first() or (0, True)
        if groups > MOST_GROUPS and sound:
            return Recorded(state=TooManyGroups(), plans=_compute_plans(totals, catalyst, frame))
    return _collect_state(totals, catalyst, frame.withColumn(_CHANGED, F.lit(0)))


def advance_state(
    totals: Totals, catalyst: Catalyst, before: AggregateState, change: Any, weight: Any
) -> Recorded | None:
    """Add a change to recorded totals; None if the new ones are unknown or too many.

    :param before: the recorded state.
    :param change: a plan with the aggregate's input attributes and ``weight``.
    """
    added = _partial_aggregates(totals, catalyst, change, weight)
    known = _restore(catalyst.spark, before.text, _lasting(totals, added))
    both = known.withColumn(_CHANGED, F.lit(0)).unionByName(
        added.withColumn(_CHANGED, F.lit(1)), allowMissingColumns=True
    )
    # If only NULLs are left, the previous value must not remain.
    left = {f"x{n}": F.expr(f"CASE WHEN n{n} > 0 THEN x{n} END") for n, _ in _extremes(totals)}
    return _collect_state(totals, catalyst, _group(totals, both).withColumns(left))


def _collect_state(totals: Totals, catalyst: Catalyst, frame: DataFrame) -> Recorded | None:
    """Collect totals; one Spark action."""
    lasting = _lasting(totals, frame)
    texts = ", ".join(as_text(field.name, field.dataType) for field in lasting)
    remains = f"{_ROWS} > 0" if totals.groups else "true"
    look = frame.limit(MOST_GROUPS + 1).selectExpr(
        f"to_json(sort_array(collect_list(CASE WHEN {remains} THEN array({texts}) END))) AS text",
        "count(*) AS groups",
        f"coalesce(bool_and({' AND '.join((_sound(totals), *_readable(lasting)))}), true) AS sound",
        f"coalesce(sum({_CHANGED}), 0) AS changed",
    )
    found = look.first()
    if found is None or not found["sound"] or found["groups"] > MOST_GROUPS:
        return None
    text = str(found["text"])
    if len(text) > _LONGEST:
        return None
    plans = _compute_plans(totals, catalyst, _restore(catalyst.spark, text, lasting))
    return Recorded(state=AggregateState(text), plans=plans, changed=int(found["changed"]))


def _lasting(totals: Totals, frame: DataFrame) -> list[T.StructField]:
    """Return the columns of totals that are recorded."""
    passing = {_CHANGED, *(f"r{number}" for number, _ in _extremes(totals))}
    return [field for field in frame.schema.fields if field.name not in passing]


def _readable(fields: Sequence[T.StructField]) -> Iterator[str]:
    """Yield the conditions under which JSON preserves the values."""
    for field in fields:
        if isinstance(field.dataType, T.StringType):
            yield f"coalesce(is_valid_utf8({field.name}), true)"


def _restore(spark: SparkSession, text: str, fields: Sequence[T.StructField]) -> DataFrame:
    lists = F.explode(F.from_json(F.lit(text), "ARRAY<ARRAY<STRING>>"))
    values = (f"{from_text(f'v[{n}]', f.dataType)} AS {f.name}" for n, f in enumerate(fields))
    return spark.sql("SELECT 1").select(lists.alias("v")).selectExpr(*values)
