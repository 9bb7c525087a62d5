"""Derives the first rows of an ordered query from those in the table and the change.

If a query ends in ORDER BY with LIMIT, the table has all of the query's rows up to its own last
one, provided that no other row ties with that. Some of the rows that follow are recorded beside it
as spare ones. The change of the ordered rows is merged with both: the first rows are known while
enough rows remain, or are added, up to the last spare one. If more rows leave, the rows that follow
are unknown, and the query is computed.

This is the top-k' of Yi, Yu, Yang, Xia and Chen, "Efficient Maintenance of Materialized Top-k
Views", ICDE 2003.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from hashlib import sha256
from typing import Any

import pyspark
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.refresh.eligibility import Obstacle, Rule
from tidegate_server.engine.incremental.analysis.functional_dependencies import PASSING
from tidegate_server.engine.incremental.analysis.shape import Node, root_trace, trace_through
from tidegate_server.engine.incremental.changes import WEIGHT
from tidegate_server.engine.incremental.preconditions import NotFollowingError, directions
from tidegate_server.engine.query.catalyst import Catalyst, expression_id
from tidegate_server.engine.storage.base import DiffMismatchError
from tidegate_server.engine.storage.commit_record import Boundary, KnownRows
from tidegate_server.engine.storage.exact import column_named, sum_weights
from tidegate_server.engine.storage.jvm import items, java, kind

TIES = Obstacle(
    code=Reason.ORDER_NOT_UNIQUE, text="rows tie where LIMIT cuts, so that any may be left"
)
LEFT = Obstacle(
    code=Reason.ROWS_LEFT_LIMIT,
    text="more rows left those that LIMIT keeps than were recorded to follow them",
)
_UNKNOWN = Obstacle(
    code=Reason.OPERATOR_NOT_INCREMENTALIZABLE,
    text="LIMIT at the end of the query is only incremental if its rows are merged with the "
    "table's",
)

_MOST_ROWS = 10_000
_SPARE_ROWS = 100
_SPARE_BYTES = 1 << 15
"""Spare rows that take more are not recorded."""
_KEY = "__order"
_PART, _RANK, _UPTO, _BOUND = "__part", "__rank", "__upto", "__bound"
_OWN = frozenset({WEIGHT, _PART, _RANK, _UPTO, _BOUND})
_MERGED, _STORED, _SPARE, _TOUCHED = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRows:
    """A query that ends in ORDER BY and LIMIT."""

    node: Node
    """The LIMIT."""
    below: Node
    """The input of the LIMIT."""
    above: tuple[Any, ...]
    """The projections above the LIMIT, from the result down."""
    order: tuple[Any, ...]
    """Catalyst's SortOrders."""
    columns: tuple[tuple[Any, int], ...]
    """The attributes read by the order, each with its column of the table."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRowsFound:
    """The first rows computed from the sources."""

    state: KnownRows
    plan: Any
    """The query's rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The first rows derived from the previous ones."""

    state: KnownRows
    rows: DataFrame | None
    """None if they stay the same."""


def read_first_rows(
    shape: Node, table_types: Sequence[str], catalyst: Catalyst
) -> tuple[Node, FirstRows] | None:
    """Return the ORDER BY with LIMIT that ends a query, and the shape in which it is merged with
    the stored rows; None if there is none.

    :param table_types: the types of the table's columns.
    """
    node, above = shape, []
    trace = root_trace(shape.plan, table_types, catalyst, lambda attribute: True)
    while node.kind == "Project" or node.kind in PASSING:
        if node.kind == "Project":
            above.append(node.plan)
        trace = trace_through(node.plan, trace, catalyst)
        (node,) = node.children
    if node.operator.rule is not Rule.LIMIT or node.kind != "GlobalLimit":
        return None
    (below,) = node.children
    sort = below
    while sort.kind == "Project":
        (sort,) = sort.children
    count = node.plan.limitExpr()
    if sort.kind != "Sort" or not getattr(sort.plan, "global")() or kind(count) != "Literal":
        return None
    shown = {*catalyst.ids(below.plan.output())}
    held = shown & trace.keys()
    made = [alias for alias in _aliases(sort.children[0].plan) if expression_id(alias) in held]
    order = tuple(_told_by(held, made, each, catalyst) for each in items(sort.plan.order()))
    read = {expression_id(a): a for o in order for a in items(o.references().toSeq())}
    number = int(count.value())
    if not (read.keys() <= held and 0 < number <= _MOST_ROWS):
        return None
    shape, node = _merge_limit(shape, node)
    return shape, FirstRows(
        node=node,
        below=below,
        above=tuple(above),
        order=order,
        columns=tuple((attribute, trace[id_]) for id_, attribute in read.items()),
        count=number,
    )


def _merge_limit(shape: Node, limit: Node) -> tuple[Node, Node]:
    """Return a shape whose LIMIT at the end is merged with the stored rows, and that LIMIT.

    Its rows at both versions are not compared, and rows need not differ: both are recorded.
    """
    if shape is limit:
        operator = replace(
            shape.operator, keyed_by=(), keyless=None, whole=False, ambiguous=None, inexact=_UNKNOWN
        )
        merged = replace(shape, operator=operator)
        return merged, merged
    child, merged = _merge_limit(shape.children[0], limit)
    operator = replace(shape.operator, children=(child.operator,))
    return replace(shape, operator=operator, children=(child,)), merged


