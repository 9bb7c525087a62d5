"""Python values as SQL literals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot.tokens import TokenType

import tidegate
from tidegate.batches import MAX_ROWS, MAX_VALUES, insert_batches, split_insert
from tidegate.literals import is_null, literal
from tidegate.parameters import bind


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
    ("value", "text"),
    [
        (pd.NaT, "NULL"),
        (pd.NA, "NULL"),
        (np.datetime64("NaT"), "NULL"),
        (np.timedelta64("NaT", "ns"), "NULL"),
        (np.bool_(True), "TRUE"),
        (np.int8(-3), " -3"),
        (np.uint64(2**64 - 1), "18446744073709551615"),
        (np.float16(-0.1), " -0.1F"),
        (np.float32(0.1), "0.1F"),
        (np.float32(1e30), "1e+30F"),
        (np.float32("nan"), "CAST('NaN' AS FLOAT)"),
        (np.float32("-inf"), "CAST('-Infinity' AS FLOAT)"),
        (np.float64(0.1), "0.1D"),
        (np.str_("it's"), "'it\\'s'"),
        (np.bytes_(b"x"), "X'78'"),
        (np.datetime64("2024-01-02"), "DATE '2024-01-02'"),
        (np.datetime64("2024-02"), "DATE '2024-02-01'"),
        (np.datetime64("2024-01-02T03"), "TIMESTAMP '2024-01-02 03:00:00'"),
        (
            np.datetime64("1960-01-02T03:04:05.123456789"),
            "TIMESTAMP '1960-01-02 03:04:05.123456'",
        ),
        (np.timedelta64(25, "h"), "INTERVAL '1 01:00:00.000000' DAY TO SECOND"),
        (np.timedelta64(1001, "ns"), "INTERVAL '0 00:00:00.000001' DAY TO SECOND"),
        (
            pd.Timestamp("2024-01-02 03:04:05", tz="Asia/Tokyo"),
            "TIMESTAMP '2024-01-02 03:04:05+09:00'",
        ),
        (pd.Timedelta(days=-1), "INTERVAL '-1 00:00:00.000000' DAY TO SECOND"),
        (np.array([[1, 2], [3, 4]], dtype="int32"), "array(array(1, 2), array(3, 4))"),
        (np.array(["2024-01-01"], dtype="M8[ns]"), "array(TIMESTAMP '2024-01-01 00:00:00')"),
        (np.array(5), "5"),
        ([pd.NA, np.float32(1)], "array(NULL, 1.0F)"),
        (Decimal("1E-38"), "0.00000000000000000000000000000000000001BD"),
    ],
)
def test_a_value_of_numpy_or_pandas_has_its_literal(value: Any, text: str) -> None:
    assert literal(value) == text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "object"),
        (Decimal("NaN"), "DECIMAL has no NaN"),
        (Decimal("-Infinity"), "DECIMAL has no -Infinity"),
        (Decimal(10**39), "38 digits"),
        (Decimal("1E-39"), "38 digits"),
        ("\ud800", "not valid Unicode"),
        ({1, 2}, "set"),
        (1 + 2j, "complex"),
        (np.complex64(1j), "complex"),
        (np.longdouble(1), "longdouble"),
        (np.datetime64("20000-01-01"), "years 1 to 9999"),
        (np.datetime64("20000-01-01T00:00"), "years 1 to 9999"),
        (np.timedelta64(3, "M"), "days and seconds"),
        (np.timedelta64(10**18, "D"), "days and seconds"),
        (pd.Period("2024-01"), "Period"),
        (pd.Series([1]), "Series"),
    ],
)
def test_a_value_without_a_literal_is_a_data_error(value: object, message: str) -> None:
    with pytest.raises(tidegate.DataError, match=message):
        literal(value)


@pytest.mark.parametrize("value", [None, pd.NaT, pd.NA])
def test_every_missing_value_is_null(value: object) -> None:
    assert is_null(value)
    assert not is_null("")


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


@pytest.mark.parametrize(
    "quoted",
    [
        *("'%s'", '"%(a)s"', "`%s`", "-- %s\n", "/* %(b)s */", "'\\'%s'", "'a''%s'", "`a``%s`"),
        *("r'C:\\'", 'R"C:\\"', "r'%s'", "/* a /* b */ %s */", "-- a \\\n %s\n", "-- %s\r"),
    ],
)
def test_markers_in_quotes_and_comments_are_text(quoted: str) -> None:
    assert bind(f"{quoted} %s, 'x'", (1,)) == f"{quoted} 1, 'x'"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT r'C:\\', ?, 'x'", "SELECT r'C:\\', 1, 'x'"),
        ("SELECT /* a /* b */ ? */ ?", "SELECT /* a /* b */ ? */ 1"),
        ("SELECT /*+ REPARTITION(?) */ 2", "SELECT /*+ REPARTITION(1) */ 2"),
        ("SELECT v:a.b, :name, c FROM t WHERE x = ?", "SELECT v:a.b, :name, c FROM t WHERE x = 1"),
        ("SELECT $$a$$, ?", "SELECT $$a$$, 1"),
    ],
)
def test_question_marks_are_found_where_spark_reads_sql(sql: str, expected: str) -> None:
    assert bind(sql, (1,)) == expected


def test_a_quote_that_is_not_closed_is_named() -> None:
    with pytest.raises(tidegate.ProgrammingError, match="quote ' at character 8 is not closed"):
        bind("SELECT 'it, ?", (1,))


def test_unbalanced_quotes_take_linear_time() -> None:
    with pytest.raises(tidegate.ProgrammingError):
        bind("'\\" * 500_000, ())


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


def test_missing_values_do_not_part_rows() -> None:
    rows: Sequence[Any] = [(pd.Timestamp(2024, 1, 1),), (pd.NaT,), (pd.NA,), (None,)]
    assert list(insert_batches("INSERT INTO t VALUES (?)", rows)) == [
        "INSERT INTO t VALUES (TIMESTAMP '2024-01-01 00:00:00'), (NULL), (NULL), (NULL)"
    ]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("INSERT INTO `a%%b` VALUES (%s)", "INSERT INTO `a%b` VALUES (1), (2)"),
        ("INSERT INTO `a%%b` VALUES (?)", "INSERT INTO `a%%b` VALUES (1), (2)"),
        ("INSERT INTO t /* ? */ VALUES (?)", "INSERT INTO t /* ? */ VALUES (1), (2)"),
        ("INSERT INTO t VALUES (?, r'C:\\')", "INSERT INTO t VALUES (1, r'C:\\'), (2, r'C:\\')"),
    ],
)
def test_the_text_before_the_values_is_kept(sql: str, expected: str) -> None:
    assert list(insert_batches(sql, [(1,), (2,)])) == [expected]


def test_a_statement_takes_a_bounded_number_of_rows() -> None:
    batches = list(insert_batches("INSERT INTO t VALUES (%s)", [(1,)] * (MAX_ROWS + 1)))
    assert len(batches) == 2


def test_a_statement_takes_a_bounded_number_of_values() -> None:
    row = (1,) * (MAX_VALUES // 100)
    sql = f"INSERT INTO t VALUES ({', '.join('?' * len(row))})"
    assert len(list(insert_batches(sql, [row] * 100))) == 1
    assert len(list(insert_batches(sql, [row] * 101))) == 2


@pytest.mark.parametrize("value", ["x" * 90, "é" * 45, "\N{GRINNING FACE}" * 20])
def test_a_statement_takes_a_bounded_number_of_bytes(value: str) -> None:
    head, rows = f"INSERT INTO `{'é' * 10}` VALUES ", [(value,)] * 20
    batches = list(insert_batches(f"{head}(?)", rows, 1000))
    sizes = [len(batch.encode()) for batch in batches]
    assert 2 <= len(batches) <= 4
    assert max(sizes) <= 1000
    assert "".join(batches).count(value) == 20


def test_a_row_that_exceeds_the_bytes_goes_out_alone() -> None:
    rows = [("x" * 10,), ("x" * 2000,), ("x" * 10,), ("x" * 10,)]
    batches = list(insert_batches("INSERT INTO t VALUES (?)", rows, 1000))
    assert [batch.count("('") for batch in batches] == [1, 1, 2]


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
