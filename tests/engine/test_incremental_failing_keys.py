"""Keys that cannot be computed of some rows, which the query itself filters out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine.conftest import Session
from tests.engine.maintained import Maintained
from tests.support.full_run import FULL
from tidegate_server.core.model.runs import Strategy

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

Make = Callable[..., Maintained]

AT_ONCE = 1 if FULL else 2
"""After so many changes tables are refreshed and compared."""

GUARDED = (
    (
        "SELECT a.id, a.v, b.w FROM a LEFT JOIN b ON CAST(a.v AS INT) = b.n WHERE a.kind = 'num'",
        "SELECT CAST(v AS INT) AS n, count(*) AS c FROM a WHERE kind = 'num' GROUP BY 1",
        (
            "SELECT id, w FROM (SELECT id, kind, CAST(v AS INT) AS n FROM a) p"
            " LEFT JOIN b ON p.n = b.n WHERE kind = 'num'"
        ),
        (
            "SELECT a.id, b.w FROM a JOIN (SELECT DISTINCT kind FROM a WHERE id < 4) k"
            " ON a.kind = k.kind LEFT JOIN b ON CAST(a.v AS INT) = b.n"
        ),
    ),
    (
        "SELECT id FROM a WHERE kind = 'num' AND CAST(v AS INT) IN (SELECT n FROM b)",
        "SELECT id FROM a WHERE id <> 9 AND NOT EXISTS (SELECT 1 FROM b WHERE b.n = 12 DIV a.z)",
        (
            "SELECT kind, n, c FROM (SELECT kind, CAST(v AS INT) AS n, count(*) AS c FROM a"
            " GROUP BY kind, CAST(v AS INT)) WHERE kind = 'num'"
        ),
        (
            "SELECT kind, n, r FROM (SELECT kind, CAST(v AS INT) AS n, rank() OVER"
            " (PARTITION BY kind, CAST(v AS INT) ORDER BY id) AS r FROM a) WHERE kind = 'num'"
        ),
    ),
    (
        "SELECT a.id, b.w FROM a LEFT JOIN b ON 12 DIV a.z = b.n WHERE a.id <> 9",
        "SELECT a.id, b.w FROM a LEFT JOIN b ON a.l[1] = b.n WHERE a.id <> 9",
        "SELECT a.id, b.w FROM a LEFT JOIN b ON TO_DATE(a.d, 'yyyy-MM-dd') = b.t WHERE a.id <> 9",
        "SELECT b.n, a.id FROM b RIGHT JOIN a ON b.n = element_at(a.l, 2) WHERE a.id <> 9",
    ),
)
"""Queries that Spark runs since it filters first: casts, divisions, elements of arrays, dates."""


@pytest.fixture
def make(session: Session, schema: str) -> Make:
    """Rows where one has a text and the others a number, or a zero, and so on."""
    session.execute(
        "CREATE TABLE a (id INT, kind STRING, v STRING, z INT, l ARRAY<INT>, d STRING) USING delta"
    )
    session.execute("CREATE TABLE b (n INT, w STRING, t DATE) USING delta")
    session.execute(
        "INSERT INTO a VALUES (1, 'num', '1', 12, array(0, 1), '2026-01-01'),"
        " (2, 'num', '2', 6, array(0, 2), '2026-01-02'), (3, 'num', NULL, NULL, NULL, NULL),"
        " (9, 'txt', 'abc', 0, array(), 'never')"
    )
    session.execute("INSERT INTO b VALUES (1, 'one', DATE'2026-01-01')")
    return lambda query, **fixed: Maintained(session, schema, query, **fixed)


@pytest.mark.parametrize("part", range(len(GUARDED)) if FULL else range(1))
def test_keys_are_found_where_the_query_leaves_out_rows_that_have_none(
    make: Make, session: Session, part: int
) -> None:
    tables = [make(query) for query in GUARDED[part]]
    changes = (
        "INSERT INTO b VALUES (2, 'two', DATE'2026-01-02')",
        (
            "INSERT INTO a VALUES (4, 'num', '4', 3, array(0, 4), '2026-01-04'),"
            " (9, 'txt', 'x', 0, array(), '')"
        ),
        "DELETE FROM b WHERE n = 1",
        "DELETE FROM a WHERE id = 1 OR v = 'abc'",
    )
    for number, change in enumerate(changes, 1):
        session.execute(change)
        for mt in tables if number % AT_ONCE == 0 else ():
            plan = mt.refresh().plan
            assert (change, mt.query, mt.differences()) == (change, mt.query, [])
            if plan.strategy is not Strategy.NO_DATA:
                told = (mt.query, plan.strategy, plan.reason_text)
                assert told == (mt.query, Strategy.INCREMENTAL, plan.reason_text)
