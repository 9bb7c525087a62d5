"""Classifies expressions: which are deterministic, and which can be keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.refresh.eligibility import Obstacle
from tidegate_server.engine.query.catalyst import descend
from tidegate_server.engine.storage.jvm import items, kind

# The most frequent leaves of expressions, which never cause a refusal.
_PLAIN = frozenset({"AttributeReference", "Literal"})
# Aggregates that select a value by its rank.
_RANKED = frozenset({"Percentile", "Median", "PercentileCont", "PercentileDisc"})
# Aggregates that do not depend on the order of rows.
ANY_ORDER = _RANKED | frozenset(
    {
        *("Count", "CountIf", "Min", "Max", "Sum", "TrySum", "Average", "TryAverage"),
        *("BoolAnd", "BoolOr", "BitAndAgg", "BitOrAgg", "BitXorAgg", "HyperLogLogPlusPlus"),
        "PivotFirst",  # there is only one row per value, since PIVOT groups by it first
    }
)
# Aggregates whose last digits only depend on the order of rows.
ROUNDED = frozenset(
    {
        *("StddevSamp", "StddevPop", "VarianceSamp", "VariancePop", "Skewness", "Kurtosis"),
        *("Corr", "CovPopulation", "CovSample", "RegrAvgX", "RegrAvgY", "RegrCount"),
        *("RegrIntercept", "RegrR2", "RegrSXX", "RegrSXY", "RegrSYY", "RegrSlope"),
        "RegrReplacement",
    }
)
_COLLECTIONS = frozenset({"CollectList", "CollectSet"})
# Functions that treat all elements of an array alike, or keep one of several equal ones.
_ELEMENTWISE = frozenset({"ArrayFilter", "ArrayTransform", "ArrayDistinct"})
_ORDERING = frozenset({"SortArray", "ArraySort"})
# Parts in which resolved names differ from unresolved ones.
_RESOLVED = re.compile(r"#\d+|'")
# Functions of an array that do not depend on its order.
_UNORDERED = frozenset({"Size", "ArrayContains", "ArrayMin", "ArrayMax"})
POSITIONS = frozenset({"RowNumber", "NTile", "Lead", "Lag", "NthValue", "First", "Last"})
_CHOOSING = frozenset({"First", "Last", "AnyValue", "MaxBy", "MinBy"})
# Functions that are checked where they are called.
_JUDGED = _CHOOSING | POSITIONS | {"CollectList", "CollectSet", "ListAgg", "Mode"}
_KEY_TYPES = frozenset(
    {
        *("boolean", "byte", "short", "integer", "long", "string", "date"),
        *("timestamp", "timestamp_ntz"),
    }
)
_SESSION_WINDOW = "spark.sessionWindow"
_SESSION_VALUES = frozenset({"Now", "LocalTimestamp"})
# Aggregates that return a number of rows or an unchanged value, without rounding.
_COUNTS = frozenset({"Count", "CountIf", "PivotFirst"})
_SUMS = frozenset({"Sum", "Average"})
_EXTREMES = frozenset({"Min", "Max"})
_WHOLE = frozenset({"byte", "short", "integer", "long"})
_NOT_SORTED = ("variant", "geography", "geometry", "interval", "collate")
# Spark adds ten digits for a sum of decimals, which have at most 38.
_DIGITS_THAT_FIT = 28


def is_key(expression: Any) -> bool:
    """Say whether an expression is of a type that can be a key."""
    return is_key_type(str(expression.dataType().typeName()))


def is_key_type(name: str) -> bool:
    """Say whether equal values of a type always have equal bytes, NULL aside.

    :param name: as ``typeName`` writes it.
    """
    return name in _KEY_TYPES or name.startswith("decimal")


def is_rounded(data_type: Any) -> bool:
    """Say whether a type is or contains a floating point number."""
    text = str(data_type.catalogString())
    return "double" in text or "float" in text


def find_refusals(expression: Any) -> Iterator[Obstacle]:
    """Yield the obstacles in an expression that are independent of its context."""
    name = kind(expression)
    if name in _PLAIN:
        return
    if name in _ORDERING | _UNORDERED and _ignores_order(expression):
        yield from _collection_refusals(expression)
        return
    if "UDF" in name or "UDAF" in name or "UDTF" in name:
        yield Obstacle(
            code=Reason.UDF_NOT_DETERMINISTIC,
            text=f"the user-defined function {function_name(expression)} may return different "
            "values each time",
        )
    elif name == "AggregateExpression":
        yield from _aggregate_refusals(expression.aggregateFunction())
    elif name == "WindowExpression":
        yield from _children_refusals(expression.windowFunction())
        yield from _children_refusals(expression.windowSpec())
        return
    elif _is_volatile(name, expression):
        yield _volatile_obstacle(expression)
    yield from _children_refusals(expression)


def aggregate_calls(expressions: Iterable[Any]) -> Iterator[Any]:
    """Yield the calls of aggregate functions."""
    for expression in expressions:
        yield from (part for part in descend(expression) if kind(part) == "AggregateExpression")


def aggregates(expressions: Iterable[Any]) -> Iterator[Any]:
    """Return the aggregate functions called."""
    return (call.aggregateFunction() for call in aggregate_calls(expressions))


def shared_groups(aggregate: Any) -> tuple[Any, ...]:
    """Return the grouping expressions that are equal in all rows of a group.

    These are all except a session window, which is that of a single row until Spark merges it with
    those of neighboring rows.
    """
    return tuple(
        group
        for group in items(aggregate.groupingExpressions())
        if kind(group) != "AttributeReference" or not group.metadata().contains(_SESSION_WINDOW)
    )


def rounding_obstacle(functions: Iterable[Any]) -> Obstacle | None:
    """Return why aggregates are not exact: the last digits or NULL may depend on the rows' order.

    Such rows can be replaced by key, but not removed by value.
    """
    for function in functions:
        name = kind(function)
        if name in _COUNTS:
            continue
        if _forgives_overflow(function):
            return Obstacle(
                code=Reason.AGGREGATE_NOT_TOP_NODE,
                text=f"whether {function_name(function)} overflows, and is NULL, depends on the "
                "rows' order, and its keys are not columns of the table",
            )
        inputs = [child.dataType() for child in items(function.children())]
        if name in _RANKED:
            inputs = inputs[:1]  # without the percentage
        in_double = "Average" in name and not any(
            str(t.typeName()).startswith("decimal") for t in inputs
        )
        if name in ROUNDED or in_double or any(is_rounded(t) for t in inputs):
            return Obstacle(
                code=Reason.AGGREGATE_NOT_TOP_NODE,
                text=f"{function_name(function)} in floating point numbers depends on the rows' "
                "order in its last digits, and its keys are not columns of the table",
            )
    return None


def averages_whole(function: Any) -> bool:
    """Say whether a function averages integers, which is exact unless they are too large for the
    floating point number they are added up in."""
    return kind(function) == "Average" and str(function.child().dataType().typeName()) in _WHOLE


def _forgives_overflow(function: Any) -> bool:
    """Say whether a sum becomes NULL on overflow, which may depend on the rows' order."""
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
        yield ties_obstacle(function)
        return
    if "UDF" in name or "UDAF" in name or name in ANY_ORDER | ROUNDED:
        return
    if is_choice(function) or _breaks_ties(function):
        return
    if name in _JUDGED or not function.deterministic():
        yield Obstacle(
            code=Reason.ORDER_NOT_UNIQUE,
            text=f"{function_name(function)} depends on the order of rows",
        )
    else:
        yield unsupported_obstacle(function_name(function))


