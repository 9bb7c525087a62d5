"""Where IN is NULL, an incremental refresh gives the rows that Spark makes of the query."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.engine.conftest import Session
from tests.engine.maintained import Maintained
from tests.support.full_run import FULL
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.request import RefreshPolicy

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

Make = Callable[..., Maintained]
IN = "x IN (SELECT x FROM b)"
NOT_IN = "x NOT IN (SELECT x FROM b)"
PARTS = 4 if FULL else 1
"""Number of tests into which the queries are divided; each takes some seconds."""
EACH = 1 if FULL else 6
"""A quick run tries every sixth query."""
EXPECTED = {"SOURCE_CHANGE_UNKNOWN"}
"""Why refreshes of these queries may be full."""
UNCERTAIN = "SUBQUERY_PREDICATE_NOT_INCREMENTALIZABLE"


@pytest.fixture
def make(session: Session, schema: str) -> Make:
    """Two tables, one with NULL among its keys."""
    session.execute("CREATE TABLE a (x INT, y INT) USING delta")
    session.execute("CREATE TABLE b (x INT, y INT) USING delta")
    session.execute("INSERT INTO a VALUES (1, 1), (2, 2), (NULL, 3), (NULL, 0), (9, 5)")
    session.execute("INSERT INTO b VALUES (1, 1), (2, 0)")
    return lambda query, **fixed: Maintained(session, schema, query, **fixed)


CHANGES = (
    "INSERT INTO a VALUES (NULL, 3), (9, 9), (1, 4), (2, 0)",
    "DELETE FROM b",
    "INSERT INTO b VALUES (9, 5), (1, 4), (NULL, 1)",
)

CONDITIONS = (
    f"NOT ({IN} AND y > 1)",
    f"({IN}) = false",
    f"({IN}) <> true",
    f"false = ({IN})",
    f"NOT (NOT ({IN}))",
    f"NOT (NOT (NOT ({IN} OR y > 3)))",
    f"NOT ({IN} OR y > 4)",
    f"NOT ({NOT_IN} AND y > 1)",
    f"NOT (({IN}) = true AND y > 1)",
    f"({IN}) IS NOT TRUE",
    f"({IN}) IS TRUE OR y = 0",
    f"coalesce({IN}, false)",
    f"NOT coalesce({IN}, false)",
    f"nvl({NOT_IN}, false) OR y = 2",
    f"CASE WHEN {IN} THEN y > 1 WHEN {NOT_IN} THEN y < 9 ELSE y = 3 END",
    f"if({IN}, false, true)",
    "NOT ((x, y) IN (SELECT x, y FROM b) AND y > 0)",
    "((x, y) IN (SELECT x, y FROM b)) = false",
    "NOT (x IN (SELECT x FROM b WHERE b.y = a.y) AND y > 1)",
    "(x IN (SELECT x FROM b WHERE b.y >= a.y)) <> true",
    "NOT (EXISTS (SELECT 1 FROM b WHERE b.x = a.x) AND y > 1)",
    "(EXISTS (SELECT 1 FROM b WHERE b.x = a.x)) = false",
    "NOT ((SELECT max(b.y) FROM b WHERE b.x = a.x) > 0 AND y > 1)",
    "(y > (SELECT count_if(b.y > 0) FROM b WHERE b.x = a.x)) <=> true",
)
"""Conditions in which NULL comes to the same as false, with what Spark makes them of."""

ELSEWHERE = (
    f"SELECT x, y, {IN} AS p FROM a",
    f"SELECT x, y, NOT ({IN} AND y > 1) AS p FROM a",
    f"SELECT x, y, {NOT_IN} OR y > 1 AS p FROM a",
    "SELECT x, y, (x, y) NOT IN (SELECT x, y FROM b) AS p FROM a",
    f"SELECT x, CASE WHEN NOT ({IN} AND y > 1) THEN 'far' ELSE 'near' END AS c FROM a",
    f"SELECT x, if(({IN}) = false, y, -y) AS c FROM a",
    f"SELECT y, count_if(NOT ({IN} AND y > 1)) AS c FROM a GROUP BY y",
    f"SELECT y, count(*) FILTER (WHERE ({IN}) = false) AS c FROM a GROUP BY y",
    f"SELECT y, sum(if(NOT ({IN}), 1, 0)) AS c FROM a GROUP BY y",
    f"SELECT x, max(y) AS y FROM a GROUP BY x HAVING NOT ({IN} AND max(y) > 1)",
    f"SELECT {IN} AS p, count(*) AS c FROM a GROUP BY {IN}",
    f"SELECT x FROM (SELECT x, y, {IN} AS p FROM a) WHERE NOT p",
    "SELECT a.x, c.y FROM a JOIN a c ON a.y = c.y AND NOT (a.x IN (SELECT x FROM b) AND a.y > 1)",
    "SELECT a.x, c.y FROM a JOIN a c ON a.y = c.y AND (c.x IN (SELECT x FROM b)) = false",
    "SELECT a.x, c.y FROM a LEFT JOIN a c ON a.y = c.y AND c.x NOT IN (SELECT x FROM b)",
    "SELECT a.x, c.y FROM a LEFT JOIN a c ON a.y = c.y AND a.x IN (SELECT x FROM b)",
    "SELECT x, y, (SELECT count_if(b.y > 0) FROM b WHERE b.x = a.x) AS c FROM a",
    "SELECT x, y, (SELECT nvl(count(*), 5) + 1 FROM b WHERE b.x = a.x) AS c FROM a",
    "SELECT x, y, c FROM a, LATERAL (SELECT count_if(b.y > 0) AS c FROM b WHERE b.x = a.x)",
)

REFUSED = (
    f"SELECT x, y FROM a WHERE ({IN}) = (y > 1)",
    f"SELECT x, y FROM a WHERE ({IN}) <=> false",
    f"SELECT x, y FROM a WHERE ({IN}) IS NULL",
    f"SELECT x, y FROM a WHERE coalesce({IN}, true)",
    f"SELECT x, y, coalesce({IN}, y > 1) AS p FROM a",
    f"SELECT y, max({IN}) AS p FROM a GROUP BY y",
    f"SELECT x, NOT p AS q FROM (SELECT x, {IN} AS p FROM a)",
    "SELECT a.x, c.y FROM a LEFT JOIN a c ON a.y = c.y AND a.x NOT IN (SELECT x FROM b)",
    f"SELECT y FROM b WHERE (y > 1) IN (SELECT {IN} FROM a)",
)
"""Queries in which NULL and false differ where Spark takes one for the other."""


def failing_refreshes(session: Session, tables: list[Maintained]) -> Iterator[tuple[object, ...]]:
    """Yield what differs, and refreshes that were not incremental, after each change."""
    for change in CHANGES:
        session.execute(change)
        for mt in tables:
            plan = mt.refresh().plan
            if differences := mt.differences():
                yield change, mt.query, differences
            elif plan.strategy is Strategy.FULL and plan.reason_code not in EXPECTED:
                yield change, mt.query, plan.reason_code, plan.reason_text


def test_a_row_with_null_comes_when_the_list_of_a_negated_in_is_emptied(
    make: Make, session: Session
) -> None:
    mt = make(f"SELECT x, y FROM a WHERE NOT ({IN} AND y > 1)")
    assert mt.rows() == [(1, 1), (9, 5), (None, 0)]
    session.execute("DELETE FROM b")
    mt.refresh()
    assert mt.rows() == [(1, 1), (2, 2), (9, 5), (None, 0), (None, 3)]


@pytest.mark.parametrize("condition", [f"({IN}) = false", f"({IN}) <> true"])
def test_an_appended_row_with_null_stays_out(make: Make, session: Session, condition: str) -> None:
    mt = make(f"SELECT x, y FROM a WHERE {condition}", policy=RefreshPolicy.INCREMENTAL_STRICT)
    session.execute("INSERT INTO a VALUES (NULL, 3), (8, 3)")
    assert mt.refresh().plan.reason_code == "ROWS_APPENDED"
    assert mt.rows() == [(8, 3), (9, 5)]


@pytest.mark.parametrize("part", range(PARTS))
def test_conditions_keep_the_rows_that_spark_keeps(make: Make, session: Session, part: int) -> None:
    chosen = CONDITIONS[::EACH][part::PARTS]
    tables = [make(f"SELECT x, y FROM a WHERE {each}") for each in chosen]
    assert list(failing_refreshes(session, tables)) == []


@pytest.mark.parametrize("part", range(PARTS))
def test_predicates_in_other_places_are_what_spark_makes_them(
    make: Make, session: Session, part: int
) -> None:
    tables = [make(query) for query in ELSEWHERE[::EACH][part::PARTS]]
    assert list(failing_refreshes(session, tables)) == []


def test_where_null_and_false_differ_refreshes_are_full(make: Make, session: Session) -> None:
    tables = [make(query) for query in REFUSED[:: 1 if FULL else 2]]
    session.execute("INSERT INTO a VALUES (NULL, 7), (2, 4)")
    assert {mt.query: mt.refresh().plan.reason_code for mt in tables} == dict.fromkeys(
        (mt.query for mt in tables), UNCERTAIN
    )
    assert [mt.differences() for mt in tables] == [[] for _ in tables]
