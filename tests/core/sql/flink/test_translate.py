"""Flink's SQL becomes Spark's; what cannot is refused where the user wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.cli.split import split
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.sql.flink.translate import translate_statement
from tidegate_server.core.sql.parse import parse

HERE = Path(__file__).parent
FIXTURES = Path(__file__).parents[3] / "sql" / "fixtures"


def _entries(name: str, mark: str) -> list[tuple[str, str]]:
    found = []
    for entry in (HERE / name).read_text("utf-8").split("\n\n"):
        source, _, expected = entry.partition(f"\n{mark}")
        found.append((source, expected.strip()))
    return found


@pytest.mark.parametrize(("source", "expected"), _entries("golden.txt", "=>\n"))
def test_a_statement_is_translated(source: str, expected: str) -> None:
    assert translate_statement(source).text == expected


@pytest.mark.parametrize(("source", "expected"), _entries("refused.txt", "!! "))
def test_what_has_no_equivalent_is_refused_at_its_place(source: str, expected: str) -> None:
    code, place, words = expected.split(" ", 2)
    with pytest.raises(ServerError) as caught:
        translate_statement(source)
    problem = caught.value
    assert problem.code == code
    assert f"{problem.line}:{problem.column}" == place
    assert words in str(problem)
    assert problem.sqlstate == Code[code].value.sqlstate
    assert problem.hint or code == Code.PARSE_SYNTAX.name


def _statements(name: str) -> list[str]:
    script = (FIXTURES / name).read_text("utf-8")
    return [part.sql for part in split(script) if part.sql]


@pytest.mark.parametrize("statement", [*_statements("flink.sql"), *_statements("lakehouse.sql")])
def test_every_statement_of_flinks_scripts_is_translated(statement: str) -> None:
    parse(translate_statement(statement).text)


def test_plain_statements_of_flinks_pages_stay_as_they_are() -> None:
    """Of their constructs, only these do not mean the same to Spark."""
    other = ("TIMESTAMP", "DATE_FORMAT(", "AVG(", "BYTES")
    for statement in _statements("flink.sql"):
        if not any(word in statement.upper() for word in other):
            assert translate_statement(statement).text == statement


@pytest.mark.parametrize("depth", [50, 5000])
def test_brackets_in_brackets_end_somewhere(depth: int) -> None:
    text = f"SELECT {'(' * depth}a / b{')' * depth}"
    if depth == 50:
        assert "flink_divide(a, b)" in translate_statement(text).text
        return
    with pytest.raises(ServerError, match="levels of brackets"):
        translate_statement(text)


def test_cases_in_cases_end_somewhere() -> None:
    deep = "CASE WHEN a THEN 1 ELSE " * 1000 + "2" + " END" * 1000
    with pytest.raises(ServerError, match="levels of CASE"):
        translate_statement(f"SELECT {deep}")


def test_arguments_in_arguments_do_not_grow_without_bounds() -> None:
    deep = "GREATEST(1, " * 40 + "a" + ")" * 40
    with pytest.raises(ServerError, match="So many GREATEST calls"):
        translate_statement(f"SELECT {deep} FROM t")