def choice_obstacle(functions: Iterable[Any]) -> Obstacle | None:
    """Return the obstacle if an aggregate may choose among rows that tie."""
    return next((ties_obstacle(each) for each in functions if is_choice(each)), None)


def is_choice(function: Any) -> bool:
    """Say whether an aggregate function is deterministic unless different rows tie."""
    if kind(function) == "ListAgg":
        return not (function.orderExpressions().isEmpty() or _breaks_ties(function))
    return kind(function) in _CHOOSING


def _breaks_ties(function: Any) -> bool:
    """Say whether a function orders values by themselves, so that only equal ones tie."""
    name = kind(function)
    if name == "Mode":
        return bool(function.reverseOpt().isDefined()) and is_key(function.child())
    orders = items(function.orderExpressions()) if name == "ListAgg" else iter(())
    by = [order.child() for order in orders]
    return bool(by) and is_key(by[0]) and bool(by[0].semanticEquals(function.child()))


def is_sortable(type: str) -> bool:
    """Say whether values of a type can be sorted, so that different ones do not tie.

    :param type: as ``catalogString`` writes it.
    """
    return not any(word in type for word in _NOT_SORTED)


def has_ties(function: Any) -> bool:
    """Say whether MIN or MAX may choose among values that a collation considers equal."""
    collated = "collate" in str(function.dataType().catalogString())
    return collated and kind(function) in _EXTREMES


