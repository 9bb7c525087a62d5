"""Keeps a refresh out of the rows that IMMUTABLE WHERE chooses."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame

from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.core.sql.clock import at_moment
from tidegate_server.engine.storage.predicate import matching


def region(order: RefreshOrder, frozen_at: datetime | None) -> str | None:
    """Return the condition of the rows that are immutable at a moment; None if none are."""
    if order.immutable is None or frozen_at is None:
        return None
    return at_moment(order.immutable, frozen_at, order.columns)


def moves(order: RefreshOrder, frozen_at: datetime | None) -> bool:
    """Say whether rows become immutable as time goes by."""
    return order.immutable is not None and region(order, frozen_at) not in (None, order.immutable)


def outside_sql(order: RefreshOrder, frozen_at: datetime | None) -> str | None:
    """Return the condition of the rows that a refresh may write; None if it may write all."""
    chosen = region(order, frozen_at)
    return None if chosen is None else f"({chosen}\n) IS NOT TRUE"


def outside(rows: DataFrame, order: RefreshOrder, frozen_at: datetime | None) -> DataFrame:
    """Leave out the immutable rows; the frame has the table's columns and types.

    :raises ServerError: MT_PREDICATE if the condition cannot be taken at one moment.
    """
    condition = outside_sql(order, frozen_at)
    return rows if condition is None else matching(rows, condition)
