"""Freshness to cron, cron to points in time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.gateway.scheduler.cron import (
    check_cron,
    fire_after,
    freshness_to_cron,
    interval_schedule,
    last_fire,
    next_fire,
    read_timezone,
)


def fires_between(
    schedule: str, timezone: str, after: datetime, until: datetime
) -> Iterator[datetime]:
    """Yield the fires later than ``after`` and not later than ``until``, earliest first."""
    fire = fire_after(schedule, timezone, after)
    while fire is not None and fire <= until:
        yield fire
        fire = fire_after(schedule, timezone, fire)


DAILY = "0 0 0 * * ? *"
BERLIN = "Europe/Berlin"


def utc(*parts: int) -> datetime:
    year, month, day, *time = parts
    return datetime(year, month, day, *time, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "unit", "cron"),
    [
        (30, TimeUnit.SECOND, "0/30 * * * * ? *"),
        (5, TimeUnit.SECOND, "0/5 * * * * ? *"),
        (1, TimeUnit.MINUTE, "0 0/1 * * * ? *"),
        (3, TimeUnit.MINUTE, "0 0/3 * * * ? *"),
        (30, TimeUnit.MINUTE, "0 0/30 * * * ? *"),
        (1, TimeUnit.HOUR, "0 0 0/1 * * ? *"),
        (4, TimeUnit.HOUR, "0 0 0/4 * * ? *"),
        (12, TimeUnit.HOUR, "0 0 0/12 * * ? *"),
        (1, TimeUnit.DAY, DAILY),
    ],
)
def test_freshness_becomes_the_documented_cron(value: int, unit: TimeUnit, cron: str) -> None:
    assert freshness_to_cron(Freshness(value, unit)) == cron


@pytest.mark.parametrize("unit", [TimeUnit.SECOND, TimeUnit.MINUTE])
@pytest.mark.parametrize("value", [1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30])
def test_every_factor_of_sixty_is_accepted(value: int, unit: TimeUnit) -> None:
    assert f"0/{value} " in freshness_to_cron(Freshness(value, unit))


@pytest.mark.parametrize("value", [1, 2, 3, 4, 6, 8, 12])
def test_every_factor_of_twenty_four_is_accepted(value: int) -> None:
    assert f"0/{value} " in freshness_to_cron(Freshness(value, TimeUnit.HOUR))


@pytest.mark.parametrize(
    ("value", "unit", "code", "words"),
    [
        (
            60,
            TimeUnit.SECOND,
            "MT_FRESHNESS_TOO_LARGE",
            "less than 60 when the time unit is SECOND",
        ),
        (90, TimeUnit.SECOND, "MT_FRESHNESS_TOO_LARGE", "less than 60"),
        (
            60,
            TimeUnit.MINUTE,
            "MT_FRESHNESS_TOO_LARGE",
            "less than 60 when the time unit is MINUTE",
        ),
        (24, TimeUnit.HOUR, "MT_FRESHNESS_TOO_LARGE", "less than 24 when the time unit is HOUR"),
        (40, TimeUnit.MINUTE, "MT_FRESHNESS_NOT_FACTOR", "factors of 60"),
        (5, TimeUnit.HOUR, "MT_FRESHNESS_NOT_FACTOR", "factors of 24"),
        (2, TimeUnit.DAY, "MT_FRESHNESS_DAY", "must be 1 when the time unit is DAY"),
        (1, TimeUnit.WEEK, "MT_FRESHNESS_UNIT", "WEEK"),
    ],
)
def test_what_cron_cannot_express_is_refused(
    value: int, unit: TimeUnit, code: str, words: str
) -> None:
    with pytest.raises(ServerError) as caught:
        freshness_to_cron(Freshness(value, unit))
    assert caught.value.code == code
    assert words in caught.value.message


def test_the_next_fire_is_strictly_later() -> None:
    at = utc(2024, 1, 1, 0, 0, 30)
    assert next_fire("0/30 * * * * ? *", "UTC", at) == utc(2024, 1, 1, 0, 1)
    assert next_fire("0/30 * * * * ? *", "UTC", at - timedelta(milliseconds=1)) == at


def test_three_minutes_count_from_the_full_hour() -> None:
    assert next_fire("0 0/3 * * * ? *", "UTC", utc(2024, 1, 1, 9, 58)) == utc(2024, 1, 1, 10)


def test_the_last_fire_may_be_this_very_moment() -> None:
    cron = "0 0/3 * * * ? *"
    assert last_fire(cron, "UTC", utc(2024, 1, 1, 9, 57)) == utc(2024, 1, 1, 9, 57)
    assert last_fire(cron, "UTC", utc(2024, 1, 1, 9, 59, 59)) == utc(2024, 1, 1, 9, 57)
    just_after = utc(2024, 1, 1, 9, 57) + timedelta(microseconds=1)
    assert last_fire(cron, "UTC", just_after) == utc(2024, 1, 1, 9, 57)


def test_a_daily_fire_comes_at_local_midnight_on_the_short_day() -> None:
    fires = list(fires_between(DAILY, BERLIN, utc(2024, 3, 30), utc(2024, 4, 1, 12)))
    assert fires == [utc(2024, 3, 30, 23), utc(2024, 3, 31, 22)]
    assert fires[1] - fires[0] == timedelta(hours=23)


def test_a_daily_fire_comes_once_on_the_long_day() -> None:
    fires = list(fires_between(DAILY, BERLIN, utc(2024, 10, 26), utc(2024, 10, 28)))
    assert fires == [utc(2024, 10, 26, 22), utc(2024, 10, 27, 23)]
    assert fires[1] - fires[0] == timedelta(hours=25)


def test_hourly_fires_do_not_notice_the_change_of_clocks() -> None:
    for start in (utc(2024, 3, 30, 22), utc(2024, 10, 26, 22)):
        fires = fires_between("0 0 0/1 * * ? *", BERLIN, start, start + timedelta(hours=5))
        assert list(fires) == [start + timedelta(hours=n) for n in range(1, 6)]


def test_a_time_that_comes_twice_fires_once() -> None:
    fires = list(fires_between("0 30 2 * * ? *", BERLIN, utc(2024, 10, 26), utc(2024, 10, 29)))
    assert fires == [utc(2024, 10, 26, 0, 30), utc(2024, 10, 27, 0, 30), utc(2024, 10, 28, 1, 30)]


def test_a_time_that_is_left_out_fires_after_the_gap() -> None:
    fires = list(fires_between("0 30 2 * * ? *", BERLIN, utc(2024, 3, 30), utc(2024, 4, 2)))
    assert fires == [utc(2024, 3, 30, 1, 30), utc(2024, 3, 31, 1, 30), utc(2024, 4, 1, 0, 30)]


def test_two_times_that_fall_together_are_one_fire() -> None:
    cron = "0 0 2,3 * * ? *"
    fires = list(fires_between(cron, BERLIN, utc(2024, 3, 31), utc(2024, 3, 31, 12)))
    assert fires == [utc(2024, 3, 31, 1)]


def test_a_change_of_half_an_hour_moves_hourly_fires_with_the_clock() -> None:
    start = utc(2024, 4, 6, 13)
    fires = fires_between("0 0 0/1 * * ? *", "Australia/Lord_Howe", start, utc(2024, 4, 6, 17))
    assert list(fires) == [
        utc(2024, 4, 6, 14),
        utc(2024, 4, 6, 15, 30),
        utc(2024, 4, 6, 16, 30),
    ]


def test_an_hour_whose_beginning_is_left_out_fires_after_the_gap() -> None:
    start = utc(2024, 10, 5, 13, 30)
    fires = fires_between("0 0 0/1 * * ? *", "Australia/Lord_Howe", start, utc(2024, 10, 5, 17))
    assert list(fires) == [
        utc(2024, 10, 5, 14, 30),
        utc(2024, 10, 5, 15, 30),
        utc(2024, 10, 5, 16),
        utc(2024, 10, 5, 17),
    ]


@pytest.mark.parametrize(
    "schedule", [DAILY, "0 30 2 * * ? *", "0 0 0/4 * * ? *", "0 0/20 * * * ? *", "@every 40 MINUTE"]
)
@pytest.mark.parametrize("day", [utc(2024, 3, 30, 12), utc(2024, 10, 26, 12)])
def test_the_last_fire_is_the_one_before_the_next(schedule: str, day: datetime) -> None:
    fires = list(fires_between(schedule, BERLIN, day, day + timedelta(days=1)))
    for fire, following in zip(fires, fires[1:], strict=False):
        assert last_fire(schedule, BERLIN, fire) == fire
        assert last_fire(schedule, BERLIN, following - timedelta(microseconds=1)) == fire


@pytest.mark.parametrize(
    ("value", "unit", "schedule"),
    [
        (40, TimeUnit.MINUTE, "@every 40 MINUTE"),
        (90, TimeUnit.SECOND, "@every 90 SECOND"),
        (2, TimeUnit.DAY, "@every 2 DAY"),
        (1, TimeUnit.WEEK, "@every 1 WEEK"),
        (30, TimeUnit.MINUTE, "0 0/30 * * * ? *"),
    ],
)
def test_an_interval_that_cron_cannot_express_is_counted(
    value: int, unit: TimeUnit, schedule: str
) -> None:
    assert interval_schedule(Freshness(value, unit)) == schedule


def test_intervals_have_one_length_however_the_hours_are_cut() -> None:
    fires = list(fires_between("@every 40 MINUTE", BERLIN, utc(2024, 3, 30), utc(2024, 4, 1)))
    gaps = {b - a for a, b in zip(fires, fires[1:], strict=False)}
    assert gaps == {timedelta(minutes=40)}


def test_weeks_begin_on_monday_at_local_midnight() -> None:
    fires = list(fires_between("@every 1 WEEK", BERLIN, utc(2024, 3, 20), utc(2024, 4, 10)))
    assert fires == [utc(2024, 3, 24, 23), utc(2024, 3, 31, 22), utc(2024, 4, 7, 22)]


def test_a_schedule_that_never_fired_has_no_last_fire() -> None:
    with pytest.raises(ServerError) as caught:
        last_fire("0 0 0 1 1 ? 2030", "UTC", utc(2024, 1, 1))
    assert caught.value.code == "MT_OPTION_VALUE"


@pytest.mark.parametrize("cron", ["@every 5 MINUTE", "@daily", "", "0 61 * * * ? *"])
def test_an_option_holds_a_cron_expression_of_fields(cron: str) -> None:
    with pytest.raises(ServerError):
        check_cron(cron)


def test_no_fire_lies_in_an_empty_stretch() -> None:
    assert list(fires_between(DAILY, "UTC", utc(2024, 1, 1), utc(2024, 1, 1, 23))) == []


@pytest.mark.parametrize("cron", ["nonsense", "0 61 * * * ? *", "0 0 0 30 2 ? *"])
def test_a_useless_expression_is_refused(cron: str) -> None:
    with pytest.raises(ServerError) as caught:
        next_fire(cron, "UTC", utc(2024, 1, 1))
    assert caught.value.code == "MT_OPTION_VALUE"


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../etc"])
def test_an_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(ServerError) as caught:
        read_timezone(zone)
    assert caught.value.code == "MT_OPTION_VALUE"


def test_numbered_weekdays_are_quartzs() -> None:
    fires = list(fires_between("0 0 12 ? * 2-6 *", "UTC", utc(2024, 3, 3), utc(2024, 3, 10)))
    assert [f"{fire:%a}" for fire in fires] == ["Mon", "Tue", "Wed", "Thu", "Fri"]


@pytest.mark.parametrize("year", [2025, 2026, 2050, 2099])
def test_a_year_to_come_fires(year: int) -> None:
    cron = f"0 0 12 1 1 ? {year}"
    assert next_fire(cron, "UTC", utc(2024, 1, 1)) == utc(year, 1, 1, 12)


def test_a_schedule_whose_years_are_over_fires_no_more() -> None:
    cron = "0 0 12 1 1 ? 2024"
    fires = list(fires_between(cron, "UTC", utc(2023, 1, 1), utc(2030, 1, 1)))
    assert fires == [utc(2024, 1, 1, 12)]
    assert last_fire(cron, "UTC", utc(2027, 1, 1)) == utc(2024, 1, 1, 12)
    with pytest.raises(ServerError, match="never fires again"):
        next_fire(cron, "UTC", utc(2024, 1, 1, 12))


def test_what_other_systems_write_is_refused_with_its_translation() -> None:
    with pytest.raises(ServerError) as caught:
        check_cron("0 12 * * 1-5")
    assert caught.value.code == "MT_OPTION_VALUE"
    assert "in Quartz it is 0 0 12 ? * MON-FRI" in caught.value.message


@pytest.mark.parametrize(
    ("zone", "after", "expected"),
    [
        ("Asia/Tokyo", utc(2024, 12, 31), utc(2024, 12, 31, 15)),
        ("Asia/Kolkata", utc(2024, 12, 31), utc(2024, 12, 31, 18, 30)),
        ("Australia/Lord_Howe", utc(2024, 10, 5, 14), utc(2024, 10, 6, 13)),
        ("Australia/Lord_Howe", utc(2024, 4, 6, 14), utc(2024, 4, 7, 13, 30)),
        ("America/Havana", utc(2024, 3, 9, 12), utc(2024, 3, 10, 5)),
        ("America/Havana", utc(2024, 11, 2, 12), utc(2024, 11, 3, 4)),
        ("+05:30", utc(2024, 12, 31), utc(2024, 12, 31, 18, 30)),
        ("GMT+8", utc(2024, 12, 31), utc(2024, 12, 31, 16)),
        ("PST", utc(2024, 12, 31), utc(2024, 12, 31, 8)),
    ],
)
def test_midnight_is_that_of_the_zone(zone: str, after: datetime, expected: datetime) -> None:
    assert next_fire(DAILY, zone, after) == expected


def test_hourly_fires_of_a_half_hour_zone_are_at_its_full_hours() -> None:
    fires = list(
        fires_between("0 0 0/1 * * ? *", "Asia/Kolkata", utc(2024, 1, 1), utc(2024, 1, 1, 3))
    )
    assert fires == [utc(2024, 1, 1, hour, 30) for hour in range(3)]
