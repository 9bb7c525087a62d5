"""What an incremental refresh leaves equals its query, operator by operator, trap by trap."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.conftest import Session
from tests.engine.maintained import Maintained
from tests.support.full_run import FULL
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.clauses import Expectation, Violation
from tidegate_server.core.model.runs import RunMetrics, Strategy, Work
from tidegate_server.core.refresh.request import PastRun, RefreshPolicy

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

Make = Callable[..., Maintained]

EACH = 1 if FULL else 5
"""A quick run tries every fifth query, which takes about ten seconds each; the first of each
family is among them."""


@pytest.fixture
def make(session: Session, schema: str) -> Make:
    """Two sources with NULL keys, duplicates, and keys that only one of them has."""
    session.execute(
        "CREATE TABLE t (k STRING, n INT, p DECIMAL(10,2), d DOUBLE) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    session.execute("CREATE TABLE u (k STRING, m BIGINT) USING delta")
    session.execute(
        "INSERT INTO t VALUES ('a', 1, 1.10, 0.5), ('a', 1, 1.10, 0.5), ('a', 2, NULL, -0.0), "
        "('b', 3, 99999999.99, double('NaN')), (NULL, 4, 1, 1), (NULL, NULL, NULL, NULL), "
        "('c', 5, 2, 2), ('gone', 6, 3, 3), ('d', NULL, 4, 4)"
    )
    session.execute("INSERT INTO u VALUES ('a', 10), ('a', 11), ('b', 20), (NULL, 30), ('z', 40)")
    return lambda query, **fixed: Maintained(session, schema, query, **fixed)


def change_both(session: Session) -> None:
    """Move keys, empty a group, make and unmake NULLs, delete one of two equal rows' partners."""
    session.execute("DELETE FROM t WHERE k = 'gone'")
    session.execute("UPDATE t SET k = 'b', n = 7 WHERE k = 'c'")
    session.execute("UPDATE t SET k = NULL WHERE k = 'd'")
    session.execute(
        "INSERT INTO t VALUES ('a', 1, 1.10, 0.5), ('z', 8, 0.01, 0.0), (NULL, 4, 1, 1)"
    )
    session.execute("UPDATE u SET k = 'c' WHERE k IS NULL")
    session.execute("DELETE FROM u WHERE m = 11")
    session.execute("INSERT INTO u VALUES (NULL, 31), ('b', 20)")


def refresh_incrementally(mt: Maintained) -> str:
    """Refresh and return the reason; the table must equal its query and be incremental."""
    outcome = mt.refresh()
    assert mt.differences() == []
    assert outcome.plan.strategy is Strategy.INCREMENTAL, outcome.plan
    return outcome.plan.reason_code


