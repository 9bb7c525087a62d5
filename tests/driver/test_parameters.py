"""Python values as SQL literals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot.tokens import TokenType

import tidegate
from tidegate.batches import MAX_ROWS, insert_batches, split_insert
from tidegate.parameters import bind, literal


class Level(IntEnum):
    LOW = -1


class Color(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (False, "FALSE"),
        (0, "0"),
        (-5, " -5"),
        (10**30, "1" + "0" * 30),
        (Level.LOW, " -1"),
        (Color.RED, "'red'"),
        (1.5, "1.5D"),
        (-1e300, " -1e+300D"),
        (float("nan"), "CAST('NaN' AS DOUBLE)"),
        (float("-inf"), "CAST('-Infinity' AS DOUBLE)"),
        (Decimal("1.50"), "1.50BD"),
        (Decimal("1E+3"), "1000BD"),
        ("it's", "'it\\'s'"),
        ("back\\slash", "'back\\\\slash'"),
        ("${spark.app.name}", "'$\\{spark.app.name}'"),
        (b"\x00\xff", "X'00FF'"),
        (date(2020, 1, 2), "DATE '2020-01-02'"),
        (
            datetime.fromisoformat("2020-01-02T03:04:05.000006"),
            "TIMESTAMP '2020-01-02 03:04:05.000006'",
        ),
        (
            datetime(2020, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            "TIMESTAMP '2020-01-02 00:00:00+02:00'",
        ),
        (datetime(2020, 1, 2, tzinfo=UTC), "TIMESTAMP '2020-01-02 00:00:00+00:00'"),
        (time(1, 2, 3), "'01:02:03'"),
        (timedelta(days=1, seconds=3661), "INTERVAL '1 01:01:01.000000' DAY TO SECOND"),
        (timedelta(seconds=-1), "INTERVAL '-0 00:00:01.000000' DAY TO SECOND"),
        ([1, "a"], "array(1, 'a')"),
        ((1, 2), "(1, 2)"),
        ((), "(NULL)"),
        ({"a": 1}, "map('a', 1)"),
        (UUID(int=1), "'00000000-0000-0000-0000-000000000001'"),
    ],
)
def test_a_value_has_its_literal(value: Any, text: str) -> None:
    assert literal(value) == text


@pytest.mark.parametrize(
    "value", [object(), Decimal("NaN"), Decimal(10**39), "\ud800", {1, 2}, 1 + 2j]
)
def test_a_value_without_a_literal_is_a_data_error(value: object) -> None:
    with pytest.raises(tidegate.DataError):
        literal(value)


@given(st.text().filter(lambda text: "${" not in text))
def test_a_string_literal_reads_back_as_the_string(text: str) -> None:
    (token,) = sqlglot.tokenize(literal(text), read="spark")
    assert token.token_type is TokenType.STRING
    assert token.text == text


@given(st.text(), st.integers())
def test_a_string_never_ends_the_literal(text: str, number: int) -> None:
    bound = bind("SELECT %(a)s, %(b)s FROM t", {"a": text, "b": number})
    tokens = [token.token_type for token in sqlglot.tokenize(bound, read="spark")]
    assert tokens.count(TokenType.STRING) == 1
    assert tokens[-2:] == [TokenType.FROM, TokenType.VAR]


def test_named_markers_take_values_by_name() -> None:
    assert bind("%(b)s, %(a)s, %(b)s", {"a": 1, "b": 2}) == "2, 1, 2"


def test_positional_markers_take_values_in_order() -> None:
    assert bind("%s, %s", (1, 2)) == "1, 2"


def test_question_marks_take_values_in_order() -> None:
    assert bind("? % ?, '?'", [1, 2]) == "1 % 2, '?'"


def test_a_negative_number_never_makes_a_comment() -> None:
    assert bind("1-%s", (-2,)) == "1- -2"


def test_doubled_percent_signs_become_one() -> None:
    assert bind("a %% %s AND b LIKE '%%x'", (2,)) == "a % 2 AND b LIKE '%x'"


@pytest.mark.parametrize("quoted", ["'%s'", '"%(a)s"', "`%s`", "-- %s\n", "/* %(b)s */", "'\\'%s'"])
def test_markers_in_quotes_and_comments_are_text(quoted: str) -> None:
    assert bind(f"{quoted} %s", (1,)) == f"{quoted} 1"


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("%s, %s", (1,)),
        ("%s", (1, 2)),
        ("?", (1, 2)),
        ("%(a)s", {"b": 1}),
        ("%(a)s", (1,)),
        ("%s", {"a": 1}),
        ("1 % 2", {}),
        ("%s", "x"),
        ("%s", 5),
    ],
)
def test_parameters_that_do_not_fit_are_a_programming_error(sql: str, parameters: Any) -> None:
    with pytest.raises(tidegate.ProgrammingError):
        bind(sql, parameters)


def test_rows_of_an_insert_go_out_together() -> None:
    rows: Sequence[Any] = [(1, "a"), (2, None)]
    assert list(insert_batches("INSERT INTO t VALUES (%s, %s);", rows)) == [
        "INSERT INTO t VALUES (1, 'a'), (2, NULL)"
    ]


def test_rows_whose_types_differ_go_out_apart() -> None:
    assert len(list(insert_batches("INSERT INTO t VALUES (?)", [(1,), ("a",), ("b",)]))) == 2


def test_a_statement_takes_a_bounded_number_of_rows() -> None:
    batches = list(insert_batches("INSERT INTO t VALUES (%s)", [(1,)] * (MAX_ROWS + 1)))
    assert len(batches) == 2


def test_other_statements_run_once_per_row() -> None:
    assert list(insert_batches("UPDATE t SET a = %s", [(1,), (2,)])) == [
        "UPDATE t SET a = 1",
        "UPDATE t SET a = 2",
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t SELECT %s",
        "INSERT INTO t VALUES (%s), (%s)",
        "INSERT INTO t PARTITION (p = %s) VALUES (%s)",
        "INSERT INTO t VALUES (1)",
        "SELECT * FROM VALUES (%s)",
    ],
)
def test_only_one_group_of_values_is_multiplied(sql: str) -> None:
    assert split_insert(sql) is None


def test_parentheses_in_the_values_are_kept() -> None:
    head, group = split_insert("INSERT INTO `values (` (a) VALUES (f(%s), ')')") or ("", "")
    assert head == "INSERT INTO `values (` (a) VALUES "
    assert group == "(f(%s), ')')"
