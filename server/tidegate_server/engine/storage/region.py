"""Keeps a refresh out of the rows that IMMUTABLE WHERE chooses."""

from __future__ import annotations

from pyspark.sql import DataFrame

from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.core.sql.clock import at_moment
from tidegate_server.engine.storage.predicate import matching


def region(order: RefreshOrder) -> str | None:
    """Return the condition of the rows that stay; None if none do."""
    if order.immutable is None or order.frozen_at is None:
        return None
    return at_moment(order.immutable, order.frozen_at, order.columns)


def moves(order: RefreshOrder) -> bool:
    """Say whether rows become immutable as time goes by."""
    return order.immutable is not None and region(order) not in (None, order.immutable)


def outside_sql(order: RefreshOrder) -> str | None:
    """Return the condition of the rows that a refresh may write; None if it may write all."""
    chosen = region(order)
    return None if chosen is None else f"({chosen}\n) IS NOT TRUE"


def outside(rows: DataFrame, order: RefreshOrder) -> DataFrame:
    """Leave out the immutable rows; the frame has the table's columns and types.

    :raises ServerError: MT_PREDICATE if the condition cannot be taken at one moment.
    """
    condition = outside_sql(order)
    return rows if condition is None else matching(rows, condition)