EQUAL = {
    "linear": (
        "SELECT upper(k) AS k, n + 1 AS n FROM t WHERE n > 1",
        "SELECT k FROM t UNION ALL SELECT k FROM t WHERE n > 1",
        "SELECT k, e FROM t LATERAL VIEW OUTER explode(sequence(1, n)) x AS e",
        "SELECT t.k, n, m FROM t JOIN u ON t.k = u.k",
        "SELECT a.k, a.n, b.n AS n2 FROM t a JOIN t b ON a.k <=> b.k AND a.n < b.n",
    ),
    "groups": (
        (
            "SELECT k, count(*) AS c, count(DISTINCT n) AS cd, min(p) AS lo, sum(p) AS s "
            "FROM t GROUP BY k"
        ),
        "SELECT k, sum(n) AS s FROM t GROUP BY k HAVING count(*) > 1 AND sum(n) < 10",
        "SELECT t.k, sum(m) AS s FROM t JOIN u ON t.k = u.k GROUP BY t.k",
        ("SELECT c, count(*) AS g FROM (SELECT k, count(*) AS c FROM t GROUP BY k) GROUP BY c"),
        "SELECT k, n, count(*) AS c, grouping_id() AS g FROM t GROUP BY ROLLUP (k, n)",
    ),
    "windows": (
        (
            "SELECT k, n, rank() OVER w AS r, sum(n) OVER w AS s FROM t "
            "WINDOW w AS (PARTITION BY k ORDER BY n)"
        ),
        (
            "SELECT * FROM (SELECT k, n, row_number() OVER "
            "(PARTITION BY k ORDER BY n DESC) AS r FROM t) WHERE r = 1"
        ),
        "SELECT DISTINCT k, n FROM t",
    ),
    "joins": (
        "SELECT t.k, n, m FROM t LEFT JOIN u ON t.k = u.k",
        "SELECT t.k AS tk, u.k AS uk, n, m FROM t FULL JOIN u ON t.k = u.k",
        "SELECT k, n FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND m > 10)",
        "SELECT k, n FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
        "SELECT k, n, (SELECT count(*) FROM u WHERE u.k = t.k) AS c FROM t",
    ),
    "nested subqueries": (
        (
            "SELECT k, n FROM t WHERE n = 1 OR EXISTS (SELECT 1 FROM u WHERE u.k = t.k "
            "AND NOT EXISTS (SELECT 1 FROM t i WHERE i.n = u.m))"
        ),
        "SELECT k FROM t WHERE k IN (SELECT k FROM u WHERE m IN (SELECT n FROM t))",
        (
            "SELECT k, (SELECT max(m) FROM u WHERE u.k = t.k AND EXISTS "
            "(SELECT 1 FROM t i WHERE i.k = u.k)) AS m FROM t"
        ),
    ),
    "sets": (
        "SELECT k FROM t EXCEPT ALL SELECT k FROM u",
        "SELECT k FROM t INTERSECT SELECT k FROM u",
        (
            "WITH g AS (SELECT k, count(*) AS c FROM t GROUP BY k) "
            "SELECT a.k AS k1, b.k AS k2 FROM g a JOIN g b ON a.c = b.c"
        ),
    ),
    "lateral": (
        (
            "SELECT t.k, n, l.m FROM t LEFT JOIN LATERAL "
            "(SELECT m FROM u WHERE u.k = t.k ORDER BY m DESC LIMIT 1) l"
        ),
        "SELECT t.k, c, m FROM t, LATERAL (SELECT count(*) AS c, max(m) AS m FROM u WHERE k = t.k)",
        "SELECT k, e FROM t, LATERAL (SELECT n + 1 AS w), LATERAL explode(sequence(0, w)) AS x(e)",
        (
            "SELECT k, n FROM t WHERE EXISTS (SELECT 1 FROM u, LATERAL "
            "(SELECT sum(p) AS s FROM t i WHERE i.k = u.k) l WHERE u.k = t.k AND l.s > 2)"
        ),
    ),
    "collections": (
        (
            "SELECT k, array_sort(collect_list(struct(p, n))) AS l, size(collect_set(n)) AS c, "
            "sort_array(array_distinct(filter(collect_list(n), x -> x > 1)), false) AS f "
            "FROM t GROUP BY k"
        ),
        (
            "SELECT k, concat_ws(',', array_sort(transform(array_agg(n) FILTER (WHERE n > 1), "
            "x -> string(x)))) AS l, array_max(collect_list(p)) AS m FROM t GROUP BY k"
        ),
    ),
    "sessions": (
        (
            "SELECT k, session_window(s, '2 seconds').start AS b, count(*) AS c, max(p) AS m FROM "
            "(SELECT k, p, timestamp_seconds(n) AS s FROM t) "
            "GROUP BY k, session_window(s, '2 seconds')"
        ),
        (
            "SELECT c, count(*) AS g FROM (SELECT k, count(*) AS c FROM t WHERE n > 0 "
            "GROUP BY k, session_window(timestamp_seconds(n), '2 seconds')) GROUP BY c"
        ),
    ),
    "written otherwise": (
        "SELECT * FROM (SELECT k, n, p FROM t) PIVOT (count(*) AS c, sum(p) AS s FOR n IN (1, 7))",
        "FROM t |> WHERE n > 0 |> AGGREGATE sum(n) AS s GROUP BY k |> WHERE s > 1 |> ORDER BY k",
        "SELECT /*+ BROADCAST(u), MERGE(t) */ t.k, n, m FROM t LEFT JOIN u ON t.k = u.k",
    ),
}


