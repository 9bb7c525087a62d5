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


def joins(count: int, of: str = "range(2)") -> str:
    """Return a query that joins a table with itself so many times."""
    joined = [f"JOIN {of} t{n} ON t{n}.id = t0.id" for n in range(1, count + 1)]
    return f"SELECT count(*) FROM {of} t0 {' '.join(joined)}"


@pytest.mark.parametrize(
    ("statement", "row"),
    [
        (joins(300), 2),
        (f"SELECT sum({' + '.join(f'id * {n}' for n in range(800))}) FROM range(2)", 319_600),
        (f"SELECT sum({'abs(' * 480}id{')' * 480}) FROM range(2)", 1),
        (f"SELECT count(*) FROM (SELECT 1 {'EXCEPT SELECT 2 ' * 500})", 1),
    ],
    ids=["joins", "terms", "brackets", "queries"],
)
def test_spark_has_room_in_its_stack(client: Client, statement: str, row: int) -> None:
    assert Session(client).rows(statement) == [(row,)]


def test_too_many_nested_joins_are_refused(client: Client) -> None:
    session = Session(client)
    message = (
        "The statement is too complex: with its views, its joins are nested more than 400 deep."
    )
    session.execute(f"CREATE TEMPORARY VIEW joined AS {joins(250).replace('count(*)', 't0.id')}")
    within = "SELECT count(*) FROM joined a"
    more = " ".join(f"JOIN range(2) t{n} ON t{n}.id = a.id" for n in range(151))
    for statement in (joins(401), joins(2_000), f"{within} {more}", f"SELECT ({joins(401)})"):
        failure = session.failure(statement)
        assert (failure.code, failure.message) == ("STATEMENT_TOO_COMPLEX", message)
    assert session.rows(joins(2, "joined")) == [(2,)]


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
