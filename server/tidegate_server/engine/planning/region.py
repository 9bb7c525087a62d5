"""The rows that IMMUTABLE WHERE keeps out of a refresh."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.commit_record import RecordedRefresh


@dataclass(frozen=True, slots=True, kw_only=True)
class ImmutableRegion:
    """Which rows of the table a refresh leaves as they are."""

    filled: bool
    """Whether the table was computed as a whole before."""
    frozen_at: datetime | None
    """The moment for which the condition is taken; None if the refresh may write every row."""


def region_of(order: RefreshOrder, last: RecordedRefresh | None) -> ImmutableRegion:
    """Return the region for one refresh.

    Nothing is immutable before the table was computed as a whole. The moment never goes back: a
    row that was immutable at one refresh is so at the next, whatever time that runs for.
    """
    filled = last is not None and last.record.filled
    if last is None or not filled or order.immutable is None:
        return ImmutableRegion(filled=filled, frozen_at=None)
    before = last.record.frozen_at or last.record.logical_time
    return ImmutableRegion(filled=filled, frozen_at=max(order.logical_time, before))
