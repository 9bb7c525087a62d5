"""Tables of few groups, which follow from what the last commit recorded of their groups."""

from __future__ import annotations

import pytest

from tests.engine.conftest import Session
from tests.engine.maintained import Maintained
from tests.support.full_run import FULL
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.request import RefreshPolicy
from tidegate_server.engine.incremental.aggregate_state import MOST_GROUPS

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

EACH = 1 if FULL else 2
QUERIES = {
    "SELECT k, avg(n) AS a, avg(p) AS b, avg(w) AS c, sum(n) AS s FROM t GROUP BY k": "t",
    "SELECT upper(k) || '!' AS u, 100 * sum(p) / sum(w) AS share, sum(n) FILTER (WHERE n > 1) AS s"
    " FROM t GROUP BY upper(k), n % 2 HAVING count(*) < 5 ORDER BY s": "t",
    "SELECT sum(n) + 0 AS s, avg(w) AS a, count(p, n) AS c FROM t": "t",
    "SELECT 100.00 * sum(CASE WHEN t.k LIKE 'a%' THEN p * (1 - w) ELSE 0 END) / sum(p * (1 - w))"
    " AS share FROM t JOIN u ON t.k = u.k WHERE m > 1": "tu",
    "SELECT ts, dt, b, k, grouping(k) AS g, avg(m) AS a FROM t LEFT JOIN u USING (k)"
    " GROUP BY ts, dt, b, ROLLUP (k)": "tu",
    # LIMIT keeps all rows there can be.
    "SELECT avg(n) AS a, count(*) AS c FROM t LIMIT 100": "t",
    "SELECT avg(p) AS a FROM (SELECT p, m FROM t JOIN u USING (k)) ORDER BY a LIMIT 1": "tu",
    # All rows are computed from the totals, whatever is done to them.
    "SELECT k, c, rank() OVER (ORDER BY c DESC) AS r, 100 * c / sum(c) OVER () AS share,"
    " sum(s) OVER (ORDER BY k) AS so_far FROM (SELECT k, count(*) AS c, sum(p) AS s FROM t"
    " GROUP BY k) ORDER BY r": "t",
    "SELECT DISTINCT c > 3 AS many, max(c) OVER () AS most FROM (SELECT k, count(m) AS c"
    " FROM t LEFT JOIN u USING (k) GROUP BY k)": "tu",
    "SELECT count(DISTINCT c) AS different, median(c) AS usual FROM (SELECT n % 3 AS o,"
    " count(*) AS c FROM t GROUP BY n % 3)": "t",
}
CHANGES = {
    "INSERT INTO t SELECT 7, 'a', 7, 7, 0.000007, true, NULL, DATE'2026-01-01' FROM range(3)": "t",
    "UPDATE t SET n = NULL, p = NULL, w = NULL WHERE k = 'c'": "t",
    "UPDATE t SET n = n * 10, p = p + 1, w = -w, ts = ts + INTERVAL '1' HOUR WHERE id < 6": "t",
    "DELETE FROM t WHERE k IS NULL OR n IS NULL": "t",
    "DELETE FROM t": "t",
    "DELETE FROM u WHERE k = 'b'": "u",
    "INSERT INTO t VALUES (1, NULL, 1, 1.1, 0.5, NULL, TIMESTAMP'2026-10-25 00:30:00Z', NULL)": "t",
}

YES = ("GROUPS_COMBINED", "GROUPS_COMBINED")


@pytest.fixture
def sources(session: Session, schema: str) -> str:
    session.execute(
        "CREATE TABLE t (id INT, k STRING, n INT, p DECIMAL(17,2), w DECIMAL(30,6), b BOOLEAN,"
        " ts TIMESTAMP, dt DATE) USING delta"
    )
    session.execute("CREATE TABLE u (k STRING, m BIGINT NOT NULL) USING delta")
    session.execute(
        "INSERT INTO t SELECT id, CASE WHEN id % 4 > 0 THEN substr('abc', id % 4, 1) END, id,"
        " id * 1.11, 1 / (id + 1), id % 3 = 0, TIMESTAMP'2026-10-25 00:30:00Z' + make_dt_interval"
        "(0, id % 3), date_add(DATE'1582-10-14', CAST(id % 2 AS INT)) FROM range(40)"
    )
    session.execute("INSERT INTO u VALUES ('a', 10), ('a', 11), ('b', 20), (NULL, 30), ('z', 40)")
    return schema


def refresh_and_compare(mt: Maintained) -> tuple[str, str]:
    outcome = mt.refresh()
    assert (mt.query, mt.differences()) == (mt.query, [])
    return (mt.query, outcome.plan.reason_code)


def test_rows_follow_from_totals(session: Session, sources: str) -> None:
    tables = [Maintained(session, sources, query) for query in [*QUERIES][::EACH]]
    for change, changed in [*CHANGES.items()] if FULL else [*CHANGES.items()][:5:2]:
        session.execute(change)
        for mt in tables:
            follows = "GROUPS_COMBINED" if changed in QUERIES[mt.query] else "SOURCES_UNCHANGED"
            assert refresh_and_compare(mt) == (mt.query, follows)


