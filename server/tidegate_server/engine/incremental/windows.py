"""Which window functions depend on how rows that tie are ordered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidegate_server.engine.incremental.catalyst import descend
from tidegate_server.engine.incremental.classify import (
    ANY_ORDER,
    POSITIONS,
    ROUNDED,
    aggregates,
    has_ties,
    not_supported,
    pretty,
    ties,
)
from tidegate_server.engine.incremental.dependencies import PEERS, covers_peers, fixed_by
from tidegate_server.refresh.eligibility import Obstacle
from tidegate_server.storage.jvm import items, kind


def window_refusals(window: Any) -> Iterator[Obstacle]:
    """Yield which functions of a Window operator depend on how ties are ordered."""
    unique = _orders_uniquely(window)
    for named in items(window.windowExpressions()):
        for call in (part for part in descend(named) if kind(part) == "WindowExpression"):
            function = call.windowFunction()
            if kind(function) == "AggregateExpression":
                function = function.aggregateFunction()
            frame = call.windowSpec().frameSpecification()
            yield from _refusals(function, frame, unique=unique)


def window_functions(window: Any) -> Iterator[Any]:
    """Yield the aggregate functions that a Window operator calls."""
    return aggregates(items(window.windowExpressions()))


def _refusals(function: Any, frame: Any, *, unique: bool) -> Iterator[Obstacle]:
    name = kind(function)
    if name in PEERS or unique and name in POSITIONS:
        return
    if has_ties(function) or name in POSITIONS:
        yield ties(function)
    elif name in ANY_ORDER or name in ROUNDED:
        if not unique and not covers_peers(frame):
            yield ties(function)
    else:
        yield not_supported(pretty(function))


def _orders_uniquely(window: Any) -> bool:
    """Say whether rows that tie are equal in every column, so that their order is no matter."""
    keys = [*items(window.partitionSpec()), *(o.child() for o in items(window.orderSpec()))]
    return fixed_by(window.child(), [key for key in keys if kind(key) == "AttributeReference"])
