"""The rows that IMMUTABLE WHERE keeps unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.commit_record import RecordedRefresh


@dataclass(frozen=True, slots=True, kw_only=True)
class ImmutableRegion:
    """The rows of the table that a refresh does not change."""

    filled: bool
    """Whether the whole table was computed before."""
    frozen_at: datetime | None
    """The time at which the condition is evaluated; None if every row may be written."""


def region_of(order: RefreshOrder, last: RecordedRefresh | None) -> ImmutableRegion:
    """Return the region for one refresh.

    Nothing is immutable until the whole table has been computed. The time never decreases: an
    immutable row stays immutable, whatever the logical time of later refreshes.
    """
    filled = last is not None and last.record.filled
    if last is None or not filled or order.immutable is None:
        return ImmutableRegion(filled=filled, frozen_at=None)
    before = last.record.frozen_at or last.record.logical_time
    return ImmutableRegion(filled=filled, frozen_at=max(order.logical_time, before))