def _aliases(plan: Any) -> Iterator[Any]:
    """Yield the aliases that define a plan's columns, if they are computed row by row."""
    name = kind(plan)
    if name in {"Project", "Aggregate"}:
        made = plan.projectList() if name == "Project" else plan.aggregateExpressions()
        yield from (each for each in items(made) if kind(each) == "Alias")
    if name in {"Project", "Filter", "Window"} | PASSING:
        yield from _aliases(plan.children().apply(0))


def _told_by(
    held: Collection[int], made: Sequence[Any], expression: Any, catalyst: Catalyst
) -> Any:
    """Rewrite an expression to use columns of the table as far as possible.

    ``SELECT a AS b … ORDER BY a`` orders by a column that the result has only as ``b``.

    :param made: aliases that define columns of the table.
    """
    if kind(expression) == "AttributeReference" and expression_id(expression) in held:
        return expression
    for alias in made:
        if bool(alias.child().semanticEquals(expression)):
            return alias.toAttribute()
    children = [_told_by(held, made, child, catalyst) for child in items(expression.children())]
    return catalyst.with_children(expression, children) if children else expression


def compute_first_rows(
    first: FirstRows, catalyst: Catalyst, resources: ExitStack
) -> FirstRowsFound:
    """Compute the first rows from the sources, and those that follow them; two actions.

    :param resources: resources to release after the rows are written.
    """
    output = list(items(first.below.plan.output()))
    most = first.count + _SPARE_ROWS
    rows = catalyst.limit(first.below.plan, most + 1)  # one more shows whether the last one ties
    keyed = catalyst.project([*output, *_keys(first, catalyst)], rows)
    places = Window.orderBy(*directions(first.order, _KEY))
    ranked = {_RANK: F.rank().over(places), _UPTO: F.row_number().over(places)}
    frame = catalyst.frame(keyed).withColumns(ranked).persist()
    resources.callback(frame.unpersist)
    found = frame.selectExpr(
        "count(*) AS rows",
        f"max({_RANK}) AS last",
        f"coalesce(bool_or({_UPTO} > {first.count} AND {_RANK} <= {first.count}), false) AS tied",
    ).first()
    if found is None:
        raise AssertionError("an aggregate without groups has one row")

    def part(condition: str) -> Any:
        plan = catalyst.analyzed_plan(frame.where(condition))
        plan = catalyst.project(output, plan)
        for projection in reversed(first.above):
            plan = catalyst.with_children(projection, [plan])
        return plan

    plan = part(f"{_UPTO} <= {first.count}")
    if found["tied"]:
        return FirstRowsFound(state=KnownRows(Boundary.TIED), plan=plan)
    whole = found["rows"] <= most
    known = "true" if whole else f"{_RANK} < {found['last']}"
    spare = catalyst.frame(part(f"{_UPTO} > {first.count} AND {known}"))
    return FirstRowsFound(state=_known_rows(spare, whole=whole), plan=plan)


def project_change(first: FirstRows, catalyst: Catalyst, plan: Any, weight: Any) -> Any:
    """Return the ordered rows' change as a change of the table, the weight last."""
    for projection in reversed(first.above):
        plan = catalyst.project_with(projection.projectList(), weight, plan)
    return plan


