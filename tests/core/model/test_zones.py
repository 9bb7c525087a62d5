"""Names of time zones, as Spark takes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tidegate_server.core.model.zones import keep_the_same_time, parse_zone

NOW = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("UTC", 0),
        ("Z", 0),
        ("Etc/UTC", 0),
        (" Asia/Tokyo ", 9),
        ("Asia/Kolkata", 5.5),
        ("GMT+8", 8),
        ("UTC-03:30", -3.5),
        ("+5", 5),
        ("+05:30", 5.5),
        ("-0830", -8.5),
        ("+8:5", 8 + 5 / 60),
        ("PST", -8),
        ("CTT", 8),
        ("+18:00", 18),
    ],
)
def test_a_zone_has_the_offset_that_spark_gives_it(name: str, hours: float) -> None:
    zone = parse_zone(name)
    assert zone is not None
    assert NOW.astimezone(zone).utcoffset() == timedelta(hours=hours)


def test_offsets_may_have_seconds() -> None:
    zone = parse_zone("-08:30:15")
    assert zone is not None
    assert zone.utcoffset(None) == -timedelta(hours=8, minutes=30, seconds=15)


@pytest.mark.parametrize("name", ["", "Mars/Base", "../etc", "America", "+19", "+05:60", "+530"])
def test_what_is_no_zone_is_none(name: str) -> None:
    assert parse_zone(name) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("UTC", "Etc/UTC", True),
        ("Asia/Shanghai", "GMT+8", True),
        ("Europe/Berlin", "Europe/Paris", True),
        ("Europe/Berlin", "+01:00", False),
        ("Asia/Tokyo", "UTC", False),
    ],
)
def test_zones_are_compared_by_their_clocks(one: str, other: str, same: bool) -> None:
    first, second = parse_zone(one), parse_zone(other)
    assert first is not None
    assert second is not None
    assert keep_the_same_time(first, second, NOW) is same
