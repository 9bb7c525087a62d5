"""The condition of an ASSERT as Spark's SQL."""

from __future__ import annotations

import pytest

from tidegate_server.core.sql.assertions import find_misplaced, measures, spark_condition


@pytest.mark.parametrize(
    ("condition", "spark"),
    [
        ("row_count > 0", "count(1) > 0"),
        ("ROW_COUNT>0.5*previous(row_count)", "count(1)>0.5*(SELECT count(1)\n FROM old)"),
        (
            "sum(a) BETWEEN 0 AND Previous (sum(a) + (1))",
            "sum(a) BETWEEN 0 AND  (SELECT sum(a) + (1)\n FROM old)",
        ),
        ("max(`row_count`) > 1", "max(`row_count`) > 1"),
        ("max(s.row_count) + row_count(1) > 1", "max(s.row_count) + row_count(1) > 1"),
        ("max(x) <> 'previous(row_count)'", "max(x) <> 'previous(row_count)'"),
        ("max(previous) > max(s.previous(1))", "max(previous) > max(s.previous(1))"),
        (
            "coalesce(previous(-- all\nrow_count), 1) > 0 -- row_count",
            "coalesce((SELECT -- all\ncount(1)\n FROM old), 1) > 0 -- row_count",
        ),
    ],
)
def test_only_own_words_are_replaced(condition: str, spark: str) -> None:
    assert spark_condition(condition, "old") == spark


def test_what_versions_are_compared_by_is_told_once() -> None:
    condition = "row_count > previous( row_count ) AND previous(row_count) > previous(sum(a))"
    assert measures(condition) == ("row_count", "sum(a)")
    assert measures("max(a) > 0") == ("row_count",)


@pytest.mark.parametrize(
    ("condition", "found", "offset"),
    [
        ("previous() > 0", ")", 9),
        ("previous(1 + previous(a)) > 0", "previous", 13),
        ("previous(a) + previous(b, previous(c))", "previous", 26),
    ],
)
def test_previous_stands_around_an_aggregate(condition: str, found: str, offset: int) -> None:
    wrong = find_misplaced(condition)
    assert wrong is not None
    assert (wrong.found, wrong.offset) == (found, offset)
    assert find_misplaced("previous(a) + previous(b)") is None