def merge_change(
    first: FirstRows,
    catalyst: Catalyst,
    state: KnownRows,
    stored: DataFrame,
    change: DataFrame,
    resources: ExitStack,
) -> Merged:
    """Return the table's new rows; two Spark actions.

    :param state: what is recorded of the previous rows; they do not tie where LIMIT cuts.
    :param stored: the table's previous rows.
    :param change: the change of all rows, not only the first: the same columns, then the weight.
    :param resources: resources to release after the rows are written.
    :raises NotFollowingError: if rows missing in the table are needed, or rows tie.
    :raises DiffMismatchError: if the table lacks rows that are to be removed.
    """
    columns = stored.columns
    if _OWN & {name.lower() for name in columns}:
        raise DiffMismatchError("a column is named as those of a change are")
    spare = _spare_rows(catalyst, state.spare, stored)
    whole = state.boundary is Boundary.COMPLETE and (spare is not None or not state.spare)
    previous = [(stored, _STORED), *([(spare, _SPARE)] if spare is not None else [])]
    net = sum_weights(change)
    one, none = F.lit(1).cast("bigint"), F.lit(0).cast("bigint")
    weighted = [each.withColumn(WEIGHT, one) for each, _ in previous]
    rows = sum_weights(reduce(DataFrame.unionAll, [*weighted, net]))
    rows = rows.withColumn(_PART, F.lit(_MERGED))
    for part, kind_ in (*previous, (net.drop(WEIGHT), _TOUCHED)):
        rows = rows.unionAll(part.withColumns({WEIGHT: none, _PART: F.lit(kind_)}))
    placed = _with_places(first, catalyst, rows).persist()
    resources.callback(placed.unpersist)
    inside = placed.where("true" if whole else f"{_RANK} <= {_BOUND}")
    kept = f"{WEIGHT} > 0 AND {_UPTO} <= {first.count}"
    look = inside.selectExpr(
        f"count_if({_PART} = {_STORED}) AS held",
        f"coalesce(sum({WEIGHT}), 0) AS known",
        f"coalesce(bool_or({WEIGHT} < 0), false) AS wrong",
        f"coalesce(bool_or({_UPTO} = {first.count}), false) AS even",
        f"min(CASE WHEN {_PART} = {_TOUCHED} THEN {_RANK} END) AS touched",
        f"max(CASE WHEN {kept} THEN {_RANK} END) AS last",
    ).first()
    if look is None or look["wrong"] or look["held"] > first.count:
        raise DiffMismatchError("the table does not have the first rows that were recorded")
    if look["touched"] is None:
        return Merged(state=state, rows=None)
    cut = not whole or look["known"] > first.count
    if cut and look["known"] < first.count:
        raise NotFollowingError(LEFT)
    if cut and not look["even"]:
        raise NotFollowingError(TIES)
    most = first.count + _SPARE_ROWS
    following = inside.where(f"{WEIGHT} > 0 AND {_UPTO} > {first.count} AND {_UPTO} <= {most}")
    found = _known_rows(_copies(following, columns), whole=whole and look["known"] <= most)
    only_spare = look["known"] > first.count and look["touched"] > look["last"]
    return Merged(state=found, rows=None if only_spare else _copies(inside.where(kept), columns))


def _copies(weighted: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return each row as often as its weight says."""
    copies = F.explode(F.expr(f"array_repeat(1, CAST({WEIGHT} AS INT))")).alias(_PART)
    return weighted.select(*map(column_named, columns), copies).drop(_PART)


def _known_rows(spare: DataFrame, *, whole: bool) -> KnownRows:
    """Return what to record of the rows that follow those of the table; one Spark action.

    They are recorded as Spark has them in memory, which loses nothing of any type.

    :param whole: whether no other rows follow.
    """
    named = spare.toDF(*(f"c{number}" for number in range(len(spare.columns))))
    found: Any = named.selectExpr("collect_list(struct(*))").localCheckpoint()
    (row,) = found._jdf.queryExecution().executedPlan().executeCollect()
    count, data = int(row.getArray(0).numElements()), bytes(row.getBytes())
    if count and len(data) > _SPARE_BYTES:
        return KnownRows(Boundary.DISTINCT)
    text = f"{_layout(spare)}:{b64encode(data).decode()}" if count else ""
    return KnownRows(Boundary.COMPLETE if whole else Boundary.DISTINCT, text)


def _spare_rows(catalyst: Catalyst, text: str, like: DataFrame) -> DataFrame | None:
    """Return recorded rows under the columns of ``like``; None if there are none, or if they were
    recorded by another release of Spark or with other types."""
    layout, _, encoded = text.partition(":")
    if layout != _layout(like):
        return None
    data = b64decode(encoded)
    jvm: Any = java(catalyst.spark)
    row = jvm.org.apache.spark.sql.catalyst.expressions.UnsafeRow(1)
    row.pointTo(data, len(data))
    schema = like._jdf.schema()
    attributes = [catalyst.attribute(str(f.name()), f.dataType()) for f in schema.fields()]
    rows = row.getArray(0).toObjectArray(schema)
    return catalyst.frame(catalyst.rows(attributes, rows))


def _layout(frame: DataFrame) -> str:
    """Return an identifier of how Spark keeps rows of these types in memory."""
    types = ",".join(field.dataType.simpleString() for field in frame.schema)
    return sha256(f"{pyspark.__version__} {types}".encode()).hexdigest()[:16]


def _with_places(first: FirstRows, catalyst: Catalyst, rows: DataFrame) -> DataFrame:
    """Add each row's rank, the number of rows up to it, and the last known rank."""
    plan = catalyst.analyzed_plan(rows)
    columns = list(items(plan.output()))
    read = [catalyst.alias(columns[i], f"{_KEY}d{i}", a) for a, i in first.columns]
    plan = catalyst.project([*columns, *read], plan)
    frame = catalyst.frame(catalyst.project([*columns, *_keys(first, catalyst)], plan))
    places = Window.orderBy(*directions(first.order, _KEY))
    upto = places.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    all_ = Window.partitionBy()
    is_known = F.col(_PART).isin(_STORED, _SPARE)
    return frame.withColumns(
        {_RANK: F.rank().over(places), _UPTO: F.sum(WEIGHT).over(upto)}
    ).withColumn(_BOUND, F.max(F.when(is_known, F.col(_RANK))).over(all_))


def _keys(first: FirstRows, catalyst: Catalyst) -> list[Any]:
    return [catalyst.alias(o.child(), f"{_KEY}{n}") for n, o in enumerate(first.order)]
