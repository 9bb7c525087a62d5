"""Tables of the first rows by an order, which follow from those that are stored."""

from __future__ import annotations

import json

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
        "INSERT INTO t VALUES (10, 'a', 95, 0.1), (11, 'b', 5, 9)",
        "UPDATE t SET n = n + 1, d = d - 1 WHERE n >= 80",
        "INSERT INTO t SELECT 20, 'x', 99, 99 FROM range(2)",
        "DELETE FROM t WHERE id = 20 OR n < 20",
        "UPDATE t SET n = n + 30 WHERE k = 'd'",
    )
    for change in steps if FULL else steps[1:4]:
        session.execute(change)
        reasons = [*map(refresh_and_compare, (rows, groups, joined))]
        assert (change, *reasons) == (change, ROWS, KEYS, KEYS)


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
    for change in (
        "DELETE FROM t WHERE n > 60",
        "INSERT INTO t SELECT 1, 'a', 70, 1 FROM range(3)",
        "INSERT INTO t SELECT 1, 'a', 70 + id, 1 FROM range(1, 5)",
        "DELETE FROM t WHERE k IS NULL",
        "DELETE FROM t",
        "INSERT INTO t VALUES (1, 'a', NULL, NULL)",
    ):
        session.execute(change)
        assert (change, refresh_and_compare(mt)) == (change, ROWS)


ALL_TYPES = """SELECT id, CAST(id % 100 AS TINYINT) AS b, CAST(-id AS SMALLINT) AS s,
    id % 3 = 0 AS f, CAST(id AS DECIMAL(38, 10)) / 7 AS large, CAST(-id AS DECIMAL(9, 2)) AS small,
    IF(id % 2 = 0, 'NaN', '-0.0')::DOUBLE AS d, CAST(id AS FLOAT) AS r, unhex('00ff') AS bytes,
    timestamp_seconds(id) AS ts, TIMESTAMP_NTZ'1900-01-01 00:00:00.000001' AS ntz,
    date_from_unix_date(-id) AS day, array(id, NULL) AS a, map('ключ', array(id)) AS m,
    IF(id % 5 = 0, NULL, named_struct('x', 'y''"', 'z', id)) AS st, parse_json('{"a": 1}') AS v
    FROM large"""


def test_spare_rows_move_up_until_there_are_none(session: Session, sources: str) -> None:
    session.execute(
        "CREATE TABLE large USING delta AS SELECT CAST(id AS INT) AS id FROM range(300)"
    )
    query = f"{ALL_TYPES} ORDER BY id LIMIT 5"
    columns = "* EXCEPT (m, v), to_json(m) AS m, to_json(v) AS v"  # those cannot be compared
    all_types = Maintained(session, sources, f"SELECT {columns} FROM ({query})")
    narrow = Maintained(session, sources, "SELECT id % 7 AS n, id FROM large ORDER BY id LIMIT 5")
    for change, reason in (
        ("DELETE FROM large WHERE id < 2", ROWS),
        ("DELETE FROM large WHERE id < 60", ROWS),
        ("INSERT INTO large VALUES (1), (150)", ROWS),
        ("DELETE FROM large WHERE id < 98 OR id = 150", ROWS),
        ("DELETE FROM large WHERE id < 120", LEFT),
        ("DELETE FROM large WHERE id < 130", ROWS),
    ):
        session.execute(change)
        assert (change, refresh_and_compare(narrow)) == (change, reason)
        assert (change, refresh_and_compare(all_types)) == (change, reason)


def test_spare_rows_that_take_too_much_are_not_recorded(session: Session, sources: str) -> None:
    session.execute("CREATE TABLE large (id INT, x STRING) USING delta")
    session.execute("INSERT INTO large SELECT id, repeat('x', 1000) FROM range(50)")
    mt = Maintained(session, sources, "SELECT * FROM large ORDER BY id LIMIT 2")
    session.execute("INSERT INTO large VALUES (-1, 'first')")
    assert refresh_and_compare(mt) == ROWS
    session.execute("DELETE FROM large WHERE id < 2")
    assert refresh_and_compare(mt) == LEFT


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


def test_neither_spare_rows_nor_totals_are_in_the_history(session: Session, sources: str) -> None:
    first = Maintained(session, sources, "SELECT n, k FROM t ORDER BY n DESC, k LIMIT 3")
    totals = Maintained(session, sources, "SELECT k, sum(n) AS s FROM t GROUP BY k HAVING s > 80")
    for mt in (first, totals):
        session.execute("INSERT INTO t VALUES (10, 'x', 100, 1)")
        mt.refresh()
        assert r", \"totals\": \"" in mt.log(), "nothing was recorded, so that nothing can be seen"
        history = f"DESCRIBE HISTORY {mt.name.quoted()} LIMIT 1"
        for statement in (history, f"EXECUTE IMMEDIATE '{history}'"):
            [row] = session.rows(statement)
            [metadata] = [str(value) for value in row if str(value).startswith('{"mt"')]
            facts = json.loads(metadata)
            assert {"epoch", "sources", "filled"} <= facts.keys()
            assert "totals" not in facts, statement
