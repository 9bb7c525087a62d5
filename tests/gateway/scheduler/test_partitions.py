"""Which partitions a scheduled refresh covers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.versions import PartitionSpec
from tidegate_server.gateway.scheduler.partitions import (
    Grain,
    Late,
    PartitionPolicy,
    PastRefresh,
    check_formatters,
    pattern_grain,
    read_policy,
    scheduled_partitions,
)

UTC_ZONE = ZoneInfo("UTC")
DAY = {"ds": "yyyy-MM-dd"}
HOUR = {"ds": "yyyy-MM-dd", "hh": "HH"}
MINUTE = {"ds": "yyyy-MM-dd", "hh": "HH", "mm": "mm"}


def utc(*parts: int) -> datetime:
    year, month, day, *time = parts
    return datetime(year, month, day, *time, tzinfo=UTC)


def scheduled_refresh(fire: datetime, *partitions: PartitionSpec) -> PastRefresh:
    return PastRefresh(
        read_at=fire + timedelta(seconds=1), schedule_time=fire, partitions=partitions
    )


def due_partitions(
    formatters: dict[str, str],
    freshness: timedelta,
    fire: datetime,
    *past: PastRefresh,
    policy: PartitionPolicy = PartitionPolicy.SCHEDULE_TIME,
    zone: ZoneInfo = UTC_ZONE,
) -> list[str]:
    specs = scheduled_partitions(formatters, freshness, fire, zone, policy, past)
    return ["/".join(spec.values()) for spec in specs]


@pytest.mark.parametrize(
    ("pattern", "grain"),
    [
        ("yyyy", Grain.YEAR),
        ("yyyyMM", Grain.MONTH),
        ("yyyy-MM-dd", Grain.DAY),
        ("yyyyMMdd", Grain.DAY),
        ("yyyyMMddHH", Grain.HOUR),
        ("yyyy-MM-dd'T'HH:mm", Grain.MINUTE),
        ("HHmmss", Grain.SECOND),
        ("hh a", Grain.HOUR),
        ("yyyy''MM", Grain.MONTH),
    ],
)
def test_the_grain_is_the_smallest_field(pattern: str, grain: Grain) -> None:
    assert pattern_grain(pattern) is grain


@pytest.mark.parametrize("pattern", ["", "'x'", "yyyy-bb", "yyyy'", "YYYY-ww", "[yyyy]", "MMMMMMM"])
def test_a_pattern_that_cannot_name_partitions_is_refused(pattern: str) -> None:
    with pytest.raises(ServerError) as caught:
        check_formatters({"ds": pattern})
    assert caught.value.code == "MT_DATE_FORMATTER_PATTERN"


def test_without_formatters_the_whole_table_is_refreshed() -> None:
    assert scheduled_partitions({}, timedelta(days=1), utc(2024, 1, 2), UTC_ZONE) == ()


def test_the_first_run_refreshes_exactly_the_partition_of_its_schedule_time() -> None:
    assert due_partitions(DAY, timedelta(days=1), utc(2024, 1, 2)) == ["2024-01-02"]
    assert due_partitions(HOUR, timedelta(days=1), utc(2024, 1, 2)) == ["2024-01-02/00"]


def test_the_midnight_run_closes_the_day_before() -> None:
    past = scheduled_refresh(utc(2024, 1, 1), {"ds": "2024-01-01"})
    assert due_partitions(DAY, timedelta(days=1), utc(2024, 1, 2), past) == [
        "2024-01-01",
        "2024-01-02",
    ]


def test_the_midnight_run_of_an_hourly_table_closes_the_day_before() -> None:
    past = scheduled_refresh(utc(2024, 1, 1, 23), {"ds": "2024-01-01"})
    hour = timedelta(hours=1)
    assert due_partitions(DAY, hour, utc(2024, 1, 2), past) == ["2024-01-01", "2024-01-02"]


def test_a_run_within_the_day_refreshes_that_day_alone() -> None:
    past = scheduled_refresh(utc(2024, 1, 1, 22), {"ds": "2024-01-01"})
    assert due_partitions(DAY, timedelta(hours=1), utc(2024, 1, 1, 23), past) == ["2024-01-01"]


def test_a_partition_refreshed_since_its_end_stays_closed() -> None:
    first = scheduled_refresh(utc(2024, 1, 1, 23), {"ds": "2024-01-01"})
    by_hand = PastRefresh(read_at=utc(2024, 1, 2, 0, 0, 1), partitions=({"ds": "2024-01-01"},))
    fire = utc(2024, 1, 2, 0, 30)
    assert due_partitions(DAY, timedelta(hours=1), fire, first, by_hand) == ["2024-01-02"]


def test_a_refresh_of_the_whole_table_closes_every_partition() -> None:
    first = scheduled_refresh(utc(2024, 1, 1, 23), {"ds": "2024-01-01"})
    whole = PastRefresh(read_at=utc(2024, 1, 2, 0, 0, 1))
    assert due_partitions(DAY, timedelta(hours=1), utc(2024, 1, 2, 0, 30), first, whole) == [
        "2024-01-02"
    ]


def test_a_refresh_before_the_end_does_not_close() -> None:
    first = scheduled_refresh(utc(2024, 1, 1, 23), {"ds": "2024-01-01"})
    early = PastRefresh(read_at=utc(2024, 1, 1, 23, 59, 59))
    found = due_partitions(DAY, timedelta(hours=1), utc(2024, 1, 2), first, early)
    assert found == ["2024-01-01", "2024-01-02"]


def test_a_refresh_of_the_day_covers_its_hours() -> None:
    first = scheduled_refresh(utc(2024, 1, 1), {"ds": "2024-01-01", "hh": "00"})
    day = PastRefresh(read_at=utc(2024, 1, 2, 0, 0, 1), partitions=({"ds": "2024-01-01"},))
    found = due_partitions(HOUR, timedelta(days=1), utc(2024, 1, 2, 0, 30), first, day)
    assert found == ["2024-01-02/00"]


def test_a_missed_closing_fire_is_made_up_for() -> None:
    past = scheduled_refresh(utc(2024, 1, 1, 22), {"ds": "2024-01-01"})
    found = due_partitions(DAY, timedelta(hours=1), utc(2024, 1, 3, 5), past)
    assert found == ["2024-01-01", "2024-01-02", "2024-01-03"]


SIX_HOURS = timedelta(hours=6)
FIRST = scheduled_refresh(utc(2024, 1, 1, 23), {"ds": "2024-01-01"})


def refresh_of_days(at: datetime, *days: str, **read: int) -> PastRefresh:
    found = scheduled_refresh(at, *({"ds": day} for day in days))
    return replace(found, vector=read)


def reopened_days(fire: datetime, *past: PastRefresh, **newest: int) -> list[str]:
    late = Late(lateness=SIX_HOURS, newest=newest or None)
    hour = timedelta(hours=1)
    specs = scheduled_partitions(DAY, hour, fire, UTC_ZONE, past=(FIRST, *past), late=late)
    return [spec["ds"] for spec in specs]


def test_late_data_open_a_closed_partition_again() -> None:
    midnight = refresh_of_days(utc(2024, 1, 2), "2024-01-01", "2024-01-02", ev=5)
    assert reopened_days(utc(2024, 1, 2, 3), midnight, ev=5) == ["2024-01-02"]
    assert reopened_days(utc(2024, 1, 2, 3), midnight, ev=6) == ["2024-01-01", "2024-01-02"]
    again = refresh_of_days(utc(2024, 1, 2, 3), "2024-01-01", "2024-01-02", ev=6)
    assert reopened_days(utc(2024, 1, 2, 4), midnight, again, ev=6) == ["2024-01-02"]


def test_what_may_have_come_counts_as_having_come() -> None:
    midnight = refresh_of_days(utc(2024, 1, 2), "2024-01-01", "2024-01-02", ev=5)
    assert reopened_days(utc(2024, 1, 2, 3), midnight) == ["2024-01-01", "2024-01-02"]


def test_the_first_run_after_the_lateness_reads_a_partition_for_the_last_time() -> None:
    midnight = refresh_of_days(utc(2024, 1, 2), "2024-01-01", "2024-01-02", ev=5)
    hour = refresh_of_days(utc(2024, 1, 2, 5), "2024-01-02", ev=5)
    assert reopened_days(utc(2024, 1, 2, 6), midnight, hour, ev=6) == ["2024-01-01", "2024-01-02"]
    last = refresh_of_days(utc(2024, 1, 2, 6), "2024-01-01", "2024-01-02", ev=6)
    assert reopened_days(utc(2024, 1, 2, 7), midnight, hour, last, ev=7) == ["2024-01-02"]


def test_a_partition_is_not_opened_again_after_its_lateness() -> None:
    midnight = refresh_of_days(utc(2024, 1, 2), "2024-01-01", "2024-01-02", ev=5)
    quiet = refresh_of_days(utc(2024, 1, 2, 7), "2024-01-02", ev=5)
    assert reopened_days(utc(2024, 1, 2, 8), midnight, quiet, ev=6) == ["2024-01-02"]


def test_lateness_that_ran_out_while_nothing_was_refreshed_is_made_up_for() -> None:
    midnight = refresh_of_days(utc(2024, 1, 2), "2024-01-01", "2024-01-02", ev=5)
    found = reopened_days(utc(2024, 1, 4), midnight, ev=6)
    assert found == ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"]


def test_nothing_before_the_first_run_is_opened() -> None:
    late = Late(lateness=timedelta(days=9))
    hour = timedelta(hours=1)
    specs = scheduled_partitions(DAY, hour, utc(2024, 1, 2), UTC_ZONE, past=(FIRST,), late=late)
    assert [spec["ds"] for spec in specs] == ["2024-01-01", "2024-01-02"]


def test_hours_under_a_days_freshness_are_all_covered() -> None:
    past = scheduled_refresh(utc(2024, 1, 1), {"ds": "2024-01-01", "hh": "00"})
    found = due_partitions(HOUR, timedelta(days=1), utc(2024, 1, 2), past)
    assert found == [f"2024-01-01/{hour:02}" for hour in range(24)] + ["2024-01-02/00"]


@pytest.mark.parametrize(
    ("formatters", "fire", "freshness", "expected"),
    [
        (HOUR, utc(2024, 1, 2), timedelta(hours=1), "2024-01-01/23"),
        (HOUR, utc(2024, 1, 2, 1), timedelta(hours=1), "2024-01-02/00"),
        (HOUR, utc(2024, 1, 2), timedelta(hours=2), "2024-01-01/22"),
        (HOUR, utc(2024, 1, 2), timedelta(hours=4), "2024-01-01/20"),
        (HOUR, utc(2024, 1, 2), timedelta(hours=8), "2024-01-01/16"),
        (HOUR, utc(2024, 1, 2), timedelta(hours=12), "2024-01-01/12"),
        (MINUTE, utc(2024, 1, 2, 0, 30), timedelta(minutes=30), "2024-01-02/00/00"),
        (DAY, utc(2024, 1, 1), timedelta(days=1), "2023-12-31"),
    ],
)
def test_window_start_refreshes_the_partition_where_the_window_opens(
    formatters: dict[str, str], fire: datetime, freshness: timedelta, expected: str
) -> None:
    found = due_partitions(formatters, freshness, fire, policy=PartitionPolicy.WINDOW_START)
    assert found == [expected]


def test_window_refreshes_all_hours_of_the_day_before() -> None:
    found = due_partitions(HOUR, timedelta(days=1), utc(2024, 1, 2), policy=PartitionPolicy.WINDOW)
    assert found == [f"2024-01-01/{hour:02}" for hour in range(24)]


def test_window_names_a_partition_it_only_touches() -> None:
    found = due_partitions(
        DAY, timedelta(hours=2), utc(2024, 1, 2, 1, 30), policy=PartitionPolicy.WINDOW
    )
    assert found == ["2024-01-01", "2024-01-02"]


def test_months_are_told_apart() -> None:
    found = due_partitions(
        {"m": "yyyyMM"}, timedelta(days=32), utc(2024, 3, 1), policy=PartitionPolicy.WINDOW
    )
    assert found == ["202401", "202402"]


def test_partitions_follow_the_clock_of_the_time_zone() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert due_partitions(DAY, timedelta(days=1), utc(2024, 1, 1, 23), zone=berlin) == [
        "2024-01-02"
    ]


def test_the_day_that_lost_an_hour_has_twenty_three() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    found = due_partitions(
        HOUR,
        timedelta(hours=23),
        utc(2024, 3, 31, 22),
        zone=berlin,
        policy=PartitionPolicy.WINDOW,
    )
    assert found == [f"2024-03-31/{hour:02}" for hour in range(24) if hour != 2]


def test_the_day_that_gained_an_hour_names_it_once() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    found = due_partitions(
        HOUR,
        timedelta(hours=25),
        utc(2024, 10, 27, 23),
        zone=berlin,
        policy=PartitionPolicy.WINDOW,
    )
    assert found == [f"2024-10-27/{hour:02}" for hour in range(24)]


TOKYO = ZoneInfo("Asia/Tokyo")
SHANGHAI = ZoneInfo("Asia/Shanghai")
KOLKATA = ZoneInfo("Asia/Kolkata")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
BERLIN = ZoneInfo("Europe/Berlin")
HAVANA = ZoneInfo("America/Havana")
NEW_YEAR_IN_TOKYO = utc(2024, 12, 31, 15)


@pytest.mark.parametrize("hours", [1, 24])
def test_the_fire_at_tokyos_midnight_closes_tokyos_day(hours: int) -> None:
    freshness = timedelta(hours=hours)
    before = scheduled_refresh(NEW_YEAR_IN_TOKYO - freshness, {"ds": "2024-12-31"})
    found = due_partitions(DAY, freshness, NEW_YEAR_IN_TOKYO, before, zone=TOKYO)
    assert found == ["2024-12-31", "2025-01-01"]
    start = due_partitions(
        DAY, freshness, NEW_YEAR_IN_TOKYO, zone=TOKYO, policy=PartitionPolicy.WINDOW_START
    )
    assert start == ["2024-12-31"]


def test_a_first_fire_at_midnight_refreshes_the_day_that_begins() -> None:
    assert due_partitions(DAY, timedelta(days=1), NEW_YEAR_IN_TOKYO, zone=TOKYO) == ["2025-01-01"]


def test_an_hourly_fire_refreshes_the_day_of_its_zone() -> None:
    at_one = utc(2026, 11, 25, 17)
    before = scheduled_refresh(
        at_one - timedelta(hours=1), {"ds": "2026-11-25"}, {"ds": "2026-11-26"}
    )
    assert due_partitions(DAY, timedelta(hours=1), at_one, before, zone=SHANGHAI) == ["2026-11-26"]


@pytest.mark.parametrize(
    ("zone", "fire", "freshness", "expected"),
    [
        (BERLIN, utc(2024, 3, 31, 22), timedelta(days=1), "2024-03-31/00"),
        (BERLIN, utc(2024, 10, 27, 23), timedelta(days=1), "2024-10-27/00"),
        (BERLIN, utc(2024, 3, 31, 2), timedelta(hours=4), "2024-03-31/00"),
        (BERLIN, utc(2024, 10, 27, 3), timedelta(hours=4), "2024-10-27/00"),
        (BERLIN, utc(2024, 3, 31, 1), timedelta(hours=1), "2024-03-31/01"),
        (BERLIN, utc(2024, 3, 31, 2), timedelta(hours=2), "2024-03-31/03"),
        (BERLIN, utc(2024, 10, 27, 1), timedelta(hours=1), "2024-10-27/02"),
        (BERLIN, utc(2024, 10, 27, 2), timedelta(hours=1), "2024-10-27/02"),
        (KOLKATA, utc(2024, 12, 31, 18, 30), timedelta(hours=1), "2024-12-31/23"),
        (KOLKATA, utc(2024, 12, 31, 18, 30), timedelta(days=1), "2024-12-31/00"),
        (LORD_HOWE, utc(2024, 10, 5, 16), timedelta(hours=1), "2024-10-06/02"),
        (LORD_HOWE, utc(2024, 10, 6, 13), timedelta(days=1), "2024-10-06/00"),
        (LORD_HOWE, utc(2024, 4, 7, 13, 30), timedelta(days=1), "2024-04-07/00"),
        (HAVANA, utc(2024, 3, 11, 4), timedelta(days=1), "2024-03-10/01"),
        (HAVANA, utc(2024, 11, 4, 5), timedelta(days=1), "2024-11-03/00"),
    ],
)
def test_the_window_opens_on_the_clock_of_the_schedule(
    zone: ZoneInfo, fire: datetime, freshness: timedelta, expected: str
) -> None:
    found = due_partitions(HOUR, freshness, fire, zone=zone, policy=PartitionPolicy.WINDOW_START)
    assert found == [expected]


@pytest.mark.parametrize(
    ("zone", "fire", "hours"),
    [
        (BERLIN, utc(2024, 3, 31, 22), [n for n in range(24) if n != 2]),
        (BERLIN, utc(2024, 10, 27, 23), list(range(24))),
        (KOLKATA, utc(2024, 10, 27, 18, 30), list(range(24))),
        (LORD_HOWE, utc(2024, 10, 6, 13), list(range(24))),
        (LORD_HOWE, utc(2024, 4, 7, 13, 30), list(range(24))),
        (HAVANA, utc(2024, 3, 11, 4), list(range(1, 24))),
        (HAVANA, utc(2024, 11, 4, 5), list(range(24))),
    ],
)
def test_a_window_of_a_day_has_all_its_hours_and_no_others(
    zone: ZoneInfo, fire: datetime, hours: list[int]
) -> None:
    day = f"{(fire - timedelta(hours=1)).astimezone(zone):%Y-%m-%d}"
    found = due_partitions(HOUR, timedelta(days=1), fire, zone=zone, policy=PartitionPolicy.WINDOW)
    assert found == [f"{day}/{hour:02}" for hour in hours]


def test_policies_are_read_without_regard_to_case() -> None:
    assert read_policy(None) is PartitionPolicy.SCHEDULE_TIME
    assert read_policy(" window_start ") is PartitionPolicy.WINDOW_START
    with pytest.raises(ServerError) as caught:
        read_policy("LATER")
    assert "SCHEDULE_TIME, WINDOW_START, WINDOW" in caught.value.message


@settings(deadline=None)
@given(
    gaps=st.lists(st.integers(min_value=1, max_value=60), min_size=1, max_size=8),
    zone=st.sampled_from(
        [
            "UTC",
            "Europe/Berlin",
            "Asia/Shanghai",
            "Asia/Kolkata",
            "America/St_Johns",
            "America/Havana",
            "Australia/Lord_Howe",
        ]
    ),
    first=st.sampled_from(
        [utc(2024, 3, 8, 20), utc(2024, 3, 29, 20), utc(2024, 4, 5), utc(2024, 10, 4, 6)]
        + [utc(2024, 10, 25, 20), utc(2024, 11, 1, 20)]
    ),
    formatters=st.sampled_from([DAY, HOUR]),
)
def test_every_partition_is_read_once_more_after_its_end(
    gaps: list[int], zone: str, first: datetime, formatters: dict[str, str]
) -> None:
    clock, hour = ZoneInfo(zone), timedelta(hours=1)
    fire = first
    past: list[PastRefresh] = []
    for gap in [0, *gaps]:
        fire += hour * gap
        specs = scheduled_partitions(formatters, hour, fire, clock, past=past)
        past.append(scheduled_refresh(fire, *specs))
    for spec, last_moment in _moments(formatters, first, fire, clock).items():
        readings = [run.read_at for run in past if dict(spec) in run.partitions]
        still_open = spec == _partition_names(formatters, fire, clock)
        assert still_open or max(readings) > last_moment


def _moments(
    formatters: dict[str, str], first: datetime, last: datetime, clock: ZoneInfo
) -> dict[tuple[tuple[str, str], ...], datetime]:
    """Return each partition between two moments with the last quarter of an hour it has."""
    quarters = int((last - first) / timedelta(minutes=15))
    moments = [first + timedelta(minutes=15) * n for n in range(quarters)]
    return {_partition_names(formatters, moment, clock): moment for moment in moments}


def _partition_names(
    formatters: dict[str, str], moment: datetime, clock: ZoneInfo
) -> tuple[tuple[str, str], ...]:
    forms = {"ds": "%Y-%m-%d", "hh": "%H"}
    return tuple(
        (column, moment.astimezone(clock).strftime(forms[column])) for column in formatters
    )
