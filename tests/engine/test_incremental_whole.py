"""Operators without keys are computed at both versions, and what leaves equals the query."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine.conftest import Session
from tests.engine.maintained import Maintained
from tests.support.full_run import FULL
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.request import RefreshPolicy

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

Make = Callable[..., Maintained]

REREAD = "SOURCES_REREAD"
TIED = "ORDER_NOT_UNIQUE"
ROUNDED = "AGGREGATE_NOT_TOP_NODE"
EACH, OFTEN = (1, 5) if FULL else (7, 2)
"""A quick run tries every seventh query, and two changes."""


@pytest.fixture
def make(session: Session, schema: str) -> Make:
    """Sources with NULL, NaN, zeros of both signs and duplicates; ``x`` has no change feed."""
    session.execute(
        "CREATE TABLE f (id INT, k STRING, n INT, d DOUBLE) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    session.execute("CREATE TABLE x (k STRING, m INT) USING delta")
    session.execute(
        "INSERT INTO f VALUES (1, 'a', 1, 0.5), (2, 'a', 1, double('NaN')), (3, 'b', 2, -0.0), "
        "(4, 'b', 3, 0.0), (5, 'c', NULL, NULL), (6, NULL, 5, 1), (7, 'd', 8, 2), (7, 'd', 8, 2)"
    )
    session.execute("INSERT INTO x VALUES ('a', 2), ('a', 2), ('b', 5), (NULL, NULL), ('z', 0)")
    return lambda query, **fixed: Maintained(session, schema, query, **fixed)


ROUNDS = (
    ("INSERT INTO x VALUES ('q', NULL)", "UPDATE x SET m = 3 WHERE k = 'b'"),
    ("DELETE FROM f WHERE id IN (1, 7)", "INSERT INTO f VALUES (8, 'z', 4, double('NaN'))"),
    ("INSERT OVERWRITE x VALUES ('b', 1), ('b', 8)", "UPDATE f SET n = NULL WHERE id = 6"),
    ("DELETE FROM f", "DELETE FROM x"),
    ("INSERT INTO f VALUES (1, 'a', 2, 0.0)", "INSERT INTO x VALUES ('a', 1)"),
)
"""What is done to the sources before each refresh."""

QUERIES = (
    # Aggregates of everything.
    "SELECT count(DISTINCT n) AS c, count(DISTINCT k, d) AS kd FROM f",
    (
        "SELECT f.id, f.n / t.s AS share, t.low FROM f CROSS JOIN "
        "(SELECT sum(n) AS s, min(k) AS low FROM f) t"
    ),
    (
        "SELECT a.c, b.s, b.v FROM (SELECT count(*) AS c FROM f WHERE n < 3) a CROSS JOIN "
        "(SELECT sum(m) AS s, avg(m) AS v FROM x WHERE m >= 2) b"
    ),
    "SELECT k, count(*) AS c FROM f WHERE n <= (SELECT max(m) FROM x) GROUP BY k",
    (
        "SELECT f.k, sum(t.c) AS c FROM f LEFT JOIN (SELECT count(DISTINCT m) AS c FROM x) t "
        "ON f.n > t.c GROUP BY f.k"
    ),
    # Scalar subqueries.
    "SELECT id FROM f WHERE n > (SELECT avg(m) FROM x)",
    "SELECT id, (SELECT max(m) FROM x) AS most, (SELECT count(*) FROM f) AS c FROM f",
    "SELECT id, (SELECT m FROM x WHERE k = 'b' ORDER BY m DESC LIMIT 1) AS m FROM f",
    "SELECT k, sum(n) AS s FROM f GROUP BY k HAVING sum(n) > (SELECT min(m) FROM x)",
    "SELECT f.id, x.m FROM f JOIN x ON f.k = x.k AND f.n > (SELECT count(*) FROM x)",
    "SELECT id FROM f WHERE n = (SELECT max(n) FROM f WHERE n < (SELECT max(m) FROM x))",
    "SELECT k, count(*) + (SELECT count(*) FROM x) AS c FROM f GROUP BY k",
    # Windows.
    "SELECT id, n, rank() OVER (ORDER BY n) AS r, count(*) OVER () AS c, sum(n) OVER () s FROM f",
    "SELECT id, k, row_number() OVER (ORDER BY id, k, n, d) AS r FROM f",
    (
        "SELECT k, max(r) AS r FROM (SELECT k, dense_rank() OVER (ORDER BY n DESC) AS r FROM f) "
        "GROUP BY k"
    ),
    "SELECT * FROM (SELECT id, n, lag(n) OVER (ORDER BY id, k, n, d) AS b FROM f) WHERE b < n",
    # First rows.
    "SELECT id, k, n, d FROM f ORDER BY id DESC, k, n, d LIMIT 3 OFFSET 1",
    "SELECT id, k, n, d FROM f ORDER BY d, id, k, n OFFSET 2",
    (
        "SELECT x.k, x.m, t.id FROM x JOIN (SELECT id, n FROM f ORDER BY n DESC NULLS LAST, id "
        "LIMIT 3) t ON x.m < t.n"
    ),
    "SELECT count(*) AS c FROM (SELECT DISTINCT id FROM f ORDER BY id LIMIT 2)",
    # Joins without an equality.
    "SELECT f.id, x.m FROM f LEFT JOIN x ON f.n > x.m",
    "SELECT f.id, x.k, x.m FROM f RIGHT JOIN x ON f.n + 1 < x.m",
    "SELECT f.id, x.m FROM f FULL JOIN x ON f.n > x.m",
    "SELECT id FROM f WHERE EXISTS (SELECT 1 FROM x WHERE m > n)",
    "SELECT id FROM f WHERE NOT EXISTS (SELECT 1 FROM x WHERE m < n)",
    "SELECT id FROM f WHERE (k, n) NOT IN (SELECT k, m FROM x)",
    "SELECT id, EXISTS (SELECT 1 FROM x WHERE m <> n) AS e FROM f",
)


def test_what_is_compared_at_both_versions_equals_its_query(make: Make, session: Session) -> None:
    tables = [make(query) for query in QUERIES[::EACH]]
    reasons: dict[str, set[str]] = {mt.query: set() for mt in tables}
    for number, statements in enumerate(ROUNDS[:OFTEN]):
        for statement in statements:
            session.execute(statement)
        for mt in tables:
            plan = mt.refresh().plan
            assert (number, mt.query, mt.differences()) == (number, mt.query, [])
            assert plan.strategy in (Strategy.INCREMENTAL, Strategy.NO_DATA), (number, plan)
            reasons[mt.query].add(plan.reason_code)
    assert [query for query, found in reasons.items() if REREAD not in found] == []


CHANCE = {
    "SELECT id FROM f ORDER BY n LIMIT 2 OFFSET 1": TIED,
    "SELECT f.id, t.k FROM f JOIN (SELECT k FROM f ORDER BY n DESC LIMIT 2) t ON f.k > t.k": TIED,
    "SELECT id FROM f WHERE k = (SELECT k FROM f ORDER BY n DESC LIMIT 1)": TIED,
    "SELECT id, k, row_number() OVER (ORDER BY n) AS r FROM f": TIED,
    "SELECT id, (SELECT first(k) FROM f) AS k FROM f": TIED,
    "SELECT f.id, f.d / t.s AS d FROM f CROSS JOIN (SELECT sum(d) AS s FROM f) t": ROUNDED,
    "SELECT id FROM f WHERE d > (SELECT avg(d) FROM f)": ROUNDED,
    "SELECT id, sum(d) OVER () AS s FROM f": ROUNDED,
    "SELECT k, sum(d) AS s FROM f GROUP BY k HAVING sum(d) > (SELECT max(n) FROM f)": ROUNDED,
    "SELECT x.m FROM x JOIN (SELECT n FROM f LIMIT 2) t ON x.m = t.n": (
        "OPERATOR_NOT_INCREMENTALIZABLE"
    ),
}
"""Queries with several results; rows with ``n = 8`` tie."""


def test_what_depends_on_chance_is_refreshed_fully(make: Make, session: Session) -> None:
    tables = [make(query) for query in [*CHANCE][:: 1 if FULL else 4]]
    session.execute("INSERT INTO f VALUES (0, 'e', 8, 3), (0, 'a', NULL, 3), (0, 'b', NULL, 3)")
    found = {mt.query: mt.refresh().plan.reason_code for mt in tables}
    assert found == {mt.query: CHANCE[mt.query] for mt in tables}


def test_rows_that_tie_off_the_cut_make_no_difference(make: Make, session: Session) -> None:
    mt = make("SELECT id, k FROM f WHERE n > 0 ORDER BY n DESC LIMIT 3 OFFSET 1")
    values = "(20, 'p', 7, 3), (21, 'q', 6, 3), (22, 'r', 7, 3)"
    session.execute(f"INSERT INTO f VALUES {values}")  # 8 8 7 7 6 5
    assert (mt.refresh().plan.reason_code, mt.differences()) == (REREAD, [])
    session.execute("INSERT INTO f VALUES (23, 's', 7, 3)")  # 8 8 7 7 7 6 5
    assert (mt.refresh().plan.reason_code, mt.differences()) == (TIED, [])


def test_where_nothing_differs_nothing_is_written(make: Make, session: Session) -> None:
    tables = [
        make("SELECT id FROM f WHERE n >= (SELECT max(m) FROM x)"),
        make("SELECT count(DISTINCT m) AS c FROM x"),
        make("SELECT f.id, f.n * t.s AS n FROM f CROSS JOIN (SELECT sum(m) AS s FROM x) t"),
    ]
    session.execute("INSERT INTO x VALUES ('new', NULL), ('zero', 0)")
    for mt in tables:
        before = mt.rows()
        outcome = mt.refresh()
        assert (mt.query, outcome.plan.reason_code) == (mt.query, REREAD)
        assert (mt.query, outcome.metrics.rows_written) == (mt.query, 0)
        assert (mt.query, mt.rows()) == (mt.query, before)
    session.execute("INSERT INTO x VALUES ('same', 5)")
    session.execute("INSERT INTO f VALUES (30, 'a', 6, 1)")
    (mt, *_) = tables
    outcome = mt.refresh()
    assert (outcome.plan.reason_code, outcome.metrics.rows_written) == (REREAD, 1)
    assert mt.differences() == []


def test_a_subquery_with_two_rows_fails_as_in_spark(make: Make, session: Session) -> None:
    mt = make("SELECT id, (SELECT m FROM x WHERE k = 'b') AS m FROM f")
    session.execute("INSERT INTO x VALUES ('b', 1)")
    with pytest.raises(ServerError, match="SCALAR_SUBQUERY_TOO_MANY_ROWS"):
        mt.refresh()
    session.execute("DELETE FROM x WHERE m = 5")
    assert (mt.refresh().plan.reason_code, mt.differences()) == (REREAD, [])


def test_what_costs_more_than_everything_is_not_preferred(make: Make, session: Session) -> None:
    mt = make("SELECT id, rank() OVER (ORDER BY n) AS r FROM f", policy=RefreshPolicy.AUTO)
    off = make(
        "SELECT id FROM f WHERE n > (SELECT avg(m) FROM x)",
        options={"materialized-table.incremental.rules": "LINEAR, JOIN, AGGREGATE"},
    )
    session.execute("INSERT INTO x VALUES ('r', 9)")
    session.execute("INSERT INTO f VALUES (40, 'a', 6, 1)")
    assert mt.refresh().plan.strategy is Strategy.FULL
    assert off.refresh().plan.reason_code == "SUBQUERY_EXPRESSION_NOT_INCREMENTALIZABLE"
