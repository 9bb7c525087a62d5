"""The exceptions of PEP 249."""

from __future__ import annotations

import pickle

import pytest

import tidegate
from tidegate.errors import error_class, server_error


@pytest.mark.parametrize(
    ("sqlstate", "expected"),
    [
        ("08006", tidegate.OperationalError),
        ("0A000", tidegate.NotSupportedError),
        ("22012", tidegate.DataError),
        ("23505", tidegate.IntegrityError),
        ("28000", tidegate.OperationalError),
        ("40001", tidegate.OperationalError),
        ("42P01", tidegate.ProgrammingError),
        ("42K0F", tidegate.ProgrammingError),
        ("54000", tidegate.OperationalError),
        ("55000", tidegate.OperationalError),
        ("57014", tidegate.OperationalError),
        ("HY000", tidegate.OperationalError),
        ("XX000", tidegate.InternalError),
        ("99999", tidegate.DatabaseError),
        (None, tidegate.DatabaseError),
    ],
)
def test_the_sqlstate_chooses_the_class(sqlstate: str | None, expected: type) -> None:
    assert error_class(sqlstate) is expected


def test_an_error_survives_pickling_with_all_its_attributes() -> None:
    error = tidegate.ProgrammingError(
        "no such table",
        sqlstate="42P01",
        code="MT_NOT_FOUND",
        error_code=1,
        hint="look",
        query_id="q",
        detail="more",
    )
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is tidegate.ProgrammingError
    assert str(copy) == "no such table"
    assert vars(copy) == vars(error)


def test_tracebacks_show_the_public_name() -> None:
    assert tidegate.OperationalError.__module__ == "tidegate"


def test_the_code_is_taken_out_of_the_message() -> None:
    error = server_error("[MT_NOT_FOUND] There is none.", sqlstate="42P01")
    assert (error.code, error.sqlstate) == ("MT_NOT_FOUND", "42P01")
    assert str(error) == "[MT_NOT_FOUND] There is none."


def test_spark_thrift_servers_text_tells_class_code_and_cause() -> None:
    error = server_error(
        "org.apache.hive.service.cli.HiveSQLException: Error running query: [PARSE_SYNTAX_ERROR] "
        "org.apache.spark.sql.catalyst.parser.ParseException: \n"
        "[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'. SQLSTATE: 42601 (line 1)\n\tat org"
    )
    assert type(error) is tidegate.ProgrammingError
    assert error.code == "PARSE_SYNTAX_ERROR"
    assert str(error).startswith("[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'.")
    assert error.detail is not None
    assert "\tat org" in error.detail


def test_a_message_of_several_lines_is_whole_and_its_hint_apart() -> None:
    lines = "[DELTA_VIOLATE] violated by row with values:\n - x : 1\n - y : 2"
    error = server_error(f"{lines}\nHint: Look at the row.", sqlstate="23001")
    assert (str(error), error.hint) == (lines, "Look at the row.")


def test_the_sqlstate_in_the_text_is_better_than_hives_general_one() -> None:
    assert server_error("[X] y SQLSTATE: 42P01", sqlstate="HY000").sqlstate == "42P01"


def test_the_sqlstate_of_the_server_is_kept_otherwise() -> None:
    assert server_error("[X] y SQLSTATE: 42P01", sqlstate="42809").sqlstate == "42809"


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("[PARSE_SYNTAX] Syntax error at STRING: expected ). (line 3, column 35) A list", (3, 35)),
        ("[UNRESOLVED_COLUMN] There is no x.\n== SQL (line 2, pos 0) ==\nSELECT x", (2, 1)),
        ("[MT_NOT_FOUND] There is none.", (None, None)),
    ],
)
def test_the_place_in_the_statement_counts_from_1(
    message: str, place: tuple[int | None, int | None]
) -> None:
    error = server_error(message)
    assert (error.line, error.column) == place


def test_a_line_that_begins_with_hint_is_the_hint() -> None:
    assert server_error("[X] wrong\nHint: do this").hint == "do this"


def test_a_server_without_a_message_still_gives_a_sentence() -> None:
    assert "without a message" in str(server_error(None))
