"""Partitions between two ends."""

from __future__ import annotations

import pytest

from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.scheduler.ranges import check_range, dated_range

DAY = {"ds": "yyyy-MM-dd"}
HOUR = {"ds": "yyyyMMdd", "hh": "HH"}


def test_both_ends_of_a_range_are_in_it() -> None:
    found = dated_range(DAY, {"ds": "2024-02-28"}, {"ds": "2024-03-01"})
    assert found == ({"ds": "2024-02-28"}, {"ds": "2024-02-29"}, {"ds": "2024-03-01"})


def test_a_range_of_one_is_one() -> None:
    assert dated_range(DAY, {"ds": "2024-01-01"}, {"ds": "2024-01-01"}) == ({"ds": "2024-01-01"},)


def test_two_columns_are_walked_at_the_finer_grain() -> None:
    found = dated_range(HOUR, {"ds": "20240101", "hh": "22"}, {"ds": "20240102", "hh": "01"})
    assert [(s["ds"], s["hh"]) for s in found or ()] == [
        ("20240101", "22"),
        ("20240101", "23"),
        ("20240102", "00"),
        ("20240102", "01"),
    ]


def test_only_the_named_columns_are_walked() -> None:
    assert dated_range(HOUR, {"ds": "20240101"}, {"ds": "20240102"}) == (
        {"ds": "20240101"},
        {"ds": "20240102"},
    )


def test_quoted_text_and_months_are_read_back() -> None:
    found = dated_range({"m": "yyyy'M'MM"}, {"m": "2023M12"}, {"m": "2024M01"})
    assert found == ({"m": "2023M12"}, {"m": "2024M01"})


@pytest.mark.parametrize(
    "formatters", [{}, {"x": "yyyy"}, {"ds": "yyyy-MMM"}, {"ds": "yy-MM"}, {"ds": "HH:mm"}]
)
def test_what_no_pattern_tells_is_left_to_the_data(formatters: dict[str, str]) -> None:
    assert dated_range(formatters, {"ds": "a"}, {"ds": "b"}) is None


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        ("2024-01-02", "2024-01-01", "after"),
        ("20240102", "2024-01-03", "does not match"),
        ("2024-01-32", "2024-02-01", "does not match"),
        ("1900-01-01", "2024-01-01", "more than"),
    ],
)
def test_a_useless_range_is_refused(start: str, end: str, reason: str) -> None:
    with pytest.raises(ServerError, match=reason) as caught:
        dated_range(DAY, {"ds": start}, {"ds": end})
    assert caught.value.code == "MT_PARTITION_RANGE"


def test_both_ends_name_the_same_columns() -> None:
    check_range({"ds": "1", "hh": "1"}, {"hh": "1", "ds": "1"})
    with pytest.raises(ServerError, match="FROM names ds, TO names ds, hh"):
        check_range({"ds": "1"}, {"ds": "1", "hh": "2"})