FAMILIES = [[family] for family in EQUAL] if FULL else [list(EQUAL)]
"""Of each test; a quick run makes the sources and changes them once for all."""


@pytest.mark.parametrize("families", FAMILIES)
def test_each_operator_keeps_its_table_equal_to_its_query(
    make: Make, session: Session, families: list[str]
) -> None:
    tables = [make(query) for family in families for query in EQUAL[family][::EACH]]
    change_both(session)
    for mt in tables:
        outcome = mt.refresh()
        assert (mt.query, mt.differences()) == (mt.query, [])
        assert (mt.query, outcome.plan.strategy) == (mt.query, Strategy.INCREMENTAL)


def test_appended_rows_are_appended(make: Make, session: Session) -> None:
    mt = make("SELECT t.k, n, m FROM t JOIN u ON t.k = u.k WHERE n > 0")
    session.execute("INSERT INTO t VALUES ('a', 9, 9, 9), ('z', -1, 9, 9)")
    outcome = mt.refresh()
    assert outcome.plan.reason_code == "ROWS_APPENDED"
    assert [change.method for change in outcome.plan.changes] == ["APPENDED"]
    assert outcome.metrics.rows_written == 2
    assert mt.actions() == {"commitInfo", "txn", "add"}
    assert mt.differences() == []


def test_an_emptied_group_disappears_and_comes_again(make: Make, session: Session) -> None:
    mt = make("SELECT k, count(*) AS c FROM t GROUP BY k")
    session.execute("DELETE FROM t WHERE k = 'a' OR k IS NULL")
    assert refresh_incrementally(mt) == "GROUPS_COMBINED"
    session.execute("INSERT INTO t VALUES (NULL, 1, 1, 1), ('a', 1, 1, 1)")
    assert refresh_incrementally(mt) == "GROUPS_COMBINED"


def test_a_source_rewritten_with_the_same_rows_changes_nothing(
    make: Make, session: Session
) -> None:
    mt = make("SELECT k, sum(n) AS s FROM t GROUP BY k")
    before = mt.rows()
    session.execute("UPDATE t SET n = n WHERE k = 'a'")
    outcome = mt.refresh()
    assert outcome.plan.strategy is Strategy.INCREMENTAL
    assert mt.actions() <= {"commitInfo", "txn"}
    assert mt.rows() == before
    assert mt.refresh().plan.strategy is Strategy.NO_DATA


def test_sums_of_doubles_are_replaced(make: Make, session: Session) -> None:
    mt = make("SELECT k, round(sum(d), 6) AS s, round(avg(n), 6) AS a FROM t GROUP BY k")
    session.execute("INSERT INTO t VALUES ('a', 3, 1, 0.1), ('c', 5, 2, double('-infinity'))")
    session.execute("DELETE FROM t WHERE k = 'b'")
    assert refresh_incrementally(mt) == "KEYS_AFFECTED"


def test_a_view_that_changed_is_computed_anew(make: Make, session: Session) -> None:
    session.execute("CREATE VIEW v AS SELECT k, n FROM t WHERE n > 1")
    mt = make("SELECT k, n FROM v")
    session.execute("ALTER VIEW v AS SELECT k, n FROM t WHERE n > 2")
    session.execute("INSERT INTO t VALUES ('y', 9, 9, 9)")
    assert mt.refresh().plan.reason_code == "DEFINITION_CHANGED"
    assert mt.differences() == []


