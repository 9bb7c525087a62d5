"""Current time and new ids, which other layers take as arguments."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Source of the current time."""

    def now(self) -> datetime:
        """Return the current moment as an aware datetime in UTC."""
        ...


class SystemClock:
    """The system clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def new_id() -> str:
    """Return a new random identifier (UUID4, 36 characters)."""
    return str(uuid.uuid4())
