"""Which expressions give the same value again, and which may tell keys apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tidegate_server.engine.incremental.catalyst import descend
from tidegate_server.refresh.eligibility import Obstacle
from tidegate_server.storage.jvm import items, kind

# What most expressions end in, and nothing is wrong with.
_PLAIN = frozenset({"AttributeReference", "Literal"})
# What has a place among the values in their own order.
_RANKED = frozenset({"Percentile", "Median", "PercentileCont", "PercentileDisc"})
# The order in which rows come makes no difference to these.
ANY_ORDER = _RANKED | frozenset(
    {
        *("Count", "CountIf", "Min", "Max", "Sum", "TrySum", "Average", "TryAverage"),
        *("BoolAnd", "BoolOr", "BitAndAgg", "BitOrAgg", "BitXorAgg", "HyperLogLogPlusPlus"),
    }
)
# The order makes a difference in the last digits only.
ROUNDED = frozenset(
    {
        *("StddevSamp", "StddevPop", "VarianceSamp", "VariancePop", "Skewness", "Kurtosis"),
        *("Corr", "CovPopulation", "CovSample", "RegrAvgX", "RegrAvgY", "RegrCount"),
        *("RegrIntercept", "RegrR2", "RegrSXX", "RegrSXY", "RegrSYY", "RegrSlope"),
        "RegrReplacement",
    }
)
_COLLECTIONS = frozenset({"CollectList", "CollectSet"})
_ORDERING = frozenset({"SortArray"})
POSITIONS = frozenset({"RowNumber", "NTile", "Lead", "Lag", "NthValue", "First", "Last"})
_CHOOSING = frozenset({"First", "Last", "AnyValue", "MaxBy", "MinBy"})
# Judged where they are called.
_JUDGED = _CHOOSING | POSITIONS | {"CollectList", "CollectSet", "ListAgg", "Mode"}
_KEY_TYPES = frozenset(
    {
        *("boolean", "byte", "short", "integer", "long", "string", "date"),
        *("timestamp", "timestamp_ntz"),
    }
)
_SESSION_VALUES = frozenset({"Now", "LocalTimestamp"})
_COUNTS = frozenset({"Count", "CountIf"})
_SUMS = frozenset({"Sum", "Average"})
_EXTREMES = frozenset({"Min", "Max"})
_WHOLE = frozenset({"byte", "short", "integer", "long"})
_NOT_SORTED = ("variant", "geography", "geometry", "interval", "collate")
# Spark sums decimals with ten digits more, of which there are 38 at most.
_DIGITS_THAT_FIT = 28


def is_key(expression: Any) -> bool:
    """Say whether equality of the type is equality of its values' bytes, NULL aside."""
    name = str(expression.dataType().typeName())
    return name in _KEY_TYPES or name.startswith("decimal")


def is_rounded(data_type: Any) -> bool:
    """Say whether a type holds floating point numbers, be it inside."""
    text = str(data_type.catalogString())
    return "double" in text or "float" in text


def refusals(expression: Any) -> Iterator[Obstacle]:
    """Yield what makes an expression unfit wherever it stands."""
    name = kind(expression)
    if name in _PLAIN:
        return
    if name in _ORDERING and _collects(expression.children().apply(0)):
        collection = expression.children().apply(0)
        yield from _children_refusals(collection.aggregateFunction())
        yield from _option_refusals(collection.filter())
        return
    if "UDF" in name or "UDAF" in name or "UDTF" in name:
        yield Obstacle(
            code="UDF_NOT_DETERMINISTIC",
            text=f"the user-defined function {pretty(expression)} may give other values next time",
        )
    elif name == "AggregateExpression":
        yield from _aggregate_refusals(expression.aggregateFunction())
    elif name == "WindowExpression":
        yield from _children_refusals(expression.windowFunction())
        yield from _children_refusals(expression.windowSpec())
        return
    elif "SessionWindow" in name:
        yield not_supported("session_window")
    elif _is_volatile(name, expression):
        yield _volatile(expression)
    yield from _children_refusals(expression)


def aggregate_calls(expressions: Iterable[Any]) -> Iterator[Any]:
    """Yield the calls of aggregate functions, windows not looked into."""
    for expression in expressions:
        yield from (part for part in descend(expression) if kind(part) == "AggregateExpression")


def aggregates(expressions: Iterable[Any]) -> Iterator[Any]:
    """Yield the aggregate functions called, windows not looked into."""
    return (call.aggregateFunction() for call in aggregate_calls(expressions))