@pytest.mark.parametrize(
    "query",
    [
        (
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) "
            "SELECT k, n FROM t JOIN r USING (n)"
        ),
        "SELECT k FROM t WHERE n >= (SELECT min(m) FROM u) AND n IS NOT NULL AND d > 0 OR p > 1",
    ],
)
def test_a_query_is_not_taken_for_another_one(make: Make, session: Session, query: str) -> None:
    mt = make(query)
    for _ in range(2):
        session.execute("INSERT INTO t VALUES ('a', 2, 3, 4)")
        assert mt.refresh().plan.reason_code != "DEFINITION_CHANGED"
        assert mt.differences() == []


def test_rows_that_expectations_dropped_stay_out(make: Make, session: Session) -> None:
    small = Expectation(name="small", condition="n < 5", violation=Violation.DROP_ROW)
    mt = make("SELECT k, n FROM t", expectations=(small,))
    session.execute("DELETE FROM t WHERE k IN ('gone', 'b')")
    session.execute("INSERT INTO t VALUES ('new', 1, 1, 1), ('new', 9, 1, 1)")
    outcome = mt.refresh()
    assert outcome.plan.strategy is Strategy.INCREMENTAL
    assert {row[0] for row in mt.rows() if row[1] is not None} == {"a", None, "new"}


def test_time_windows_and_other_structs_are_keys(make: Make, session: Session, schema: str) -> None:
    session.execute("CREATE TABLE e (ts TIMESTAMP, k STRING, n INT) USING delta")
    moment = "TIMESTAMP'2026-01-01 00:00:00' + make_interval(0, 0, 0, 0, 0, id * 20)"
    values = f"SELECT {moment}, if(id % 7 = 0, NULL, 'k' || id % 3), id % 5 FROM range(40)"
    session.execute(f"INSERT INTO e {values}")
    session.execute("INSERT INTO e VALUES (NULL, 'k1', 1), (NULL, NULL, NULL)")
    hour, overlapping = "window(ts, '1 hour')", "window(ts, '2 hours', '1 hour')"
    struct = "if(n = 2, NULL, struct(k, if(n = 3, NULL, n) AS n))"
    tables = [
        make(query)
        for query in (
            f"SELECT window, max(n) AS hi, count(DISTINCT k) AS c FROM e GROUP BY {hour}",
            f"SELECT {hour} AS w, count(*) AS c, sum(n) AS s FROM e GROUP BY {hour}",
            f"SELECT window.start AS s, k, max(n) AS hi FROM e GROUP BY {hour}, k",
            f"SELECT window.start AS s, k, avg(n) AS a FROM e GROUP BY {hour}, k",
            f"SELECT window.end AS e, count(DISTINCT n) AS c FROM e GROUP BY {overlapping}",
            f"SELECT s, count(DISTINCT n) AS c FROM (SELECT {struct} AS s, n FROM e) GROUP BY s",
            "SELECT DISTINCT struct(k, n) AS s FROM e",
            "SELECT k, n, count(*) OVER (PARTITION BY struct(k, n)) AS c FROM e",
        )[::EACH]
    ]
    for change in (
        "INSERT INTO e VALUES (TIMESTAMP'2026-01-01 00:59:59', 'new', 9), (NULL, 'k1', 3)",
        "UPDATE e SET ts = ts + INTERVAL '1' HOUR, n = 2 WHERE k = 'k2' AND n > 2",
        "DELETE FROM e WHERE n = 4 OR ts IS NULL",
    ):
        session.execute(change)
        for mt in tables:
            assert (
                mt.query,
                refresh_incrementally(mt) in {"KEYS_AFFECTED", "GROUPS_COMBINED"},
            ) == (
                mt.query,
                True,
            )


