"""Conditions with a moment in the place of the clock's."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tidegate_server.core.sql.clock import at_moment

NOW = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
AT = "TIMESTAMP '2026-01-02 03:04:05.000006Z'"


@pytest.mark.parametrize(
    ("condition", "bound"),
    [
        ("ts < current_timestamp() - INTERVAL '1' DAY", f"ts < ({AT}) - INTERVAL '1' DAY"),
        ("ts<CURRENT_TIMESTAMP", f"ts<({AT})"),
        ("ts < Now ( ) OR a = 1", f"ts < ({AT}) OR a = 1"),
        ("d < current_date - 1", f"d < (CAST({AT} AS DATE)) - 1"),
        ("curdate() > d", f"(CAST({AT} AS DATE)) > d"),
        ("ts < localtimestamp", f"ts < (CAST({AT} AS TIMESTAMP_NTZ))"),
    ],
)
def test_the_clock_is_replaced(condition: str, bound: str) -> None:
    assert at_moment(condition, NOW, ["ts", "d"]) == bound


@pytest.mark.parametrize(
    "condition",
    [
        "a > 'current_timestamp()' -- now()",
        "s.current_date < d",
        "current_date.x < d",
        "`current_date` < d AND `now`() > d",
        "now < 3 AND curdate > 1",
        "current_timestamp < d",
        "system.now() > d",
        "current_date(1) > d",
    ],
)
def test_what_is_no_clock_stays(condition: str) -> None:
    assert at_moment(condition, NOW, ["Current_Timestamp"]) == condition


def test_a_column_of_that_name_does_not_hide_the_function() -> None:
    assert at_moment("now() > now", NOW, ["now"]) == f"({AT}) > now"