def rounding(functions: Iterable[Any]) -> Obstacle | None:
    """Return why sums may differ in the last digits, or be NULL; they are replaced but never taken
    away."""
    for function in functions:
        name = kind(function)
        if name in _COUNTS:
            continue
        if _forgives_overflow(function):
            return Obstacle(
                code="AGGREGATE_NOT_TOP_NODE",
                text=f"whether {pretty(function)} overflows, and is NULL, depends on the rows' "
                "order, and its keys are not columns of the table",
            )
        inputs = [child.dataType() for child in items(function.children())]
        if name in _RANKED:
            inputs = inputs[:1]  # not which percentage is asked for
        in_double = "Average" in name and not any(
            str(t.typeName()).startswith("decimal") for t in inputs
        )
        if name in ROUNDED or in_double or any(is_rounded(t) for t in inputs):
            return Obstacle(
                code="AGGREGATE_NOT_TOP_NODE",
                text=f"{pretty(function)} in floating point numbers depends on the rows' order "
                "in its last digits, and its keys are not columns of the table",
            )
    return None


def averages_whole(function: Any) -> bool:
    """Say whether a function adds up whole numbers in a floating point number, which is exact as
    long as they are not too large."""
    return kind(function) == "Average" and str(function.child().dataType().typeName()) in _WHOLE


def _forgives_overflow(function: Any) -> bool:
    """Say whether a sum that overflows, perhaps in one order of the rows only, becomes NULL."""
    name = kind(function)
    if name not in _SUMS:
        return False
    mode = str((function.evalContext() if name == "Sum" else function).evalMode().toString())
    type_ = function.child().dataType()
    if str(type_.typeName()).startswith("decimal"):
        return mode != "ANSI" and int(type_.precision()) > _DIGITS_THAT_FIT
    return mode == "TRY" and str(type_.typeName()) == "long"


def _aggregate_refusals(function: Any) -> Iterator[Obstacle]:
    name = kind(function)
    if has_ties(function):
        yield ties(function)
        return
    if "UDF" in name or "UDAF" in name or name in ANY_ORDER | ROUNDED:
        return
    if is_choice(function) or _breaks_ties(function):
        return
    if name in _JUDGED or not function.deterministic():
        yield Obstacle(
            code="ORDER_NOT_UNIQUE",
            text=f"{pretty(function)} depends on the order in which rows come",
        )
    else:
        yield not_supported(pretty(function))


def choosing(functions: Iterable[Any]) -> Obstacle | None:
    """Return why the value of a group may be that of any of some rows."""
    return next((ties(each) for each in functions if is_choice(each)), None)


def is_choice(function: Any) -> bool:
    """Say whether an aggregate function's value is certain unless rows tie that differ."""
    if kind(function) == "ListAgg":
        return not (function.orderExpressions().isEmpty() or _breaks_ties(function))
    return kind(function) in _CHOOSING


def _breaks_ties(function: Any) -> bool:
    """Say whether a function orders values by themselves, so that those that tie are the same."""
    name = kind(function)
    if name == "Mode":
        return bool(function.reverseOpt().isDefined()) and is_key(function.child())
    orders = items(function.orderExpressions()) if name == "ListAgg" else iter(())
    by = [order.child() for order in orders]
    return bool(by) and is_key(by[0]) and bool(by[0].semanticEquals(function.child()))


def can_be_told(expression: Any) -> bool:
    """Say whether values of the type can be sorted, so that different ones are told apart."""
    text = str(expression.dataType().catalogString())
    return not any(word in text for word in _NOT_SORTED)


def has_ties(function: Any) -> bool:
    """Say whether values that a collation takes for equal compete for being the extreme one."""
    collated = "collate" in str(function.dataType().catalogString())
    return collated and kind(function) in _EXTREMES


def _option_refusals(expression: Any) -> Iterator[Obstacle]:
    if expression.isDefined():
        yield from refusals(expression.get())


def _children_refusals(expression: Any) -> Iterator[Obstacle]:
    for child in items(expression.children()):
        yield from refusals(child)


def _collects(expression: Any) -> bool:
    """Say whether it collects values whose order sorting makes certain."""
    if kind(expression) != "AggregateExpression":
        return False
    function = expression.aggregateFunction()
    return kind(function) in _COLLECTIONS and is_key(function.children().apply(0))


def _is_volatile(name: str, expression: Any) -> bool:
    """Say whether this very expression, not one inside it, varies between two refreshes."""
    if name in _JUDGED:
        return False
    if name in _SESSION_VALUES or (name.startswith("Current") and name != "CurrentRow"):
        return True
    if expression.deterministic():
        return False
    return all(child.deterministic() for child in items(expression.children()))


def _volatile(expression: Any) -> Obstacle:
    return Obstacle(
        code="EXPRESSION_NOT_DETERMINISTIC",
        text=f"{pretty(expression)} gives another value at each refresh",
    )


def ties(function: Any) -> Obstacle:
    """Return the refusal of a function for which the order of equal rows matters."""
    return Obstacle(
        code="ORDER_NOT_UNIQUE",
        text=f"{pretty(function)} depends on how rows that tie are ordered",
    )


def not_supported(what: str) -> Obstacle:
    """Return the refusal of what is not known."""
    return Obstacle(
        code="OPERATOR_NOT_INCREMENTALIZABLE", text=f"no incremental rule is known for {what}"
    )


def pretty(expression: Any) -> str:
    """Return a function's name in SQL."""
    return str(expression.prettyName())
