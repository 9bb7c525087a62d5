"""Which expressions give the same value again, and which may tell keys apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from tidegate_server.core.refresh.eligibility import Obstacle
from tidegate_server.engine.query.catalyst import descend
from tidegate_server.engine.storage.jvm import items, kind

# What most expressions end in, and nothing is wrong with.
_PLAIN = frozenset({"AttributeReference", "Literal"})
# What has a place among the values in their own order.
_RANKED = frozenset({"Percentile", "Median", "PercentileCont", "PercentileDisc"})
# The order in which rows come makes no difference to these.
ANY_ORDER = _RANKED | frozenset(
    {
        *("Count", "CountIf", "Min", "Max", "Sum", "TrySum", "Average", "TryAverage"),
        *("BoolAnd", "BoolOr", "BitAndAgg", "BitOrAgg", "BitXorAgg", "HyperLogLogPlusPlus"),
        "PivotFirst",  # of the one row there is for each value, as PIVOT groups by it before
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
# These do the same with each element of an array, or keep one of those that are equal.
_ELEMENTWISE = frozenset({"ArrayFilter", "ArrayTransform", "ArrayDistinct"})
_ORDERING = frozenset({"SortArray", "ArraySort"})
# In which names that are resolved differ from those that are not.
_RESOLVED = re.compile(r"#\d+|'")
# What these say of an array is the same in every order.
_UNORDERED = frozenset({"Size", "ArrayContains", "ArrayMin", "ArrayMax"})
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
_SESSION_WINDOW = "spark.sessionWindow"
_SESSION_VALUES = frozenset({"Now", "LocalTimestamp"})
# What these give is a number of rows or a value as it is, nothing that is rounded.
_COUNTS = frozenset({"Count", "CountIf", "PivotFirst"})
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


def find_refusals(expression: Any) -> Iterator[Obstacle]:
    """Yield what makes an expression unfit wherever it stands."""
    name = kind(expression)
    if name in _PLAIN:
        return
    if name in _ORDERING | _UNORDERED and _orders(expression):
        yield from _collection_refusals(expression)
        return
    if "UDF" in name or "UDAF" in name or "UDTF" in name:
        yield Obstacle(
            code="UDF_NOT_DETERMINISTIC",
            text=f"the user-defined function {function_name(expression)} may give other values "
            "next time",
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
    """Yield the calls of aggregate functions, windows not looked into."""
    for expression in expressions:
        yield from (part for part in descend(expression) if kind(part) == "AggregateExpression")


def aggregates(expressions: Iterable[Any]) -> Iterator[Any]:
    """Yield the aggregate functions called, windows not looked into."""
    return (call.aggregateFunction() for call in aggregate_calls(expressions))


def shared_groups(aggregate: Any) -> tuple[Any, ...]:
    """Return the grouping expressions in which all rows of a group agree: all but a session window,
    which is that of one row before those of its neighbours are joined to it."""
    return tuple(
        group
        for group in items(aggregate.groupingExpressions())
        if kind(group) != "AttributeReference" or not group.metadata().contains(_SESSION_WINDOW)
    )


def rounding_obstacle(functions: Iterable[Any]) -> Obstacle | None:
    """Return why sums may differ in the last digits, or be NULL; they are replaced but never taken
    away."""
    for function in functions:
        name = kind(function)
        if name in _COUNTS:
            continue
        if _forgives_overflow(function):
            return Obstacle(
                code="AGGREGATE_NOT_TOP_NODE",
                text=f"whether {function_name(function)} overflows, and is NULL, depends on the "
                "rows' order, and its keys are not columns of the table",
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
                text=f"{function_name(function)} in floating point numbers depends on the rows' "
                "order in its last digits, and its keys are not columns of the table",
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
        yield ties_obstacle(function)
        return
    if "UDF" in name or "UDAF" in name or name in ANY_ORDER | ROUNDED:
        return
    if is_choice(function) or _breaks_ties(function):
        return
    if name in _JUDGED or not function.deterministic():
        yield Obstacle(
            code="ORDER_NOT_UNIQUE",
            text=f"{function_name(function)} depends on the order in which rows come",
        )
    else:
        yield unsupported_obstacle(function_name(function))


def choice_obstacle(functions: Iterable[Any]) -> Obstacle | None:
    """Return why the value of a group may be that of any of some rows."""
    return next((ties_obstacle(each) for each in functions if is_choice(each)), None)


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


def is_sortable(expression: Any) -> bool:
    """Say whether values of the type can be sorted, so that different ones are told apart."""
    text = str(expression.dataType().catalogString())
    return not any(word in text for word in _NOT_SORTED)


def has_ties(function: Any) -> bool:
    """Say whether values that a collation takes for equal compete for being the extreme one."""
    collated = "collate" in str(function.dataType().catalogString())
    return collated and kind(function) in _EXTREMES


def _option_refusals(expression: Any) -> Iterator[Obstacle]:
    if expression.isDefined():
        yield from find_refusals(expression.get())


def _children_refusals(expression: Any) -> Iterator[Obstacle]:
    for child in items(expression.children()):
        yield from find_refusals(child)


def _orders(expression: Any) -> bool:
    """Say whether the order in which an array was collected makes no difference to what a function
    says of it."""
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
    """Say whether an array has certain elements in whatever order."""
    while kind(array) in _ELEMENTWISE:
        children = list(items(array.children()))
        array = children[0]
        if len(children) == 1 and not is_exact(array.dataType().elementType()):
            return False  # of equal ones, the first is kept
        if len(children) > 1 and int(children[1].arguments().size()) != 1:
            return False  # it is told the place as well
    if kind(array) != "AggregateExpression":
        return False
    function = array.aggregateFunction()
    return kind(function) in _COLLECTIONS and is_exact(function.children().apply(0).dataType())


def _collection_refusals(expression: Any) -> Iterator[Obstacle]:
    """Yield what is wrong with anything around or inside the call that collects."""
    array, *others = items(expression.children())
    for other in others:
        yield from find_refusals(other)
    if kind(array) == "AggregateExpression":
        yield from _children_refusals(array.aggregateFunction())
        yield from _option_refusals(array.filter())
    else:
        yield from _collection_refusals(array)


def _sorts_naturally(sort: Any) -> bool:
    """Say whether array_sort compares as it does when it is not told how to."""
    own, natural = sort.function().toString(), sort.defaultComparator().toString()
    return _RESOLVED.sub("", str(own)) == _RESOLVED.sub("", str(natural))


def is_exact(data_type: Any) -> bool:
    """Say whether values of a type that are equal when they are sorted look the same."""
    match str(data_type.typeName()):
        case "struct":
            return all(is_exact(field.dataType()) for field in items(data_type.toSeq()))
        case "array":
            return is_exact(data_type.elementType())
        case name:
            return name in _KEY_TYPES or name.startswith("decimal")


def _is_volatile(name: str, expression: Any) -> bool:
    """Say whether this very expression, not one inside it, varies between two refreshes."""
    if name in _JUDGED:
        return False
    if name in _SESSION_VALUES or (name.startswith("Current") and name != "CurrentRow"):
        return True
    if expression.deterministic():
        return False
    return all(child.deterministic() for child in items(expression.children()))


def _volatile_obstacle(expression: Any) -> Obstacle:
    return Obstacle(
        code="EXPRESSION_NOT_DETERMINISTIC",
        text=f"{function_name(expression)} gives another value at each refresh",
    )


def ties_obstacle(function: Any) -> Obstacle:
    """Return the refusal of a function for which the order of equal rows matters."""
    return Obstacle(
        code="ORDER_NOT_UNIQUE",
        text=f"{function_name(function)} depends on how rows that tie are ordered",
    )


def unsupported_obstacle(what: str) -> Obstacle:
    """Return the refusal of what is not known."""
    return Obstacle(
        code="OPERATOR_NOT_INCREMENTALIZABLE", text=f"no incremental rule is known for {what}"
    )


def function_name(expression: Any) -> str:
    """Return a function's name in SQL."""
    return str(expression.prettyName())
