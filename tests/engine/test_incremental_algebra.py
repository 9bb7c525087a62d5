"""Groups computed from their change alone, and those that have to be computed again."""

from __future__ import annotations

import pytest

from tests.engine.conftest import Session
from tests.engine.maintained import Maintained
from tests.support.full_run import FULL
from tidegate_server.core.model.clauses import Expectation, Violation
from tidegate_server.core.model.runs import Strategy

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

EACH = 1 if FULL else 4
AT_ONCE = 1 if FULL else 2
"""After so many changes tables are refreshed and compared."""
COUNTED = "SELECT k, count(*) AS c, sum(n) AS s, sum(p) AS sp FROM t GROUP BY k"
JOINED = "SELECT s, key FROM (SELECT t.k AS key, sum(m) AS s FROM t JOIN u ON t.k = u.k GROUP BY 1)"
EXTREMES = "SELECT max(n) AS hi, k, min(p) AS lo, count(n) AS c FROM t GROUP BY k"
FOUND = ("KEYS_AFFECTED", "GROUPS_COMBINED")
COMPUTED = {
    "SELECT k, sum(DISTINCT n) AS s FROM t GROUP BY k HAVING sum(n) < 100",
    "SELECT k, sum(n) AS s, count(DISTINCT p) AS c FROM t GROUP BY k, p",
}


@pytest.fixture
def sources(session: Session, schema: str) -> str:
    session.execute("CREATE TABLE t (id INT, k STRING, n INT, p DECIMAL(17,2)) USING delta")
    session.execute("CREATE TABLE u (k STRING, m BIGINT NOT NULL) USING delta")
    session.execute(
        "INSERT INTO t VALUES (1, 'a', 1, 1.10), (2, 'a', 2, NULL), (3, 'b', NULL, NULL), "
        "(4, NULL, 4, 99999999999999.99), (5, NULL, 5, 1), (6, 'c', 6, 2), (6, 'c', 6, 2)"
    )
    session.execute("INSERT INTO u VALUES ('a', 10), ('a', 11), ('b', 20), (NULL, 30), ('z', 40)")
    return schema


def refresh_incrementally(mt: Maintained) -> str:
    outcome = mt.refresh()
    assert mt.differences() == []
    assert outcome.plan.strategy is Strategy.INCREMENTAL, outcome.plan
    return outcome.plan.reason_code


def test_sums_and_counts_follow_where_that_is_certain(session: Session, sources: str) -> None:
    counted, joined, extremes = (
        Maintained(session, sources, query) for query in (COUNTED, JOINED, EXTREMES)
    )
    session.execute(
        "INSERT INTO t VALUES (7, 'a', 7, 7), (8, 'b', 8, 8), (9, 'z', NULL, NULL), "
        "(10, 'new', NULL, 1), (11, NULL, -1, -1), (12, 'c', NULL, NULL)"
    )
    for mt in (counted, joined, extremes):
        assert refresh_incrementally(mt) == "GROUPS_COMBINED"
    session.execute("UPDATE t SET n = n * 10, p = p + 1 WHERE id < 6")
    session.execute("UPDATE u SET m = m - 1 WHERE k IN ('a', 'z')")
    assert refresh_incrementally(counted) == "GROUPS_COMBINED"
    assert refresh_incrementally(joined) == "GROUPS_COMBINED"
    assert refresh_incrementally(extremes) == "KEYS_AFFECTED"  # the largest may be gone
    session.execute("UPDATE t SET n = NULL WHERE k = 'c'")
    assert refresh_incrementally(counted) == "KEYS_AFFECTED"  # perhaps only NULLs are left
    session.execute("DELETE FROM t WHERE n IS NULL AND p IS NULL")
    assert refresh_incrementally(counted) == "GROUPS_COMBINED"  # the group z is gone, by its count
    assert "z" not in {row[0] for row in counted.rows()}
    session.execute("DELETE FROM u WHERE k = 'b'")
    assert (
        refresh_incrementally(joined) == "KEYS_AFFECTED"
    )  # without a count, perhaps the group is gone
    session.execute("UPDATE t SET id = id + 1")
    assert refresh_incrementally(counted) == "GROUPS_COMBINED"
    assert counted.actions() <= {"commitInfo", "txn"}


def test_sums_of_wide_decimals_follow_digit_for_digit(session: Session, schema: str) -> None:
    session.execute("CREATE TABLE l (k STRING, p DECIMAL(15,2), d DECIMAL(15,2)) USING delta")
    session.execute("CREATE TABLE w (k STRING, x DECIMAL(38,18), y DECIMAL(27,27)) USING delta")
    session.execute(
        "INSERT INTO l SELECT 'k' || id % 3, id * 1001.13, id % 10 / 100 FROM range(60)"
    )
    session.execute(
        "INSERT INTO w VALUES ('a', 1e-18BD, 1e-27BD), ('a', 99999999999999999999BD, 0.1BD)"
    )
    revenue = Maintained(
        session,
        schema,
        "SELECT k, count(*) AS c, sum(p * (1 - d)) AS net, sum(p * (1 - d) * (1 + d)) AS gross"
        " FROM l GROUP BY k",
    )
    (fine, huge) = (
        Maintained(session, schema, f"SELECT k, count(*) AS c, sum({x}) AS s FROM w GROUP BY k")
        for x in "yx"
    )
    session.execute("UPDATE l SET p = p + 0.01, d = d + 0.03 WHERE p > 5000 AND k <> 'k1'")
    session.execute("INSERT INTO l VALUES ('k9', 9999999999999.99, -9.99)")
    session.execute("INSERT INTO w VALUES ('a', -2e-18BD, 3e-27BD), ('b', 5e-18BD, 5e-27BD)")
    assert refresh_incrementally(revenue) == "GROUPS_COMBINED"
    assert refresh_incrementally(fine) == "GROUPS_COMBINED"
    # A sum of two sums could lose a digit, so these are recorded in full.
    assert refresh_incrementally(huge) == "GROUPS_COMBINED"
    session.execute("INSERT INTO l VALUES ('k9', 1, 1), ('k9', 1, 1), ('k1', 7, 0.5)")
    assert refresh_incrementally(revenue) == "GROUPS_COMBINED"
    session.execute("UPDATE l SET p = 2 WHERE p = 1")
    assert refresh_incrementally(revenue) == "KEYS_AFFECTED"  # rows that are equal went at once


