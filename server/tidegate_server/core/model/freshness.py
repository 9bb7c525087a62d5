"""Freshness: the maximum lag of a materialized table behind its sources."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum


class TimeUnit(Enum):
    """Units of freshness; the value is the unit's length in seconds."""

    SECOND = 1
    MINUTE = 60
    HOUR = 3_600
    DAY = 86_400
    WEEK = 604_800


@dataclass(frozen=True, slots=True)
class Freshness:
    """A positive whole number of one unit, kept as the user wrote it."""

    value: int
    unit: TimeUnit

    def __str__(self) -> str:
        return f"INTERVAL '{self.value}' {self.unit.name}"

    @property
    def seconds(self) -> int:
        """The length in seconds."""
        return self.value * self.unit.value

    @property
    def duration(self) -> timedelta:
        """The length as a timedelta."""
        return timedelta(seconds=self.seconds)


THRESHOLD = Freshness(30, TimeUnit.MINUTE)
DEFAULT_CONTINUOUS = Freshness(3, TimeUnit.MINUTE)
DEFAULT_FULL = Freshness(1, TimeUnit.HOUR)

_WORDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), TimeUnit.SECOND),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), TimeUnit.MINUTE),
    **dict.fromkeys(("h", "hour", "hours"), TimeUnit.HOUR),
    **dict.fromkeys(("d", "day", "days"), TimeUnit.DAY),
}
_DURATION = re.compile(r"(\d{1,9})\s*([a-z]+)")


def parse_duration(text: str) -> Freshness | None:
    """Parse a duration in Flink's format, for example ``30 min``; None if invalid."""
    found = _DURATION.fullmatch(text.strip().lower())
    unit = _WORDS.get(found[2]) if found else None
    if found is None or unit is None or int(found[1]) == 0:
        return None
    return Freshness(int(found[1]), unit)
