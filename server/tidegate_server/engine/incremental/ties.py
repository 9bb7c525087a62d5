"""Rows that tie: where a query's result is a matter of chance if they differ, and whether any do.

What a plan cannot tell, as that nothing changed twice at the same moment, its rows can. As long as
no rows tie that differ in what is used of them, there is one result, and what is computed anew from
some of the rows is what a computation of all would give.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.engine.incremental.catalyst import Catalyst, expression_id
from tidegate_server.engine.incremental.classify import CHOOSING, aggregate_calls
from tidegate_server.engine.incremental.dependencies import PASSING, conjuncts
from tidegate_server.engine.incremental.shape import Node
from tidegate_server.refresh.eligibility import Obstacle
from tidegate_server.storage.exact import key_sql
from tidegate_server.storage.jvm import items, kind

TIED = Obstacle(
    code="ORDER_NOT_UNIQUE", text="rows tie and differ, so that the result is a matter of chance"
)

_PLACE = "place"
_OWN_COLUMNS = frozenset({"Project", "Aggregate", "Expand"})
# Of these every column that is used is in an expression, theirs or one above.
_SELECTIVE = frozenset({"Filter", "Window", "Join", "Generate"}) | _OWN_COLUMNS | PASSING
_CHOSEN_BY_VALUE = frozenset({"MaxBy", "MinBy"})

Live = frozenset[int]
"""The ids of the attributes that are used further up."""
Cuts = Mapping[int, int]
"""By the id of an attribute, the largest value with which a row is kept further up."""


class NotFollowingError(Exception):
    """The rows do not follow from those before and the change."""

    def __init__(self, obstacle: Obstacle | None) -> None:
        super().__init__("" if obstacle is None else obstacle.text)
        self.obstacle = obstacle
        """What to say of it; None if that is what else stands against the refresh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """Rows of an operator's input that must not differ where they tie."""

    node: Node
    partition: tuple[Any, ...]
    """Expressions: only rows that agree in all of them can tie."""
    order: tuple[Any, ...] = ()
    """Catalyst's SortOrders, in which rows tie that are equal; all do if there are none."""
    told: tuple[Any, ...] = ()
    """Expressions in which rows that tie must not differ."""
    conditions: tuple[Any, ...] = ()
    """Which rows count."""
    places: int | None = None
    """How many rows of a partition are kept, by their number; None for all."""
    numbered: bool = True
    """Whether it matters which of the rows that are kept has which number."""


def read_ties(shape: Node, catalyst: Catalyst) -> tuple[Tie, ...]:
    """Return where in a query rows that tie must not differ."""
    live = frozenset(map(expression_id, items(shape.plan.output())))
    return tuple(_below(shape, live, {}, catalyst))


def any_tied(ties: Sequence[Tie], catalyst: Catalyst, inputs: Sequence[Any]) -> bool:
    """Say whether rows tie that differ; one Spark action.

    :param inputs: for each of ``ties`` a plan of the operator's input rows, or of all of them that
        have the same partition as one of these.
    """
    looks = [_look(tie, catalyst, plan) for tie, plan in zip(ties, inputs, strict=True) if tie.told]
    if not looks:
        return False
    union = catalyst.frame(catalyst.union([catalyst.analyzed(look) for look in looks]))
    found = union.selectExpr("bool_or(tied) AS tied").first()
    return bool(found and found["tied"])


def directions(orders: Sequence[Any], prefix: str) -> Iterator[Column]:
    """Yield columns that order as Catalyst's SortOrders do.

    :param prefix: how the columns of what is ordered by are named, before their number.
    """
    for number, order in enumerate(orders):
        column = F.col(f"{prefix}{number}")
        nulls_first = kind(order.nullOrdering()) == "NullsFirst"
        if kind(order.direction()) == "Ascending":
            yield column.asc_nulls_first() if nulls_first else column.asc_nulls_last()
        else:
            yield column.desc_nulls_first() if nulls_first else column.desc_nulls_last()


# ---- where they matter ---------------------------------------------------------------------------


def _below(node: Node, live: Live, cuts: Cuts, catalyst: Catalyst) -> Iterator[Tie]:
    if node.operator.ambiguous is not None:
        yield from (
            _ordered(node, live, cuts) if node.kind == "Window" else _chosen(node, catalyst)
        )
    used, kept = _used(node, live, cuts)
    for child in node.children:
        output = frozenset(map(expression_id, items(child.plan.output())))
        below = used & output if node.kind in _SELECTIVE else output
        yield from _below(child, below, kept, catalyst)


