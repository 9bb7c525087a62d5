"""Run-time preconditions under which an incremental refresh is exact.

A plan cannot prove that no two rows tie in a window's order, but the rows can be checked. If tied
rows are equal in all used columns, the query has only one result, and recomputing some of its rows
gives the same as recomputing all. The same applies to averages of numbers so large that they depend
on the order of addition. Full refreshes check all rows and record the result; incremental ones
check the changed rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.refresh.eligibility import Obstacle
from tidegate_server.engine.incremental.analysis.classify import (
    aggregate_calls,
    aggregates,
    averages_whole,
    is_choice,
    shared_groups,
)
from tidegate_server.engine.incremental.analysis.functional_dependencies import PASSING, conjuncts
from tidegate_server.engine.incremental.analysis.shape import Node, cut_of
from tidegate_server.engine.incremental.analysis.windows import window_functions
from tidegate_server.engine.query.catalyst import Catalyst, expression_id
from tidegate_server.engine.storage.commit_record import RowPreconditions
from tidegate_server.engine.storage.exact import key_sql
from tidegate_server.engine.storage.jvm import items, kind

_EXACT = 2.0**52
"""Sums are computed in DOUBLE, which is exact for integers up to twice this number."""
OBSTACLES: Mapping[RowPreconditions, Obstacle] = {
    RowPreconditions.TIED: Obstacle(
        code=Reason.ORDER_NOT_UNIQUE,
        text="rows tie that differ, so that any of them may come first",
    ),
    RowPreconditions.LARGE: Obstacle(
        code=Reason.AGGREGATE_NOT_TOP_NODE,
        text="the numbers are so large that their avg depends on the rows' order in its last "
        "digits, and its keys are not columns of the table",
    ),
}
"""The obstacle that each unsatisfied precondition raises."""

_FEW_COLUMNS = 4
"""Up to this many, comparing tied rows costs less than finding first whether any rows tie."""
_DOUBT = "DOUBT"
"""The result of a check if rows tie that may be equal; less than the other results."""
_PLACE = "place"
_OWN_COLUMNS = frozenset({"Project", "Aggregate", "Expand"})
# Their expressions, and those above, contain every column that is used.
_SELECTIVE = frozenset({"Filter", "Window", "Join", "Generate"}) | _OWN_COLUMNS | PASSING
_CHOSEN_BY_VALUE = frozenset({"MaxBy", "MinBy"})

Live = frozenset[int]
"""The ids of the attributes used further up."""
Cuts = Mapping[int, int]
"""By attribute id, the largest value for which rows are kept further up."""


class NotFollowingError(Exception):
    """The new rows cannot be derived from the previous ones and the change.

    :param broken: the precondition to record as not satisfied.
    """

    def __init__(self, obstacle: Obstacle | None, broken: RowPreconditions | None = None) -> None:
        super().__init__("" if obstacle is None else obstacle.text)
        self.obstacle = obstacle
        """Why; None if the refresh's other obstacles explain it."""
        self.broken = broken


@dataclass(frozen=True, slots=True, kw_only=True)
class Untied:
    """Tied rows of an operator's input do not differ."""

    node: Node
    partition: tuple[Any, ...]
    """Expressions: only rows equal in all of them can tie."""
    order: tuple[Any, ...] = ()
    """Catalyst's SortOrders: rows equal in them tie; without any, all rows do."""
    told: tuple[Any, ...] = ()
    """Expressions in which tied rows must not differ."""
    conditions: tuple[Any, ...] = ()
    """Conditions of the rows to check."""
    places: int | None = None
    """The number of rows kept per partition; None for all."""
    numbered: bool = True
    """Whether the numbers of the kept rows matter."""
    ordered: Node | None = None
    """The ORDER BY of a LIMIT or OFFSET, whose input the rows are."""

    @property
    def input(self) -> Any:
        """The plan of the rows."""
        return (self.ordered or self.node).plan.child()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """Integers are small enough for an exact floating-point sum."""

    node: Node
    values: tuple[Any, ...]
    """Their expressions."""

    @property
    def input(self) -> Any:
        """The plan of the rows."""
        return self.node.plan.child()


Precondition = Untied | Bounded


