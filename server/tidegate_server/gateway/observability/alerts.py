"""Alerts: events that operators should be notified of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

import msgspec


class Event(Enum):
    """What happened to a materialized table; the value is the public name."""

    REFRESH_FAILED = "REFRESH_FAILED"
    TABLE_SUSPENDED = "TABLE_SUSPENDED"
    LAG_EXCEEDED = "LAG_EXCEEDED"
    LAG_RECOVERED = "LAG_RECOVERED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What happened; fields that do not apply to the event are None."""

    event: Event
    text: str
    """A human-readable summary."""
    refresh_id: str | None = None
    trigger: str | None = None
    attempt: int | None = None
    schedule_time: datetime | None = None
    error_class: str | None = None
    sqlstate: str | None = None
    error_message: str | None = None
    reason: str | None = None
    lag_seconds: float | None = None
    target_seconds: float | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert(Facts):
    """What happened, when, to which table, and which server reports it."""

    id: str
    time: datetime
    server: str
    table: str
    table_id: str


def as_json(alert: Alert) -> bytes:
    """Return an alert as a JSON object with a key for every field."""
    return msgspec.json.encode(alert)