def _option_refusals(expression: Any) -> Iterator[Obstacle]:
    if expression.isDefined():
        yield from find_refusals(expression.get())


def _children_refusals(expression: Any) -> Iterator[Obstacle]:
    for child in items(expression.children()):
        yield from find_refusals(child)


def _ignores_order(expression: Any) -> bool:
    """Say whether a function of a collected array does not depend on the order of collecting."""
    array = expression.children().apply(0)
    if not _is_collected(array):
        return False
    name = kind(expression)
    if name in {"Size", "ArrayContains"}:
        return True
    return is_exact(array.dataType().elementType()) and (
        name != "ArraySort" or _sorts_naturally(expression)
    )


def _is_collected(array: Any) -> bool:
    """Say whether an array has the same elements in each refresh, in any order."""
    while kind(array) in _ELEMENTWISE:
        children = list(items(array.children()))
        array = children[0]
        if len(children) == 1 and not is_exact(array.dataType().elementType()):
            return False  # it keeps the first of several equal elements
        if len(children) > 1 and int(children[1].arguments().size()) != 1:
            return False  # the function also gets the element's index
    if kind(array) != "AggregateExpression":
        return False
    function = array.aggregateFunction()
    return kind(function) in _COLLECTIONS and is_exact(function.children().apply(0).dataType())


def _collection_refusals(expression: Any) -> Iterator[Obstacle]:
    """Yield obstacles around or inside the call of collect_list or collect_set."""
    array, *others = items(expression.children())
    for other in others:
        yield from find_refusals(other)
    if kind(array) == "AggregateExpression":
        yield from _children_refusals(array.aggregateFunction())
        yield from _option_refusals(array.filter())
    else:
        yield from _collection_refusals(array)


def _sorts_naturally(sort: Any) -> bool:
    """Say whether array_sort has its default comparator."""
    own, natural = sort.function().toString(), sort.defaultComparator().toString()
    return _RESOLVED.sub("", str(own)) == _RESOLVED.sub("", str(natural))


def is_exact(data_type: Any) -> bool:
    """Say whether values of a type that sort as equal are identical."""
    match str(data_type.typeName()):
        case "struct":
            return all(is_exact(field.dataType()) for field in items(data_type.toSeq()))
        case "array":
            return is_exact(data_type.elementType())
        case name:
            return name in _KEY_TYPES or name.startswith("decimal")


def _is_volatile(name: str, expression: Any) -> bool:
    """Say whether the expression itself, not one inside it, may vary between refreshes."""
    if name in _JUDGED:
        return False
    if name in _SESSION_VALUES or (name.startswith("Current") and name != "CurrentRow"):
        return True
    if expression.deterministic():
        return False
    return all(child.deterministic() for child in items(expression.children()))


def _volatile_obstacle(expression: Any) -> Obstacle:
    return Obstacle(
        code=Reason.EXPRESSION_NOT_DETERMINISTIC,
        text=f"{function_name(expression)} returns a different value in each refresh",
    )


def ties_obstacle(function: Any) -> Obstacle:
    """Return the obstacle for a function that depends on the order of rows that tie."""
    return Obstacle(
        code=Reason.ORDER_NOT_UNIQUE,
        text=f"{function_name(function)} depends on the order of rows that tie",
    )


def unsupported_obstacle(what: str) -> Obstacle:
    """Return the obstacle for an unknown operator or function."""
    return Obstacle(
        code=Reason.OPERATOR_NOT_INCREMENTALIZABLE, text=f"no incremental rule is known for {what}"
    )


def function_name(expression: Any) -> str:
    """Return a function's name in SQL."""
    return str(expression.prettyName())
