"""Tables of the first rows by an order, which follow from those that are stored."""

from __future__ import annotations

import pytest

from tests.engine.conftest import Session
from tests.engine.maintained import Maintained
from tests.support.full_run import FULL
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.request import RefreshPolicy

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

ROWS = "ROWS_CHANGED"
KEYS = "KEYS_AFFECTED"
LEFT = "ROWS_LEFT_LIMIT"


@pytest.fixture
def sources(session: Session, schema: str) -> str:
    session.execute("CREATE TABLE t (id INT, k STRING, n INT, d DOUBLE) USING delta")
    session.execute(
        "INSERT INTO t SELECT id, CASE WHEN id % 5 > 0 THEN substr('abcd', id % 5, 1) END,"
        " id * 10, id / 4 FROM range(10)"
    )
    session.execute("CREATE TABLE u (k STRING, m INT) USING delta")
    session.execute("INSERT INTO u VALUES ('a', 1), ('b', 2), ('c', 3), (NULL, 4)")
    return schema


def refresh_and_compare(mt: Maintained) -> str:
    outcome = mt.refresh()
    assert (mt.query, mt.differences()) == (mt.query, [])
    return outcome.plan.reason_code


def test_a_change_is_merged_with_the_first_rows(session: Session, sources: str) -> None:
    rows = Maintained(session, sources, "SELECT n, k FROM t ORDER BY n DESC, k LIMIT 3")
    groups = Maintained(
        session,
        sources,
        "SELECT s * 2 AS twice, k AS named, s, c FROM (SELECT k, sum(n) AS s, count(*) AS c FROM t"
        " GROUP BY k ORDER BY s DESC NULLS LAST, k NULLS FIRST LIMIT 2)",
    )
    joined = Maintained(
        session,
        sources,
        "SELECT DISTINCT t.k, m, d FROM t JOIN u ON t.k <=> u.k ORDER BY -d DESC, m, t.k LIMIT 4",
    )
    steps = (
        ("INSERT INTO t VALUES (10, 'a', 95, 0.1), (11, 'b', 5, 9)", (ROWS, KEYS, KEYS)),
        ("UPDATE t SET n = n + 1, d = d - 1 WHERE n >= 80", (ROWS, KEYS, KEYS)),
        ("INSERT INTO t SELECT 20, 'x', 99, 99 FROM range(2)", (ROWS, KEYS, KEYS)),
        ("DELETE FROM t WHERE id = 20 OR n < 20", (LEFT, LEFT, LEFT)),
        ("UPDATE t SET n = n + 30 WHERE k = 'd'", (ROWS, KEYS, KEYS)),
    )
    for change, reasons in steps if FULL else steps[1:4]:
        session.execute(change)
        assert (change, *map(refresh_and_compare, (rows, groups, joined))) == (change, *reasons)


def test_an_order_by_what_columns_are_made_of_is_one_by_these_columns(
    session: Session, sources: str
) -> None:
    mt = Maintained(
        session,
        sources,
        "SELECT n AS number, upper(k) AS name, -d AS less FROM t"
        " ORDER BY n DESC, lower(upper(k)), coalesce(-d, 0) LIMIT 3",
    )
    sums = Maintained(
        session,
        sources,
        "SELECT sum(n) AS s, k, grouping(k) AS level FROM t GROUP BY ROLLUP (k)"
        " ORDER BY level DESC, CASE WHEN level = 0 THEN k END LIMIT 3",
    )
    session.execute("INSERT INTO t VALUES (10, 'a', 90, 0.1), (11, 'b', 90, 9), (12, 'b', 90, 8)")
    assert (refresh_and_compare(mt), refresh_and_compare(sums)) == (ROWS, KEYS)
    session.execute("INSERT INTO t VALUES (13, 'f', 91, 7), (14, 'e', 91, 7), (15, 'f', 91, 6)")
    assert refresh_and_compare(mt) == ROWS


