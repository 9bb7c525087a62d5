"""Detects window functions that depend on the order of rows that tie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidegate_server.core.refresh.eligibility import Obstacle
from tidegate_server.engine.incremental.analysis.classify import (
    ANY_ORDER,
    POSITIONS,
    ROUNDED,
    aggregates,
    function_name,
    has_ties,
    ties_obstacle,
    unsupported_obstacle,
)
from tidegate_server.engine.incremental.analysis.functional_dependencies import (
    PEERS,
    covers_peers,
    is_fixed_by,
)
from tidegate_server.engine.query.catalyst import Catalyst, descend
from tidegate_server.engine.storage.jvm import items, kind


def window_refusals(window: Any) -> Iterator[Obstacle]:
    """Yield the obstacles in the functions of a Window operator, regardless of its rows."""
    for function, _ in _calls(window):
        # Spark turns LIMIT without ORDER BY in a subquery into a window, and does not reject that.
        unordered = kind(function) in POSITIONS and window.orderSpec().isEmpty()
        if unordered or has_ties(function):
            yield ties_obstacle(function)
        elif kind(function) not in PEERS | POSITIONS | ANY_ORDER | ROUNDED:
            yield unsupported_obstacle(function_name(function))


def window_ties(window: Any, catalyst: Catalyst) -> Obstacle | None:
    """Return the obstacle if a function of a Window operator depends on the order of rows that tie,
    and these may differ."""
    found = (function for function, frame in _calls(window) if _depends(function, frame))
    function = next(found, None)
    if function is None or _orders_uniquely(window, catalyst):
        return None
    return ties_obstacle(function)


def window_functions(window: Any) -> Iterator[Any]:
    """Yield the aggregate functions that a Window operator calls."""
    return aggregates(items(window.windowExpressions()))


def _calls(window: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the functions that a Window operator calls, each with its frame."""
    for named in items(window.windowExpressions()):
        for call in (part for part in descend(named) if kind(part) == "WindowExpression"):
            function = call.windowFunction()
            if kind(function) == "AggregateExpression":
                function = function.aggregateFunction()
            yield function, call.windowSpec().frameSpecification()


def _depends(function: Any, frame: Any) -> bool:
    name = kind(function)
    return name in POSITIONS or name in ANY_ORDER | ROUNDED and not covers_peers(frame)


def _orders_uniquely(window: Any, catalyst: Catalyst) -> bool:
    """Say whether rows that tie are equal in every column, so that their order is irrelevant."""
    keys = [*items(window.partitionSpec()), *(o.child() for o in items(window.orderSpec()))]
    attributes = [key for key in keys if kind(key) == "AttributeReference"]
    return is_fixed_by(window.child(), attributes, catalyst)
