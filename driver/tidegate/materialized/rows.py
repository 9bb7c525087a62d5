"""The rows of a statement with times that say their zone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from tidegate.wire.schema import WireColumn


def aware_rows(
    columns: Sequence[WireColumn], rows: Sequence[Sequence[Any]]
) -> list[dict[str, Any]]:
    """Return rows by column name, with timestamps in UTC instead of the zone of the session."""
    names = [column.name for column in columns]
    zones = [column.type.zone if column.type.name == "TIMESTAMP" else None for column in columns]
    return [
        {name: _in_utc(value, zone) for name, value, zone in zip(names, row, zones, strict=True)}
        for row in rows
    ]


def aware_table_rows(table: Any) -> list[dict[str, Any]]:
    """Return the rows of a pyarrow Table by column name, with timestamps in UTC.

    In contrast to naive times they are unambiguous in the hour in which clocks are set back.
    """
    rows: list[dict[str, Any]] = table.to_pylist()
    return [{name: _in_utc(value, None) for name, value in row.items()} for row in rows]


def _in_utc(value: Any, zone: str | None) -> Any:
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC if zone is None else ZoneInfo(zone))
    return value.astimezone(UTC)