def test_what_does_not_reach_the_first_rows_writes_none(session: Session, sources: str) -> None:
    mt = Maintained(session, sources, "SELECT n, k FROM t ORDER BY n DESC, k LIMIT 3")
    session.execute("DELETE FROM t WHERE n < 30")
    outcome = mt.refresh()
    assert (outcome.plan.strategy, outcome.metrics.rows_written) == (Strategy.INCREMENTAL, 0)
    assert mt.actions() == {"commitInfo", "txn"}
    assert mt.differences() == []


def test_fewer_rows_than_the_limit_are_all_there_are(session: Session, sources: str) -> None:
    mt = Maintained(session, sources, "SELECT n, k FROM t ORDER BY n LIMIT 12")
    for change, reason in (
        ("DELETE FROM t WHERE n > 60", ROWS),
        ("INSERT INTO t SELECT 1, 'a', 70, 1 FROM range(3)", ROWS),
        ("INSERT INTO t SELECT 1, 'a', 70 + id, 1 FROM range(1, 5)", ROWS),
        ("DELETE FROM t WHERE k IS NULL", LEFT),
        ("DELETE FROM t", ROWS),
        ("INSERT INTO t VALUES (1, 'a', NULL, NULL)", ROWS),
    ):
        session.execute(change)
        assert (change, refresh_and_compare(mt)) == (change, reason)


def test_rows_that_tie_where_the_limit_cuts_are_computed(session: Session, sources: str) -> None:
    mt = Maintained(session, sources, "SELECT n, k FROM t ORDER BY n DESC LIMIT 2")
    session.execute("INSERT INTO t VALUES (10, 'x', 80, 1)")
    assert mt.refresh().plan.reason_code == "ORDER_NOT_UNIQUE"
    session.execute("INSERT INTO t VALUES (11, 'x', 1, 1)")
    assert mt.refresh().plan.reason_code == "ORDER_NOT_UNIQUE"
    session.execute("DELETE FROM t WHERE id = 10")
    assert refresh_and_compare(mt) == "ORDER_NOT_UNIQUE"
    session.execute("INSERT INTO t VALUES (12, 'y', 85, 1)")
    assert refresh_and_compare(mt) == ROWS


def test_first_rows_follow_only_from_a_record(session: Session, sources: str) -> None:
    query = "SELECT n, k FROM t ORDER BY n DESC, k LIMIT 3"
    mt = Maintained(session, sources, query, policy=RefreshPolicy.FULL)
    session.execute("INSERT INTO t VALUES (10, 'x', 100, 1)")
    plan = mt.explain(policy=RefreshPolicy.INCREMENTAL)
    assert (plan.strategy, plan.reason_code) == (Strategy.FULL, "TOTALS_NOT_RECORDED")
    off = {"materialized-table.incremental.rules": "LINEAR, JOIN, AGGREGATE"}
    plan = mt.explain(policy=RefreshPolicy.INCREMENTAL, options=off)
    assert plan.reason_code == "OPERATOR_NOT_INCREMENTALIZABLE"


OTHER_LIMITS = (
    "SELECT k FROM t ORDER BY n LIMIT 2",
    "SELECT * FROM (SELECT k, n FROM t ORDER BY n LIMIT 2) WHERE k > 'a'",
    "SELECT n % 7 AS n FROM (SELECT k, n FROM t ORDER BY n LIMIT 2)",
    "SELECT k, n FROM t ORDER BY n LIMIT 2 OFFSET 1",
    "SELECT k, n FROM t ORDER BY n LIMIT 20000",
    "SELECT k, count(*) AS c FROM (SELECT k, n FROM t ORDER BY n LIMIT 2) GROUP BY k",
)


def test_other_limits_are_compared_at_both_versions(session: Session, sources: str) -> None:
    unordered = Maintained(session, sources, "SELECT k, n FROM t LIMIT 2")
    tables = [Maintained(session, sources, query) for query in OTHER_LIMITS[:: 1 if FULL else 2]]
    session.execute("INSERT INTO t VALUES (10, 'x', 100, 1)")
    for mt in tables:
        assert (mt.query, mt.explain().reason_code) == (mt.query, "SOURCES_REREAD")
    assert unordered.explain().reason_code == "OPERATOR_NOT_INCREMENTALIZABLE"