def test_groups_in_doubt_may_have_keys_that_no_rows_are_found_by(
    session: Session, schema: str
) -> None:
    session.execute("CREATE TABLE m (id BIGINT, k STRING, g INT, d DOUBLE, n INT) USING delta")
    session.execute(
        "INSERT INTO m VALUES (1, 'a', 1, 1.5, 1), (1, 'a', 1, 1.5, 2), (2, 'a', 1, 0.0D, 3), "
        "(2, 'a', 1, -0.0D, 4), (3, 'b', NULL, double('NaN'), 5), (3, 'b', 2, NULL, 6)"
    )
    tables = [
        Maintained(session, schema, f"SELECT {keys}, min(n) AS lo FROM m GROUP BY {keys}")
        for keys in ("k, g, d", "d, k", "d, k, g", "k, d, g")[::EACH]
    ]
    computed = "SELECT d, id * 10L AS b, min(n) AS lo FROM m GROUP BY d, id * 10L"
    inside = "SELECT struct(k, d) AS s, g, min(n) AS lo FROM m GROUP BY struct(k, d), g"
    tables += [Maintained(session, schema, query) for query in (computed, inside)]
    changes = (
        "DELETE FROM m WHERE n IN (1, 3)",
        "UPDATE m SET n = n + 1 WHERE d IS NULL OR isnan(d)",
        "INSERT INTO m VALUES (2, 'a', 1, -0.0D, 0), (3, 'b', NULL, double('NaN'), 0)",
        "DELETE FROM m WHERE n = 0 OR d IS NULL",
    )
    for number, change in enumerate(changes, 1):
        session.execute(change)
        for mt in tables if number % AT_ONCE == 0 else ():
            assert (mt.query, refresh_incrementally(mt)) in {(mt.query, c) for c in FOUND}


def test_what_does_not_follow_is_computed_anew(session: Session, sources: str) -> None:
    tables = [Maintained(session, sources, query) for query in sorted(COMPUTED)]
    off = Maintained(
        session,
        sources,
        COUNTED,
        options={"materialized-table.incremental.rules": "LINEAR, AGGREGATE"},
    )
    few = Expectation(name="few", condition="c < 3", violation=Violation.DROP_ROW)
    dropping = Maintained(session, sources, COUNTED, expectations=(few,))
    session.execute("INSERT INTO t VALUES (7, 'c', 7, 7), (8, 'b', 8, 8)")
    for mt in (*tables, off):
        assert (mt.query, refresh_incrementally(mt)) == (mt.query, "KEYS_AFFECTED")
    assert dropping.refresh().plan.reason_code == "KEYS_AFFECTED"
    assert {row[0] for row in dropping.rows()} == {"a", "b", None}
    session.execute("DELETE FROM t WHERE id = 7")
    dropping.refresh()
    assert {row[0] for row in dropping.rows()} == {"a", "b", "c", None}
    assert [row[1] for row in dropping.rows() if row[0] == "c"] == [2]


def test_the_row_of_an_aggregate_over_everything_follows(session: Session, sources: str) -> None:
    totals = Maintained(
        session, sources, "SELECT count(*) AS c, sum(m) AS s, max(m) AS hi FROM u WHERE m < 1000"
    )
    summed = Maintained(session, sources, "SELECT sum(n) AS s, count(p) AS c FROM t")
    joined = Maintained(session, sources, "SELECT count(*) AS c FROM t JOIN u ON t.k = u.k")
    session.execute("INSERT INTO t VALUES (7, 'a', 7, 7), (8, 'b', NULL, NULL)")
    session.execute("INSERT INTO u VALUES ('b', 5), ('q', 50), ('far', 5000)")
    assert {refresh_incrementally(mt) for mt in (totals, summed, joined)} == {"GROUPS_COMBINED"}
    session.execute("UPDATE u SET m = m + 1 WHERE k = 'far'")
    assert refresh_incrementally(totals) == "GROUPS_COMBINED"  # nothing that it reads changed
    session.execute("DELETE FROM u WHERE k = 'q'")
    assert refresh_fully(totals) == "AGGREGATE_WITHOUT_KEYS"  # the largest is gone
    session.execute("DELETE FROM t WHERE n IS NOT NULL")
    assert refresh_incrementally(summed) == "GROUPS_COMBINED"  # only NULLs are left
    session.execute("DELETE FROM u")
    assert [refresh_incrementally(totals), refresh_incrementally(joined)] == ["GROUPS_COMBINED"] * 2
    assert totals.rows() == [(0, None, None)]
    session.execute("INSERT INTO u VALUES ('a', 3)")
    assert refresh_incrementally(totals) == "GROUPS_COMBINED"
    assert totals.rows() == [(1, 3, 3)]


def refresh_fully(mt: Maintained) -> str:
    outcome = mt.refresh()
    assert mt.differences() == []
    assert outcome.plan.strategy is Strategy.FULL, outcome.plan
    return outcome.plan.reason_code
