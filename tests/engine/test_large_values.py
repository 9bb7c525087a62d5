"""Functions whose constant arguments ask for values that would not fit the heap."""

from __future__ import annotations

import pytest

from tests.engine.conftest import Client, EngineProcess, Session

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("statement", "function"),
    [
        ("SELECT length(repeat('x', 2000000000))", "repeat"),
        ("SELECT length(repeat(repeat('xy', 100000), 10000 * 10))", "repeat"),
        ("SELECT 1 WHERE 1 IN (SELECT length(repeat(id, 1999999999)) FROM range(1))", "repeat"),
        ("SELECT count(*) FROM (SELECT explode(sequence(1, 1500000000)) AS x)", "sequence"),
        ("SELECT size(sequence(2000000000L, 0L, -1L))", "sequence"),
        ("SELECT size(array_repeat(id, 2000000000)) FROM range(1)", "array_repeat"),
        ("SELECT length(lpad(id, 2000000000, ' ')) FROM range(1)", "lpad"),
        ("SELECT length(rpad('x', 2000000000))", "rpad"),
        ("SELECT length(space(2000000000))", "space"),
        ("CREATE TEMPORARY VIEW large AS SELECT repeat('x', 2000000000) AS x", "repeat"),
        ("CREATE TABLE large AS SELECT repeat('x', 2000000000) AS x", "repeat"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(
    client: Client, engine: EngineProcess, statement: str, function: str
) -> None:
    session = Session(client)
    failure = session.failure(statement)
    assert (failure.code, failure.sqlstate) == ("VALUE_TOO_LARGE", "54000")
    assert failure.message.startswith(f"The function {function} would return a value of ")
    assert "range(first, end)" in failure.hint
    assert session.rows("SELECT 1") == [(1,)]
    assert engine.process.poll() is None


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("length(repeat('x', 10000000))", 10_000_000),
        ("length(repeat('', 2000000000))", 0),
        ("length(repeat('x', -2000000000))", 0),
        ("length(repeat('x', NULL))", None),
        ("size(sequence(1, 1000000))", 1_000_000),
        ("size(sequence(2000000000, 2000000003))", 4),
        ("size(sequence(0, 2000000000, 1000000000))", 3),
        ("size(sequence(DATE '0001-01-01', DATE '0001-01-03'))", 3),
        ("length(rpad('x', 3))", 3),
        ("size(array_repeat(id, 3))", 3),
    ],
)
def test_a_value_that_fits_is_returned(client: Client, expression: str, found: object) -> None:
    assert Session(client).rows(f"SELECT {expression} FROM range(1)") == [(found,)]
