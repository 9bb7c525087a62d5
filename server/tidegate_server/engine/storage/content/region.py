"""Excludes the rows that IMMUTABLE WHERE selects from a refresh."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame

from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.core.sql.clock import at_moment
from tidegate_server.engine.storage.content.predicate import select_matching


def immutable_condition(order: RefreshOrder, frozen_at: datetime | None) -> str | None:
    """Return the condition of the rows that are immutable at a moment; None if none are."""
    if order.immutable is None or frozen_at is None:
        return None
    return at_moment(order.immutable, frozen_at, order.columns)


def has_moving_region(order: RefreshOrder, frozen_at: datetime | None) -> bool:
    """Say whether rows become immutable as time goes by."""
    return order.immutable is not None and immutable_condition(order, frozen_at) not in (
        None,
        order.immutable,
    )


def mutable_condition(order: RefreshOrder, frozen_at: datetime | None) -> str | None:
    """Return the condition of the rows that a refresh may write; None if it may write all."""
    chosen = immutable_condition(order, frozen_at)
    return None if chosen is None else f"({chosen}\n) IS NOT TRUE"


def mutable_rows(rows: DataFrame, order: RefreshOrder, frozen_at: datetime | None) -> DataFrame:
    """Leave out the immutable rows; the frame has the table's columns and types.

    :raises ServerError: MT_PREDICATE as in :func:`~.predicate.select_matching`.
    """
    condition = mutable_condition(order, frozen_at)
    return rows if condition is None else select_matching(rows, condition)