def preconditions_of(shape: Node, catalyst: Catalyst) -> tuple[Precondition, ...]:
    """Return the preconditions on the rows of a query."""
    summed = (
        Bounded(node=node, values=tuple(_averaged_values(node)))
        for node in shape.all_nodes()
        if node.operator.bounded and not node.operator.replaced
    )
    return (*_in_query(shape, catalyst), *summed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check of preconditions that has not run."""

    frame: DataFrame
    """One row with the column ``broken``, NULL if all preconditions are satisfied."""
    exactly: Callable[[], DataFrame]
    """Returns such a frame that leaves no doubt."""

    def run(self) -> RowPreconditions:
        """Return SATISFIED, or a precondition that is not; one Spark action, two in doubt."""
        return self.result(_broken(self.frame))

    def result(self, broken: str | None) -> RowPreconditions:
        """Return the result.

        :param broken: what ``frame`` has returned; in doubt, this runs a Spark action.
        """
        if broken == _DOUBT:
            broken = _broken(self.exactly())
        return RowPreconditions.SATISFIED if broken is None else RowPreconditions(broken)


def check_of(
    preconditions: Sequence[Precondition], catalyst: Catalyst, inputs: Sequence[Any] | None = None
) -> Check:
    """Return a check of preconditions.

    Whether any rows tie is known without reading the columns in which they must not differ. Where
    these are many, they are compared only if rows tie.

    :param inputs: for each precondition a plan of the rows to check; by default all rows that its
        operator reads.
    """
    rows = [each.input for each in preconditions] if inputs is None else inputs

    def frame(*, roughly: bool) -> DataFrame:
        found = [
            catalyst.analyzed_plan(_broken_rows(each, catalyst, plan, roughly=roughly))
            for each, plan in zip(preconditions, rows, strict=True)
        ]
        return catalyst.frame(catalyst.union(found)).selectExpr("max(broken) AS broken")

    return Check(frame=frame(roughly=True), exactly=lambda: frame(roughly=False))


def _broken(frame: DataFrame) -> str | None:
    row = frame.first()
    return row["broken"] if row else None


def require(found: RowPreconditions) -> None:
    """Check the result of a :class:`Check`.

    :raises NotFollowingError: if a precondition is not satisfied.
    """
    if found in OBSTACLES:
        raise NotFollowingError(OBSTACLES[found], found)


def directions(orders: Sequence[Any], prefix: str) -> Iterator[Column]:
    """Yield columns that order as Catalyst's SortOrders do.

    :param prefix: the sort columns' names before their number.
    """
    for number, order in enumerate(orders):
        column = F.col(f"{prefix}{number}")
        nulls_first = kind(order.nullOrdering()) == "NullsFirst"
        if kind(order.direction()) == "Ascending":
            yield column.asc_nulls_first() if nulls_first else column.asc_nulls_last()
        else:
            yield column.desc_nulls_first() if nulls_first else column.desc_nulls_last()


# ---- finding preconditions -----------------------------------------------------------------------


def _in_query(shape: Node, catalyst: Catalyst) -> Iterator[Precondition]:
    """Yield the preconditions on the order of rows of a query or subquery."""
    live = frozenset(catalyst.ids(shape.plan.output()))
    return _below(shape, live, {}, catalyst)


def _below(node: Node, live: Live, cuts: Cuts, catalyst: Catalyst) -> Iterator[Precondition]:
    if node.operator.ambiguous is not None:
        match node.kind:
            case "Window":
                yield from _window_ties(node, live, cuts, catalyst)
            case "GlobalLimit" | "Offset":
                yield from _cut_ties(node, live, catalyst)
            case _:
                yield from _choice_ties(node, catalyst)
    for subquery in node.subqueries:
        yield from _in_query(subquery.node, catalyst)
    used, kept = _used_attributes(node, live, cuts, catalyst)
    for child in node.children:
        output = frozenset(catalyst.ids(child.plan.output()))
        below = used & output if node.kind in _SELECTIVE else output
        yield from _below(child, below, kept, catalyst)


def _used_attributes(node: Node, live: Live, cuts: Cuts, catalyst: Catalyst) -> tuple[Live, Cuts]:
    """Return the used attributes of an operator's input, and those used only in a cut."""
    plan = node.plan
    match node.kind:
        case "Project":
            named = {each.id: each for each in catalyst.describe(plan.projectList())}
            plain = {id_: e.passed for id_, e in named.items() if e.passed is not None}
            computed = live | (cuts.keys() - plain.keys())
            read = [each.references for id_, each in named.items() if id_ in computed]
            kept = {plain[id_]: cut for id_, cut in cuts.items() if id_ in plain}
            return frozenset[int]().union(*read), kept
        case "Filter":
            found, rest = dict(cuts), []
            for part in conjuncts(plan.condition()):
                if (cut := _cut(part)) is not None:
                    found[cut[0]] = min(cut[1], found.get(*cut))
                if cut is None or (kind(part) == "EqualTo" and cut[1] > 1):
                    rest.append(part)  # the rows before it matter, too
            return live | catalyst.references(catalyst.seq(rest)), found
    used = catalyst.references(plan.expressions())
    if node.kind in PASSING:
        return live | used, cuts
    return (used if node.kind in _OWN_COLUMNS else live | cuts.keys() | used), {}


def _cut(condition: Any) -> tuple[int, int] | None:
    """Parse ``number <= 3``, ``number < 4`` and ``number = 3``, in either order."""
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


def _averaged_values(node: Node) -> Iterator[Any]:
    """Yield the integer expressions that an operator averages."""
    if node.kind == "Window":
        functions = window_functions(node.plan)
    else:
        functions = aggregates(items(node.plan.aggregateExpressions()))
    return (each.child() for each in functions if averages_whole(each))


def _window_ties(node: Node, live: Live, cuts: Cuts, catalyst: Catalyst) -> Iterator[Untied]:
    """Tied rows come in arbitrary order, which matters if used columns differ."""
    window = node.plan
    made = catalyst.ids(window.windowExpressions())
    used = live | cuts.keys() | catalyst.references(window.expressions())
    untied = Untied(
        node=node,
        partition=tuple(items(window.partitionSpec())),
        order=tuple(items(window.orderSpec())),
        told=tuple(catalyst.select(window.child().output(), used)),
    )
    if len(made) == 1 and made[0] in cuts and _numbers_rows(window):
        untied = replace(untied, places=cuts[made[0]], numbered=made[0] in live)
    yield untied


def _numbers_rows(window: Any) -> bool:
    (named,) = items(window.windowExpressions())
    call = named.child() if kind(named) == "Alias" else named
    return kind(call) == "WindowExpression" and kind(call.windowFunction()) == "RowNumber"


def _cut_ties(node: Node, live: Live, catalyst: Catalyst) -> Iterator[Untied]:
    """Rows that tie where LIMIT or OFFSET cuts are selected arbitrarily."""
    cut = cut_of(node)
    if cut is None or cut.place == 0:
        return
    for projection in cut.passed:
        live, _ = _used_attributes(projection, live, {}, catalyst)
    sort = cut.sort
    yield Untied(
        node=node,
        partition=(),
        order=tuple(items(sort.plan.order())),
        told=tuple(catalyst.select(sort.plan.child().output(), live)),
        places=cut.place,
        numbered=False,
        ordered=sort,
    )


def _choice_ties(node: Node, catalyst: Catalyst) -> Iterator[Untied]:
    """One row of each group is chosen, by input order or by a value."""
    groups = shared_groups(node.plan)
    for call in aggregate_calls(items(node.plan.aggregateExpressions())):
        function = call.aggregateFunction()
        if not is_choice(function):
            continue
        name = kind(function)
        conditions = [call.filter().get()] if call.filter().isDefined() else []
        told, *others = items(function.children())
        untied = Untied(node=node, partition=groups, told=(told,))
        if name in _CHOSEN_BY_VALUE:
            (by,) = others
            conditions.append(catalyst.is_not_null(by))
            order = (catalyst.sort_order(by, descending=name == "MaxBy"),)
            untied = replace(untied, order=order, places=1)
        elif name == "ListAgg":
            conditions.append(catalyst.is_not_null(told))
            untied = replace(untied, order=tuple(items(function.orderExpressions())))
        elif bool(function.ignoreNulls()):
            conditions.append(catalyst.is_not_null(told))
        yield replace(untied, conditions=tuple(conditions))


# ---- checking preconditions ----------------------------------------------------------------------


def _broken_rows(
    precondition: Precondition, catalyst: Catalyst, rows: Any, *, roughly: bool
) -> DataFrame:
    """Return rows with the column ``broken``, not NULL where the precondition is broken.

    :param roughly: whether it may be ``_DOUBT`` where many columns would have to be compared.
    """
    if isinstance(precondition, Untied):
        roughly = roughly and len(precondition.told) > _FEW_COLUMNS
        return _tied_rows(precondition, catalyst, rows, compared=not roughly)
    values = precondition.values
    named = [catalyst.alias(value, f"v{number}") for number, value in enumerate(values)]
    frame = catalyst.frame(catalyst.project(named, rows))
    sums = (f"sum(abs(CAST(v{n} AS DOUBLE))) > {_EXACT}D" for n in range(len(values)))
    large = f"'{RowPreconditions.LARGE.value}'"
    return frame.selectExpr(f"CASE WHEN {' OR '.join(sums)} THEN {large} END AS broken")


def _tied_rows(untied: Untied, catalyst: Catalyst, rows: Any, *, compared: bool) -> DataFrame:
    columns = {
        "p": untied.partition,
        "o": [order.child() for order in untied.order],
        "t": untied.told if compared else (),
    }
    named = [
        catalyst.alias(expression, f"{letter}{number}")
        for letter, expressions in columns.items()
        for number, expression in enumerate(expressions)
    ]
    if untied.conditions:
        rows = catalyst.filter(catalyst.all(untied.conditions), rows)
    frame = catalyst.frame(catalyst.project(named, rows))
    keys = [name for name in frame.columns if name.startswith("p")]
    ordered = [name for name in frame.columns if name.startswith("o")]
    matters = "true"
    if untied.places is None:
        keys += ordered
    else:
        # Spark's group limit drops the rows beyond early, per partition.
        places = Window.partitionBy(*keys).orderBy(*directions(untied.order, "o"))
        frame = frame.withColumn(_PLACE, F.rank().over(places))
        frame = frame.where(F.col(_PLACE) <= untied.places)
        keys.append(_PLACE)
        if not untied.numbered:
            matters = f"{_PLACE} + count(*) - 1 > {untied.places}"
    result, broken = _DOUBT, "count(*) > 1"
    if compared:
        told = ", ".join(
            f"'{f.name}', {key_sql(f.name, f.dataType)}" for f in frame.schema if f.name[0] == "t"
        )
        result = RowPreconditions.TIED.value
        broken = f"NOT min(named_struct({told})) <=> max(named_struct({told}))"
    found = F.expr(f"CASE WHEN {broken} AND {matters} THEN '{result}' END AS broken")
    return frame.groupBy(*keys).agg(found).select("broken")