def test_scalar_subqueries_over_what_did_not_change_are_no_obstacle(
    make: Make, session: Session
) -> None:
    newest = "(SELECT max(m) FROM u AS v WHERE m <= (SELECT max(m) FROM u AS w) LIMIT 1)"
    tables = [
        make(f"SELECT k, n, {newest} AS newest FROM t WHERE n < (SELECT max(m) FROM u)"),
        make(f"SELECT k, count(*) AS c FROM t GROUP BY k HAVING count(*) * 7 < {newest}"),
        make(
            f"WITH w AS (SELECT max(m) AS m FROM u) SELECT k FROM t WHERE n < {newest} - "
            "(SELECT m FROM w) + 3"
        ),
    ]
    session.execute("INSERT INTO t VALUES ('a', 2, 4, 4), ('new', 9, 1, 1), (NULL, 50, 1, 1)")
    session.execute("DELETE FROM t WHERE n = 1")
    for mt in tables:
        assert (
            mt.query,
            refresh_incrementally(mt) in {"KEYS_AFFECTED", "ROWS_CHANGED", "GROUPS_COMBINED"},
        ) == (
            mt.query,
            True,
        )
    session.execute("INSERT INTO u VALUES ('b', 50)")
    for mt in tables:
        assert (mt.query, refresh_incrementally(mt)) == (mt.query, "SOURCES_REREAD")


COMPUTED = {
    "SELECT d, count(*) AS c FROM t GROUP BY d": "AGGREGATE_WITHOUT_KEYS",
    "SELECT k, first(n) AS f FROM t GROUP BY k": "ORDER_NOT_UNIQUE",
    "SELECT k, sort_array(collect_list(d)) AS l FROM t GROUP BY k": "ORDER_NOT_UNIQUE",
    "SELECT k, array_sort(collect_list(n), (a, b) -> b % 2 - a % 2) AS l FROM t GROUP BY k": (
        "ORDER_NOT_UNIQUE"
    ),
    "SELECT k, array_sort(transform(collect_list(n), (n, i) -> n * i)) AS l FROM t GROUP BY k": (
        "ORDER_NOT_UNIQUE"
    ),
    "SELECT t.k, l.m FROM t, LATERAL (SELECT m FROM u WHERE u.k = t.k LIMIT 1) l": (
        "ORDER_NOT_UNIQUE"
    ),
    "SELECT session_window(timestamp_seconds(n), '2 seconds') AS w FROM t GROUP BY ALL": (
        "AGGREGATE_WITHOUT_KEYS"
    ),
    "SELECT n, string(max(k COLLATE UTF8_LCASE)) AS f FROM t GROUP BY n": "ORDER_NOT_UNIQUE",
    "SELECT s, count(*) AS c FROM (SELECT try_sum(n + 0L) AS s FROM t GROUP BY k) GROUP BY s": (
        "AGGREGATE_NOT_TOP_NODE"
    ),
    (
        "SELECT s, count(*) AS c FROM (SELECT try_avg(p * 1e20BD) s FROM t GROUP BY k) GROUP BY s"
    ): "AGGREGATE_NOT_TOP_NODE",
    "SELECT k FROM t LIMIT 2": "OPERATOR_NOT_INCREMENTALIZABLE",
    "SELECT k, rank() OVER (PARTITION BY d ORDER BY n) AS r FROM t": "WINDOW_WITHOUT_PARTITION_BY",
    "SELECT s, count(*) AS c FROM (SELECT k, sum(d) AS s FROM t GROUP BY k) GROUP BY s": (
        "AGGREGATE_WITHOUT_KEYS"
    ),
    "SELECT k FROM t ORDER BY n + (SELECT max(n) - 2 FROM t)": (
        "SUBQUERY_EXPRESSION_NOT_INCREMENTALIZABLE"
    ),
    "SELECT k, current_date() AS d FROM t": "UNSTABLE_QUERY",
}


def test_what_is_not_recognised_is_refreshed_fully_for_a_reason(
    make: Make, session: Session
) -> None:
    chosen = dict([*COMPUTED.items()][:: 1 if FULL else 2])
    tables = {query: make(query) for query in chosen}
    session.execute("INSERT INTO t VALUES ('a', 4, 4, 4)")
    found = {query: mt.explain() for query, mt in tables.items()}
    assert {query: plan.strategy for query, plan in found.items()} == dict.fromkeys(
        chosen, Strategy.FULL
    )
    assert {query: plan.reason_code for query, plan in found.items()} == chosen


