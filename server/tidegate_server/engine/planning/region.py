"""From which moment's IMMUTABLE WHERE a refresh keeps out."""

from __future__ import annotations

from dataclasses import replace

from tidegate_server.core.refresh.request import CommittedRefresh, RefreshOrder


def with_region(order: RefreshOrder, last: CommittedRefresh | None) -> RefreshOrder:
    """Return the order with the moment for which its immutable region is taken.

    Nothing is immutable before the table was computed as a whole. The moment never goes back: a
    row that was immutable at one refresh is so at the next, whatever time that runs for.
    """
    filled = last is not None and last.filled
    if last is None or not filled or order.immutable is None:
        return replace(order, filled=filled, frozen_at=None)
    before = last.frozen_at or last.logical_time or order.logical_time
    return replace(order, filled=filled, frozen_at=max(order.logical_time, before))