def _used(node: Node, live: Live, cuts: Cuts) -> tuple[Live, Cuts]:
    """Return what is used of an operator's input, and what only in a comparison that cuts."""
    plan = node.plan
    match node.kind:
        case "Project":
            named = list(items(plan.projectList()))
            plain = {
                expression_id(each): expression_id(inner)
                for each in named
                if kind(inner := each.child() if kind(each) == "Alias" else each)
                == "AttributeReference"
            }
            computed = live | (cuts.keys() - plain.keys())
            used = _references(each for each in named if expression_id(each) in computed)
            return used, {plain[id_]: cuts[id_] for id_ in cuts if id_ in plain}
        case "Filter":
            found, rest = dict(cuts), []
            for part in conjuncts(plan.condition()):
                if (cut := _cut(part)) is None:
                    rest.append(part)
                else:
                    found[cut[0]] = min(cut[1], found.get(*cut))
            return live | _references(rest), found
    used = _references(items(plan.expressions()))
    if node.kind in PASSING:
        return live | used, cuts
    return (used if node.kind in _OWN_COLUMNS else live | cuts.keys() | used), {}


def _references(expressions: Iterable[Any]) -> Live:
    return frozenset(
        expression_id(a) for each in expressions for a in items(each.references().toSeq())
    )


def _cut(condition: Any) -> tuple[int, int] | None:
    """Read ``number <= 3``, ``number < 4`` and ``number = 3``, either way round."""
    name = kind(condition)
    if name not in {"EqualTo", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"}:
        return None
    number, limit = condition.left(), condition.right()
    if name.startswith("Greater") or kind(number) == "Literal":
        number, limit = limit, number
        if name.startswith("Less"):
            return None
    if kind(number) != "AttributeReference" or kind(limit) != "Literal":
        return None
    if str(limit.dataType().typeName()) != "integer" or limit.value() is None:
        return None
    strict = name in {"LessThan", "GreaterThan"}
    return expression_id(number), int(limit.value()) - strict


def _ordered(node: Node, live: Live, cuts: Cuts) -> Iterator[Tie]:
    """Of rows that tie any may come first, unless they are equal in all that is used of them."""
    window = node.plan
    made = [expression_id(each) for each in items(window.windowExpressions())]
    used = live | cuts.keys() | _references(items(window.expressions()))
    tie = Tie(
        node=node,
        partition=tuple(items(window.partitionSpec())),
        order=tuple(items(window.orderSpec())),
        told=tuple(a for a in items(window.child().output()) if expression_id(a) in used),
    )
    if len(made) == 1 and made[0] in cuts and _numbers_rows(window):
        tie = replace(tie, places=cuts[made[0]], numbered=made[0] in live)
    yield tie


def _numbers_rows(window: Any) -> bool:
    (named,) = items(window.windowExpressions())
    call = named.child() if kind(named) == "Alias" else named
    return kind(call) == "WindowExpression" and kind(call.windowFunction()) == "RowNumber"


def _chosen(node: Node, catalyst: Catalyst) -> Iterator[Tie]:
    """Of the rows of a group one is chosen, by the order in which they come or by a value."""
    groups = tuple(items(node.plan.groupingExpressions()))
    for call in aggregate_calls(items(node.plan.aggregateExpressions())):
        function = call.aggregateFunction()
        name = kind(function)
        if name not in CHOOSING:
            continue
        conditions = [call.filter().get()] if call.filter().isDefined() else []
        told, *by = items(function.children())
        tie = Tie(node=node, partition=groups, told=(told,))
        if name in _CHOSEN_BY_VALUE:
            conditions.append(catalyst.is_not_null(by[0]))
            order = (catalyst.sort_order(by[0], descending=name == "MaxBy"),)
            tie = replace(tie, order=order, places=1)
        elif bool(function.ignoreNulls()):
            conditions.append(catalyst.is_not_null(told))
        yield replace(tie, conditions=tuple(conditions))


# ---- whether they differ -------------------------------------------------------------------------


def _look(tie: Tie, catalyst: Catalyst, rows: Any) -> DataFrame:
    """Return rows of one column, which is true for those that tie and differ."""
    columns = {
        "p": tie.partition,
        "o": [order.child() for order in tie.order],
        "t": tie.told,
    }
    named = [
        catalyst.alias(expression, f"{letter}{number}")
        for letter, expressions in columns.items()
        for number, expression in enumerate(expressions)
    ]
    if tie.conditions:
        rows = catalyst.filter(catalyst.all(tie.conditions), rows)
    frame = catalyst.frame(catalyst.project(named, rows))
    keys = [name for name in frame.columns if name.startswith("p")]
    ordered = [name for name in frame.columns if name.startswith("o")]
    matters = "true"
    if tie.places is None:
        keys += ordered
    else:
        # Spark itself leaves out the rows beyond, partition by partition.
        places = Window.partitionBy(*keys).orderBy(*directions(tie.order, "o"))
        frame = frame.withColumn(_PLACE, F.rank().over(places))
        frame = frame.where(F.col(_PLACE) <= tie.places)
        keys.append(_PLACE)
        if not tie.numbered:
            matters = f"{_PLACE} + count(*) - 1 > {tie.places}"
    told = ", ".join(
        f"'{f.name}', {key_sql(f.name, f.dataType)}" for f in frame.schema if f.name[0] == "t"
    )
    found = f"NOT min(named_struct({told})) <=> max(named_struct({told})) AND {matters} AS tied"
    return frame.groupBy(*keys).agg(F.expr(found)).select("tied")
