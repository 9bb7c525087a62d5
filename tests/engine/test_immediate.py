"""EXECUTE IMMEDIATE with values and variables, session variables, scripts: as Spark runs them."""

from __future__ import annotations

import pytest

from tests.engine.conftest import Session
from tidegate_server.core.errors import ServerError

pytestmark = pytest.mark.spark


CREATE = "CREATE TABLE t USING delta AS SELECT * FROM VALUES (1, 'x'), (2, 'it''s') AS v(a, b)"


@pytest.fixture(scope="module")
def schema_with_table(module_session: Session, module_schema: str) -> str:
    module_session.execute(CREATE)
    return module_schema


@pytest.fixture
def variables(session: Session, schema_with_table: str) -> Session:
    """A session with the variables ``n``, ``s`` and ``stated``, and a table ``t`` that stays."""
    for statement in (
        f"USE {schema_with_table}",
        "DECLARE OR REPLACE VARIABLE n INT DEFAULT 2",
        "DECLARE OR REPLACE VARIABLE s STRING",
        "DECLARE OR REPLACE VARIABLE stated STRING DEFAULT 'SELECT b FROM t WHERE a = :wanted'",
    ):
        session.execute(statement)
    return session


ROWS = [
    ("EXECUTE IMMEDIATE 'SELECT ? + ?' USING 1, 2", [(3,)]),
    ("EXECUTE IMMEDIATE 'SELECT :a - :b' USING 1 AS b, 5 AS a", [(4,)]),
    ("execute /* now */ immediate 'SELECT b FROM t WHERE a = ?' USING n", [("it's",)]),
    ("EXECUTE IMMEDIATE stated USING (n AS wanted)", [("it's",)]),
    ("EXECUTE IMMEDIATE 'SELECT a FROM t WHERE b = ?' USING 'it\\'s'", [(2,)]),
    (
        "EXECUTE IMMEDIATE 'SELECT a FROM IDENTIFIER(:t) WHERE a = :n' USING 't' AS t, n AS n",
        [(2,)],
    ),
    ("EXECUTE IMMEDIATE 'SELECT ?, ''?'', \":x\"' USING 'a\\\\b'", [("a\\b", "?", ":x")]),
    ("EXECUTE IMMEDIATE 'SELECT ?' USING CAST(NULL AS INT)", [(None,)]),
    ("EXECUTE IMMEDIATE 'SELECT size(?)' USING array(1, 2)", [(2,)]),
    ("EXECUTE IMMEDIATE 'SELECT year(?)' USING DATE '2024-02-29'", [(2024,)]),
    ("EXECUTE IMMEDIATE 'EXECUTE IMMEDIATE \\'SELECT ?\\' USING 4'", [(4,)]),
    ("EXECUTE IMMEDIATE concat('SELECT ', '''🎉'' AS x')", [("🎉",)]),
    ("BEGIN EXECUTE IMMEDIATE 'SELECT b FROM t WHERE a = ?' USING 1; END", [("x",)]),
    (
        "BEGIN DECLARE i INT DEFAULT 0; WHILE i < 3 DO SET i = i + n; END WHILE; SELECT i; END",
        [(4,)],
    ),
    ("BEGIN DECLARE EXIT HANDLER FOR DIVIDE_BY_ZERO SELECT 'held'; SELECT 1 / 0; END", [("held",)]),
]


def test_rows_are_answered(variables: Session) -> None:
    assert {sql: variables.rows(sql) for sql, _ in ROWS} == dict(ROWS)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sql", "variable", "value"),
    [
        ("EXECUTE IMMEDIATE 'SELECT b FROM t WHERE a = ?' INTO s USING 1", "s", "x"),
        ("EXECUTE IMMEDIATE 'SELECT max(a), min(b) FROM t' INTO n, session.s", "s", "it's"),
        ("EXECUTE IMMEDIATE 'SELECT 1 WHERE false' INTO n", "n", None),
        ("EXECUTE IMMEDIATE 'SET VAR n = ? * 10' USING n", "n", 20),
        ("SET VARIABLE (n, s) = (SELECT 7, 'y')", "n", 7),
        (
            "BEGIN DECLARE x INT; EXECUTE IMMEDIATE 'SELECT ?' INTO x USING 3; SET n = x; END",
            "n",
            3,
        ),
    ],
)
def test_variables_take_what_is_read(
    variables: Session, sql: str, variable: str, value: object
) -> None:
    assert not variables.execute(sql).has_result_set
    assert variables.rows(f"SELECT {variable}") == [(value,)]


def test_a_statement_that_writes_takes_values(session: Session, schema: str) -> None:
    session.execute(CREATE)
    session.execute("EXECUTE IMMEDIATE 'INSERT INTO t VALUES (?, ?)' USING 3, 'z'")
    session.execute(
        "BEGIN FOR r AS SELECT a FROM t DO UPDATE t SET b = 'w' WHERE a = r.a; END FOR; END"
    )
    assert session.rows("SELECT DISTINCT b, count(*) FROM t GROUP BY b") == [("w", 3)]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("EXECUTE IMMEDIATE 'SELECT ?'", "UNBOUND_SQL_PARAMETER"),
        ("EXECUTE IMMEDIATE 'SELECT :a' USING 1 AS b", "UNBOUND_SQL_PARAMETER"),
        ("EXECUTE IMMEDIATE 'SELEC ?' USING 1", "PARSE_SYNTAX_ERROR"),
        ("EXECUTE IMMEDIATE nowhere USING 1", "NOT_SUPPORTED"),
        ("EXECUTE IMMEDIATE 'SELECT ?' USING (SELECT max(a) FROM t)", "NOT_SUPPORTED"),
        ("BEGIN DECLARE i INT; EXECUTE IMMEDIATE 'SELECT ?' USING i; END", "NOT_SUPPORTED"),
    ],
)
def test_what_does_not_fit_is_told(variables: Session, sql: str, code: str) -> None:
    with pytest.raises(ServerError) as refused:
        variables.execute(sql)
    assert refused.value.code == code
