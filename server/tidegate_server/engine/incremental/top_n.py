"""Derives the first rows of an ordered query from those in the table and the change.

If a query ends in ORDER BY with LIMIT, the table has all of the query's rows up to its own last
one, provided that no other row ties with that. The change of the ordered rows is merged with them:
the first rows are known while enough rows remain, or are added, up to that place. If more rows
leave, the rows that follow are unknown, and the query is computed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

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
from tidegate_server.engine.storage.commit_record import Boundary
from tidegate_server.engine.storage.exact import column_named, sum_weights
from tidegate_server.engine.storage.jvm import items, kind

TIES = Obstacle(
    code=Reason.ORDER_NOT_UNIQUE, text="rows tie where LIMIT cuts, so that any may be left"
)
LEFT = Obstacle(
    code=Reason.ROWS_LEFT_LIMIT,
    text="rows left those that LIMIT keeps, and which ones follow is not in the table",
)
_UNKNOWN = Obstacle(
    code=Reason.OPERATOR_NOT_INCREMENTALIZABLE,
    text="LIMIT at the end of the query is only incremental if its rows are merged with the "
    "table's",
)

_MOST_ROWS = 10_000
_KEY = "__order"
_PART, _RANK, _UPTO, _BOUND = "__part", "__rank", "__upto", "__bound"
_OWN = frozenset({WEIGHT, _PART, _RANK, _UPTO, _BOUND})
_MERGED, _STORED, _TOUCHED = 0, 1, 2


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

    boundary: Boundary
    plan: Any
    """The query's rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The first rows derived from the previous ones."""

    boundary: Boundary
    """COMPLETE or DISTINCT."""
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
    trace = root_trace(shape.plan, table_types, lambda attribute: True)
    while node.kind == "Project" or node.kind in PASSING:
        if node.kind == "Project":
            above.append(node.plan)
        trace = trace_through(node.plan, trace)
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
    shown = {expression_id(attribute) for attribute in items(below.plan.output())}
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
    """Compute the first rows from the sources, and one more to detect a tie; one action.

    :param resources: resources to release after the rows are written.
    """
    output = list(items(first.below.plan.output()))
    rows = catalyst.limit(first.below.plan, first.count + 1)
    keyed = catalyst.project([*output, *_keys(first, catalyst)], rows)
    frame = catalyst.frame(keyed).persist()
    resources.callback(frame.unpersist)
    places = Window.orderBy(*directions(first.order, _KEY))
    found = frame.select(F.rank().over(places).alias(_RANK)).selectExpr(
        f"coalesce(max({_RANK}), 0) AS last", "count(*) AS rows"
    )
    last, count = found.first() or (0, 0)
    further = Boundary.TIED if last <= first.count else Boundary.DISTINCT
    kept = frame.withColumn(_RANK, F.row_number().over(places)).where(F.col(_RANK) <= first.count)
    plan = catalyst.project(output, catalyst.analyzed_plan(kept))
    for projection in reversed(first.above):
        plan = catalyst.with_children(projection, [plan])
    boundary = further if count > first.count else Boundary.COMPLETE
    return FirstRowsFound(boundary=boundary, plan=plan)


def project_change(first: FirstRows, catalyst: Catalyst, plan: Any, weight: Any) -> Any:
    """Return the ordered rows' change as a change of the table, the weight last."""
    for projection in reversed(first.above):
        plan = catalyst.project([*items(projection.projectList()), weight], plan)
    return plan


def merge_change(
    first: FirstRows,
    catalyst: Catalyst,
    stored: DataFrame,
    change: DataFrame,
    resources: ExitStack,
    *,
    whole: bool,
) -> Merged:
    """Return the table's new rows; one Spark action.

    :param stored: the table's previous rows; their recorded boundary is COMPLETE or DISTINCT.
    :param whole: whether it is COMPLETE.
    :param change: the change of all rows, not only the first: the same columns, then the weight.
    :param resources: resources to release after the rows are written.
    :raises NotFollowingError: if rows missing in the table are needed, or rows tie.
    :raises DiffMismatchError: if the table lacks rows that are to be removed.
    """
    columns = stored.columns
    if _OWN & {name.lower() for name in columns}:
        raise DiffMismatchError("a column is named as those of a change are")
    net = sum_weights(change)
    one, none = F.lit(1).cast("bigint"), F.lit(0).cast("bigint")
    both = sum_weights(stored.withColumn(WEIGHT, one).unionAll(net))
    rows = both.withColumn(_PART, F.lit(_MERGED))
    for part, kind_ in ((stored, _STORED), (net.drop(WEIGHT), _TOUCHED)):
        rows = rows.unionAll(part.withColumns({WEIGHT: none, _PART: F.lit(kind_)}))
    placed = _with_places(first, catalyst, rows).persist()
    resources.callback(placed.unpersist)
    inside = "true" if whole else f"{_RANK} <= {_BOUND}"
    found = placed.where(inside).selectExpr(
        f"count_if({_PART} = {_STORED}) AS held",
        f"coalesce(sum({WEIGHT}), 0) AS known",
        f"coalesce(bool_or({WEIGHT} < 0), false) AS wrong",
        f"coalesce(bool_or({_UPTO} = {first.count}), false) AS even",
        f"coalesce(bool_or({_PART} = {_TOUCHED}), false) AS touched",
    )
    look = found.first()
    if look is None or look["wrong"] or look["held"] > first.count:
        raise DiffMismatchError("the table does not have the first rows that were recorded")
    whole = whole and look["known"] <= first.count
    boundary = Boundary.COMPLETE if whole else Boundary.DISTINCT
    if not look["touched"]:
        return Merged(boundary=boundary, rows=None)
    if not whole and look["known"] < first.count:
        raise NotFollowingError(LEFT)
    if not whole and not look["even"]:
        raise NotFollowingError(TIES)
    kept = placed.where(f"{inside} AND {WEIGHT} > 0 AND {_UPTO} <= {first.count}")
    copies = F.explode(F.expr(f"array_repeat(1, CAST({WEIGHT} AS INT))")).alias(_PART)
    return Merged(
        boundary=boundary, rows=kept.select(*map(column_named, columns), copies).drop(_PART)
    )


def _with_places(first: FirstRows, catalyst: Catalyst, rows: DataFrame) -> DataFrame:
    """Add each row's rank, the number of rows up to it, and the last rank in the table."""
    plan = catalyst.analyzed_plan(rows)
    columns = list(items(plan.output()))
    read = [catalyst.alias(columns[i], f"{_KEY}d{i}", a) for a, i in first.columns]
    plan = catalyst.project([*columns, *read], plan)
    frame = catalyst.frame(catalyst.project([*columns, *_keys(first, catalyst)], plan))
    places = Window.orderBy(*directions(first.order, _KEY))
    upto = places.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    all_ = Window.partitionBy()
    is_stored = F.col(_PART) == _STORED
    return frame.withColumns(
        {_RANK: F.rank().over(places), _UPTO: F.sum(WEIGHT).over(upto)}
    ).withColumn(_BOUND, F.max(F.when(is_stored, F.col(_RANK))).over(all_))


def _keys(first: FirstRows, catalyst: Catalyst) -> list[Any]:
    return [catalyst.alias(o.child(), f"{_KEY}{n}") for n, o in enumerate(first.order)]
