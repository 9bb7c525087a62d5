"""How long partitions take late data, and when one ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.scheduler.lateness import check_lateness, read_lateness
from tidegate_server.gateway.scheduler.ranges import partition_end

DAY = {"partition.fields.ds.date-formatter": "yyyy-MM-dd"}
HOUR = {**DAY, "partition.fields.hh.date-formatter": "HH"}
LATE = "partition.fields.ds.lateness"


@pytest.mark.parametrize(
    ("text", "hours"),
    [("PT6H", 6), ("pt90m", 1.5), ("P1D", 24), ("P1DT12H", 36), ("PT3600S", 1), (" PT1H30M ", 1.5)],
)
def test_durations_are_those_of_iso_8601(text: str, hours: float) -> None:
    assert read_lateness({**DAY, LATE: text}) == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["6 h", "P", "PT", "P1DT", "PT0H", "P1M", "PT-6H", "PT1.5H", "6"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ServerError, match="such as PT6H") as caught:
        check_lateness({**DAY, LATE: text})
    assert caught.value.code == "MT_OPTION_VALUE"


def test_the_longest_of_several_columns_counts() -> None:
    options = {**HOUR, LATE: "PT6H", "partition.fields.hh.lateness": "PT2H"}
    assert read_lateness(options) == timedelta(hours=6)
    assert read_lateness(HOUR) == timedelta()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({LATE: "PT6H"}, "ds has no date-formatter"),
        (
            {**DAY, LATE: "PT6H", "materialized-table.partition-refresh.policy": "WINDOW"},
            "policy is WINDOW",
        ),
        (
            {"partition.fields.ds.date-formatter": "yyyyMMddHHmmss", LATE: "P1D"},
            "more than 10000 partitions",
        ),
    ],
)
def test_a_lateness_without_effect_is_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ServerError, match=reason) as caught:
        check_lateness(options)
    assert caught.value.code == "MT_OPTION_VALUE"


def test_column_names_are_taken_without_regard_to_case() -> None:
    check_lateness({**DAY, "partition.fields.DS.lateness": "PT6H"})


@pytest.mark.parametrize(
    ("formatters", "spec", "end"),
    [
        ({"ds": "yyyy-MM-dd"}, {"ds": "2024-03-31"}, datetime(2024, 3, 31, 22, tzinfo=UTC)),
        ({"ds": "yyyy-MM-dd"}, {"ds": "2024-01-31"}, datetime(2024, 1, 31, 23, tzinfo=UTC)),
        (
            {"ds": "yyyyMMdd", "hh": "HH"},
            {"ds": "20240131", "hh": "22"},
            datetime(2024, 1, 31, 22, tzinfo=UTC),
        ),
        ({"ds": "yyyyMMdd", "hh": "HH"}, {"ds": "20240131"}, datetime(2024, 1, 31, 23, tzinfo=UTC)),
        ({"ds": "yyyyMM"}, {"ds": "202402", "city": "x"}, datetime(2024, 2, 29, 23, tzinfo=UTC)),
        ({"ds": "yyyyMMdd", "hh": "HH"}, {"hh": "22"}, None),
        ({"ds": "yyyy-MM-dd"}, {"ds": "__HIVE_DEFAULT_PARTITION__"}, None),
        ({"ds": "hh a"}, {"ds": "01 AM"}, None),
        ({}, {"city": "x"}, None),
    ],
)
def test_a_partition_ends_on_the_clock_of_its_zone(
    formatters: dict[str, str], spec: dict[str, str], end: datetime | None
) -> None:
    assert partition_end(formatters, spec, ZoneInfo("Europe/Berlin")) == end
