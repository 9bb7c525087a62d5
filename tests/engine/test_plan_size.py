"""Queries that views and common table expressions multiply beyond what Spark can plan."""

from __future__ import annotations

import pytest

from tests.engine.conftest import Client, Session

pytestmark = pytest.mark.spark

MESSAGE = (
    "The statement is too complex: with its views and common table expressions it has more than "
    "20000 operators."
)


def doubled(times: int) -> str:
    """Return a query whose common table expressions double the plan so many times."""
    tables = ["t0 AS (SELECT 1 AS a)"]
    tables += [
        f"t{n} AS (SELECT x.a FROM t{n - 1} x JOIN t{n - 1} y ON x.a = y.a)"
        for n in range(1, times + 1)
    ]
    return f"WITH {', '.join(tables)} SELECT * FROM t{times}"


@pytest.mark.parametrize(
    "statement",
    [
        doubled(30),
        f"CREATE TABLE large AS {doubled(30)}",
        f"EXPLAIN {doubled(30)}",
        f"SELECT 1 WHERE 1 IN ({doubled(30)})",
    ],
    ids=["query", "create", "explain", "subquery"],
)
def test_common_table_expressions_that_multiply_are_refused(client: Client, statement: str) -> None:
    failure = Session(client).failure(statement)
    assert (failure.code, failure.sqlstate) == ("STATEMENT_TOO_COMPLEX", "54001")
    assert failure.message == MESSAGE


def test_views_that_multiply_are_refused(client: Client) -> None:
    session = Session(client)
    session.execute("CREATE TEMPORARY VIEW v0 AS SELECT id AS a FROM range(3)")
    for n in range(1, 9):
        session.execute(f"CREATE TEMPORARY VIEW v{n} AS {twice(n - 1)}")
    assert session.rows("SELECT count(*) FROM v3") == [(3,)]
    four = f"SELECT * FROM ({twice(8)}) NATURAL JOIN ({twice(8)})"
    session.execute(f"CREATE TEMPORARY VIEW v9 AS {four}")
    failure = session.failure("SELECT * FROM v9 JOIN v9 USING (a) JOIN v9 USING (a)")
    assert (failure.code, failure.message) == ("STATEMENT_TOO_COMPLEX", MESSAGE)


def twice(n: int) -> str:
    """Return a query that uses a view twice."""
    return f"SELECT x.a FROM v{n} x JOIN v{n} y ON x.a = y.a"


COLUMNS = [f"c{n}" for n in range(20)]
TABLE = f"SELECT {', '.join(f'id % {n + 2} AS {c}' for n, c in enumerate(COLUMNS))} FROM range(9)"


def cube(*columns: str) -> str:
    return f"CUBE ({', '.join(columns)})"


@pytest.mark.parametrize(
    "groups",
    [
        f"{', '.join(COLUMNS)} WITH CUBE",
        f"{cube(*COLUMNS[:7])}, {cube(*COLUMNS[7:14])}",
        f"c19, {cube(*COLUMNS[:11])}, ROLLUP ({', '.join(COLUMNS[11:14])})",
        f"{cube(*COLUMNS[:12])}, GROUPING SETS ((c13), ())",
    ],
)
def test_grouping_sets_that_multiply_are_refused(client: Client, groups: str) -> None:
    session = Session(client)
    for text in (
        "SELECT count(*) FROM ({}) GROUP BY {}",
        "SELECT (SELECT 1 FROM ({}) GROUP BY {})",
    ):
        failure = session.failure(text.format(TABLE, groups))
        assert (failure.code, failure.message) == (
            "STATEMENT_TOO_COMPLEX",
            "The statement is too complex: a GROUP BY has more than 4096 grouping sets.",
        )


def test_as_many_grouping_sets_as_the_limit_are_planned(client: Client) -> None:
    groups = f"{cube(*COLUMNS[:10])}, ROLLUP (c10, c11, c12)"
    assert Session(client).rows(f"EXPLAIN SELECT count(*) FROM ({TABLE}) GROUP BY {groups}")


def test_common_table_expressions_that_are_used_often_work(client: Client) -> None:
    session = Session(client)
    assert session.rows(doubled(4)) == [(1,)]
    assert session.rows(
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 30) "
        "SELECT max(n) FROM r"
    ) == [(30,)]