def test_a_strict_table_refuses_a_full_refresh(make: Make, session: Session) -> None:
    query = "SELECT k, count(*) OVER (PARTITION BY d) AS c FROM t"
    mt = make(query, policy=RefreshPolicy.INCREMENTAL_STRICT)
    before = mt.rows()
    session.execute("INSERT INTO t VALUES ('a', 4, 4, 4)")
    with pytest.raises(ServerError) as caught:
        mt.refresh()
    assert caught.value.code == "MT_NOT_INCREMENTAL"
    assert "WINDOW_WITHOUT_PARTITION_BY" in caught.value.message
    assert mt.rows() == before
    assert mt.refresh(force=True).plan.reason_code == "FORCED"


def test_rules_can_be_switched_off(make: Make, session: Session) -> None:
    query = "SELECT k, count(*) AS c FROM t GROUP BY k"
    rules = {"materialized-table.incremental.rules": "LINEAR, JOIN"}
    mt = make(query, options=rules)
    session.execute("INSERT INTO t VALUES ('a', 4, 4, 4)")
    plan = mt.explain()
    assert (plan.strategy, plan.reason_code) == (Strategy.FULL, "RULE_DISABLED")
    assert mt.explain(options={}).strategy is Strategy.INCREMENTAL


def test_explaining_tells_changes_keys_and_alternatives(make: Make, session: Session) -> None:
    mt = make("SELECT k, count(*) AS c FROM t GROUP BY k")
    distinct = make("SELECT k, count(DISTINCT n) AS c FROM t GROUP BY k")
    session.execute("INSERT INTO t VALUES ('a', 4, 4, 4), ('a', 5, 5, 5), ('y', 5, 5, 5)")
    plan = mt.explain()
    assert (plan.strategy, plan.affected_keys) == (Strategy.INCREMENTAL, 2)
    assert [(c.method, c.rows) for c in plan.changes] == [("APPENDED", 3)]
    assert plan.rejected[0].strategy == "FULL"
    assert plan.rejected[0].cost == plan.full_seconds
    auto = distinct.explain(policy=RefreshPolicy.AUTO)
    assert auto.strategy is Strategy.FULL
    assert auto.rejected[0].strategy == "INCREMENTAL"


def test_an_incremental_refresh_that_is_given_up_is_measured(make: Make, session: Session) -> None:
    session.execute("INSERT INTO t SELECT id % 20, id, 1, 1 FROM range(400)")
    mt = make("SELECT k, count(DISTINCT n) AS c FROM t GROUP BY k")
    slow = PastRun(
        strategy=Strategy.FULL,
        seconds=12.0,
        metrics=RunMetrics(work=Work(rows_read=9, rows_written=0)),
    )
    session.execute("INSERT INTO t SELECT id % 20, id, 1, 1 FROM range(40)")
    outcome = mt.refresh(policy=RefreshPolicy.AUTO, history=(slow,))
    assert (outcome.plan.strategy, outcome.plan.reason_code) == (Strategy.FULL, "TOO_MANY_KEYS")
    attempt = outcome.metrics.attempt
    assert attempt is not None
    assert attempt.way == "RECOMPUTE"
    assert attempt.seconds > 0
    assert mt.differences() == []
    session.execute("INSERT INTO t VALUES ('a', 4, 4, 4)")
    assert mt.refresh(policy=RefreshPolicy.FULL).metrics.attempt is None


def test_a_run_records_the_work_from_which_the_next_ones_are_predicted(
    make: Make, session: Session
) -> None:
    grouped = make("SELECT k, count(*) AS c FROM t GROUP BY k")
    linear = make("SELECT n FROM t WHERE n > 0")
    session.execute("INSERT INTO t VALUES ('a', 4, 4, 4)")
    work = grouped.refresh(policy=RefreshPolicy.FULL).metrics.work
    assert work is not None
    assert (work.rows_grouped, work.columns) == (work.rows_read, 2)
    work = linear.refresh(policy=RefreshPolicy.INCREMENTAL).metrics.work
    assert work is not None
    assert (work.rows_grouped, work.columns, work.rows_changed) == (0, 1, 1)