def test_ties_are_looked_for_among_what_is_computed_from_totals(
    session: Session, sources: str
) -> None:
    mt = Maintained(
        session,
        sources,
        "SELECT k, row_number() OVER (ORDER BY s DESC) AS r"
        " FROM (SELECT k, sum(m) AS s FROM u GROUP BY k)",
    )
    for change, follows in (
        ("INSERT INTO u VALUES ('a', 1), ('c', 2)", "GROUPS_COMBINED"),
        ("INSERT INTO u VALUES ('c', 18)", "ORDER_NOT_UNIQUE"),
        ("INSERT INTO u VALUES ('c', 1)", "ORDER_NOT_UNIQUE"),
        ("INSERT INTO u VALUES ('c', 5)", "GROUPS_COMBINED"),
    ):
        session.execute(change)
        outcome = mt.refresh()
        assert (change, outcome.plan.reason_code) == (change, follows)
        if follows == "GROUPS_COMBINED":
            assert mt.differences() == []


def test_what_has_too_many_groups_or_too_large_sums_is_computed(
    session: Session, sources: str
) -> None:
    many = Maintained(session, sources, "SELECT id, avg(n) AS a FROM t GROUP BY id")
    all_ = Maintained(session, sources, "SELECT avg(m) AS a, sum(m) AS s FROM u")
    session.execute("INSERT INTO u VALUES ('a', 9007199254740993), ('a', -9007199254740990)")
    assert refresh_and_compare(all_)[1] == "AGGREGATE_NOT_TOP_NODE"
    session.execute("INSERT INTO u VALUES ('a', 1)")
    assert refresh_and_compare(all_)[1] == "AGGREGATE_NOT_TOP_NODE"
    session.execute("UPDATE t SET n = n + 1 WHERE id = 3")
    assert refresh_and_compare(many)[1] == "GROUPS_COMBINED"
    far = f"range(100, {MOST_GROUPS + 100})"
    session.execute(f"INSERT INTO t SELECT id, 'x', 1, 1, 1, true, NULL, NULL FROM {far}")
    assert refresh_and_compare(many)[1] == "KEYS_AFFECTED"
    session.execute("UPDATE t SET n = n + 1 WHERE id = 3")
    assert many.refresh(force=True).plan.strategy is Strategy.FULL
    session.execute("DELETE FROM t WHERE id >= 100")
    assert refresh_and_compare(many)[1] == "KEYS_AFFECTED"  # the groups are not counted again


def test_extremes_follow_unless_they_were_removed(session: Session, sources: str) -> None:
    by_key = Maintained(
        session, sources, "SELECT k, avg(n) AS a, min(n) AS lo, max(p) AS hi FROM t GROUP BY k"
    )
    over_all = Maintained(
        session,
        sources,
        "SELECT max(k) FILTER (WHERE id = 38) AS hi, min(n) FILTER (WHERE k > 'a') AS lo FROM t",
    )
    steps = (
        ("INSERT INTO t SELECT id, k, n - 40, p, w, b, ts, dt FROM t WHERE id IN (7, 11)", *YES),
        ("DELETE FROM t WHERE n BETWEEN 4 AND 8", *YES),
        ("DELETE FROM t WHERE k = 'a' AND n = 1", "KEYS_AFFECTED", "GROUPS_COMBINED"),
        ("DELETE FROM t WHERE n = -33", "KEYS_AFFECTED", "AGGREGATE_WITHOUT_KEYS"),
        ("DELETE FROM t WHERE id = 38", "KEYS_AFFECTED", "GROUPS_COMBINED"),
        ("INSERT INTO t (id, k) VALUES (38, '0')", "KEYS_AFFECTED", "GROUPS_COMBINED"),
    )
    for change, keyed, keyless in steps if FULL else steps[:4]:
        session.execute(change)
        assert (change, refresh_and_compare(by_key)[1], refresh_and_compare(over_all)[1]) == (
            change,
            keyed,
            keyless,
        )


def test_totals_are_kept_of_what_is_computed_fully(session: Session, sources: str) -> None:
    mt = Maintained(session, sources, next(iter(QUERIES)))
    session.execute("UPDATE t SET n = n + 1 WHERE id = 3")
    assert mt.refresh(policy=RefreshPolicy.FULL).plan.strategy is Strategy.FULL
    session.execute("UPDATE t SET n = n + 1 WHERE id = 3")
    assert (
        refresh_and_compare(mt)[1] == "KEYS_AFFECTED"
    )  # a table that is always refreshed fully needs none
    assert mt.refresh(force=True).plan.strategy is Strategy.FULL
    session.execute("UPDATE t SET n = n + 1 WHERE id = 3")
    assert refresh_and_compare(mt)[1] == "GROUPS_COMBINED"
    session.execute("UPDATE t SET id = id + 1")
    assert refresh_and_compare(mt)[1] == "GROUPS_COMBINED"
    assert mt.actions() <= {"commitInfo", "txn"}


def test_totals_are_not_kept_where_full_refreshes_are_cheap(session: Session, sources: str) -> None:
    mt = Maintained(session, sources, "SELECT avg(n) AS a FROM t", policy=RefreshPolicy.AUTO)
    for policy, code in (
        (RefreshPolicy.AUTO, "FULL_IS_CHEAPER"),
        (RefreshPolicy.INCREMENTAL_STRICT, "TOTALS_NOT_RECORDED"),
        (RefreshPolicy.INCREMENTAL_STRICT, "GROUPS_COMBINED"),
    ):
        session.execute("UPDATE t SET n = n + 1 WHERE id = 3")
        assert mt.refresh(policy=policy).plan.reason_code == code
        assert mt.differences() == []