def test_after_a_failure_the_next_refresh_is_full_at_once(make: Make, session: Session) -> None:
    mt = make("SELECT k, n FROM t WHERE n > 0")
    session.execute("UPDATE t SET n = 9 WHERE k = 'a'")
    location = str(session.rows("DESCRIBE DETAIL t")[0][4])
    for changed in Path(location.removeprefix("file:"), "_change_data").glob("*.parquet"):
        changed.write_bytes(b"damaged")
    failed = mt.refresh()
    assert (failed.plan.strategy, failed.plan.reason_code) == (Strategy.FULL, "INCREMENTAL_FAILED")
    assert failed.metrics.attempt is not None
    assert mt.differences() == []
    before = PastRun(
        strategy=failed.plan.strategy,
        seconds=9.0,
        metrics=failed.metrics,
        reason_code=failed.plan.reason_code,
    )
    session.execute("INSERT INTO t VALUES ('a', 4, 4, 4)")
    plan = mt.refresh(policy=RefreshPolicy.AUTO, history=(before,)).plan
    assert (plan.strategy, plan.reason_code) == (Strategy.FULL, "FAILED_BEFORE")
    assert mt.differences() == []


STEPS = {
    "SELECT k, n FROM t WHERE n > 0": "READ_CHANGE COMPUTE_CHANGE APPEND_ROWS",
    "SELECT k, count(*) AS c FROM t GROUP BY k": (
        "READ_CHANGE COMPUTE_CHANGE MERGE_GROUPS CHANGE_ROWS"
    ),
    "SELECT k, count(DISTINCT n) AS c FROM t GROUP BY k": "READ_CHANGE COMPUTE_CHANGE CHANGE_ROWS",
    "SELECT max(c) AS m FROM (SELECT k, count(*) AS c FROM t GROUP BY k)": (
        "READ_CHANGE COMPUTE_CHANGE ADVANCE_AGGREGATES REPLACE_ROWS"
    ),
    "SELECT k, n FROM t ORDER BY n DESC, k LIMIT 3": (
        "READ_CHANGE COMPUTE_CHANGE MERGE_FIRST_ROWS REPLACE_ROWS"
    ),
    "SELECT *, row_number() OVER (PARTITION BY k ORDER BY n) AS r FROM t": (
        "READ_CHANGE COMPUTE_CHANGE CHECK_ROWS CHANGE_ROWS"
    ),
}


def test_the_steps_of_a_plan_are_those_of_its_rule(make: Make, session: Session) -> None:
    tables = [make(query) for query in STEPS]
    session.execute("INSERT INTO t VALUES ('y', 4, 4, 4)")
    for mt in tables:
        steps = " ".join(step.name for step in mt.explain().steps)
        assert (mt.query, steps) == (mt.query, STEPS[mt.query])
        plan = mt.explain(policy=RefreshPolicy.FULL)
        assert [step.name for step in plan.steps][-2:] == ["COMPUTE_QUERY", "REPLACE_ROWS"]


def test_the_versions_of_a_wave_are_read(make: Make, session: Session) -> None:
    mt = make("SELECT k, n FROM t")
    session.execute("INSERT INTO t VALUES ('first', 1, 1, 1)")
    vector = dict(mt.explain().vector)
    session.execute("INSERT INTO t VALUES ('second', 1, 1, 1)")
    outcome = mt.refresh(vector=vector)
    assert (outcome.plan.strategy, dict(outcome.plan.vector)) == (Strategy.INCREMENTAL, vector)
    assert {"first", "second"} & {row[0] for row in mt.rows()} == {"first"}
    assert mt.refresh().plan.strategy is Strategy.INCREMENTAL
    assert mt.differences() == []
