"""Queries that are incremental as long as rows are as they have to be: no ties, no large sums."""

from __future__ import annotations

import pytest

from tests.engine.conftest import Session
from tests.engine.maintained import Maintained
from tests.support.full_run import FULL
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.request import RefreshPolicy

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

KEYS = "KEYS_AFFECTED"
WHOLE = "SOURCES_REREAD"
COMBINED = "GROUPS_COMBINED"
TIED = "ORDER_NOT_UNIQUE"
ROUNDED = "AGGREGATE_NOT_TOP_NODE"
UNKNOWN = "TOTALS_NOT_RECORDED"
NUMBERED = "SELECT *, row_number() OVER (PARTITION BY id ORDER BY at DESC) AS n FROM log"
NEWEST = f"SELECT id, v, x FROM ({NUMBERED}) WHERE n = 1"
CHANGES = (
    "INSERT INTO log VALUES (1, 30, 'new', 1, 0.5), (9, 1, 'first', 1, NULL)",
    "UPDATE log SET v = 'other', x = x + 1 WHERE id = 2",
    "DELETE FROM log WHERE id = 6 AND at > 2 OR id = 4",
)
STEPS = (
    CHANGES,
    ("DELETE FROM log WHERE id = 1 AND at = 30", "INSERT INTO names VALUES (2, 'two')"),
    ("UPDATE log SET at = at + 5 WHERE id IN (0, 3)",),
    ("DELETE FROM log WHERE id = 9", "INSERT INTO names SELECT id + 3, name FROM names"),
)


@pytest.fixture
def sources(session: Session, schema: str) -> str:
    """Make a log of 40 changes of 8 ids, none of them at the same time as another of its id."""
    session.execute("CREATE TABLE log (id INT, at INT, v STRING, x INT, d DOUBLE) USING delta")
    session.execute(
        "INSERT INTO log SELECT nullif(id % 8, 7), id DIV 8, concat('v', id % 5), id % 3, id / 4"
        " FROM range(40)"
    )
    session.execute("CREATE TABLE names (id INT, name STRING) USING delta")
    session.execute("INSERT INTO names VALUES (0, 'zero'), (1, 'one'), (2, 'two'), (NULL, 'none')")
    return schema


def refresh_and_compare(mt: Maintained, **changed: object) -> str:
    outcome = mt.refresh(**changed)
    assert (mt.query, mt.differences()) == (mt.query, [])
    return outcome.plan.reason_code


UNTIED = [
    NEWEST,
    f"SELECT * FROM ({NUMBERED.replace(' DESC', '')}) WHERE n > 1",
    f"SELECT id, n, v FROM ({NUMBERED} WHERE x < 3) WHERE 3 > n AND x >= 0",
    """SELECT id, at, lag(v) OVER w AS before, lead(d, 2) OVER w AS later,
    sum(x) OVER (PARTITION BY id ORDER BY at ROWS UNBOUNDED PRECEDING) AS so_far
    FROM log WINDOW w AS (PARTITION BY id ORDER BY at)""",
    """SELECT id, max_by(v, at) AS v, min_by(d, at) FILTER (WHERE x > 0) AS d, count(*) AS c
    FROM log GROUP BY id""",
    """SELECT l.id, any_value(name) AS name, first(name, true) AS again, sum(x) AS s
    FROM log AS l LEFT JOIN names AS n ON l.id <=> n.id GROUP BY l.id""",
    # Below others.
    f"SELECT v, count(*) AS c, sum(x) AS s FROM ({NEWEST}) GROUP BY v HAVING c > 0",
    f"SELECT n.name, l.v FROM ({NEWEST}) AS l JOIN names AS n ON l.id <=> n.id",
    "SELECT name, (SELECT max_by(v, at) FROM log WHERE log.id = names.id) AS v FROM names",
    f"SELECT count(*) AS c, sum(x) AS s FROM ({NEWEST})",
    f"SELECT id, v FROM ({NEWEST}) ORDER BY id DESC NULLS LAST LIMIT 20",
    """SELECT id, listagg(v, ', ') WITHIN GROUP (ORDER BY at) AS values, mode(x, true) AS often,
    listagg(DISTINCT v) WITHIN GROUP (ORDER BY v DESC) AS different FROM log GROUP BY id""",
]


def test_as_long_as_no_rows_tie_refreshes_are_incremental(session: Session, sources: str) -> None:
    tables = [Maintained(session, sources, query) for query in UNTIED[:: 1 if FULL else 3]]
    for step in STEPS if FULL else STEPS[:1]:
        for change in step:
            session.execute(change)
        for mt in tables:
            outcome = mt.refresh()
            assert (mt.query, outcome.plan.strategy) == (mt.query, Strategy.INCREMENTAL)
            assert (mt.query, mt.differences()) == (mt.query, [])


TIES = [
    (f"SELECT id, v FROM ({NUMBERED}) WHERE 2 = n", "(1, 4, 'tied', 1, 0)"),
    (NEWEST, "(1, 4, 'tied', 1, 0)"),
    ("SELECT id, max_by(v, at) AS v FROM log GROUP BY id", "(1, 4, 'tied', 1, 0)"),
    ("SELECT id, min_by(v, -at) AS v FROM log GROUP BY id", "(1, 4, NULL, 1, 0)"),
    ("SELECT id, any_value(v) AS v FROM log WHERE at = 4 GROUP BY id", "(1, 4, 'tied', 1, 0)"),
    ("SELECT id, last(v) AS v FROM log WHERE at = 4 GROUP BY id", "(1, 4, NULL, 1, 0)"),
    ("SELECT id, lag(x) OVER (PARTITION BY id ORDER BY at) AS l FROM log", "(1, 2, '', 9, 0)"),
    (f"SELECT v, count(*) AS c FROM ({NEWEST}) GROUP BY v", "(1, 4, 'tied', 1, 0)"),
    (
        "SELECT id, listagg(v) WITHIN GROUP (ORDER BY at) AS l FROM log GROUP BY id",
        "(1, 4, 'tied', 1, 0)",
    ),
    # Two moments of one session.
    (
        """SELECT id, max_by(v, x) AS v FROM log WHERE id = 1 AND at > 3
        GROUP BY id, session_window(timestamp_seconds(at), '2 seconds')""",
        "(1, 5, 'tied', 0, 0)",
    ),
    # Zeros of either sign are equal in an order.
    (f"SELECT id, d FROM ({NUMBERED.replace('at DESC', 'd')}) WHERE n = 1", "(0, 9, '', 1, -0D)"),
]


def test_where_rows_tie_that_differ_a_refresh_is_full(session: Session, sources: str) -> None:
    for query, tied in TIES if FULL else TIES[::4]:
        mt = Maintained(session, sources, query)
        session.execute(f"INSERT INTO log VALUES {tied}")
        full = mt.refresh()
        told = (full.plan.strategy, full.plan.reason_code)
        assert (query, *told) == (query, Strategy.FULL, TIED)
        session.execute("RESTORE TABLE log TO VERSION AS OF 1")


def test_rows_that_tie_and_are_equal_in_what_is_used_make_no_difference(
    session: Session, sources: str
) -> None:
    mt = Maintained(session, sources, NEWEST)
    session.execute("INSERT INTO log SELECT id, at, v, x, d + 1 FROM log WHERE id < 4")
    assert refresh_and_compare(mt) == KEYS
    session.execute("DELETE FROM log WHERE id < 2 AND d > 9")
    assert refresh_and_compare(mt) == KEYS


def test_rows_of_many_columns_are_compared_only_if_they_tie(session: Session, sources: str) -> None:
    query = f"SELECT * FROM ({NUMBERED}) WHERE n = 1"
    before = Maintained(session, sources, query)
    session.execute("INSERT INTO log SELECT * FROM log WHERE id < 4")
    session.execute("INSERT INTO log SELECT id, at, 'tied', x, d FROM log WHERE at < 4")
    assert refresh_and_compare(before) == KEYS
    after = Maintained(session, sources, query)
    session.execute("INSERT INTO log VALUES (5, 40, 'new', 1, 0), (5, 40, 'new', 1, 0)")
    assert (refresh_and_compare(before), refresh_and_compare(after)) == (KEYS, KEYS)
    session.execute("INSERT INTO log VALUES (5, 40, 'new', 1, 0.5)")
    for mt in (before, after):
        outcome = mt.refresh()
        assert (outcome.plan.strategy, outcome.plan.reason_code) == (Strategy.FULL, TIED)


def test_only_rows_at_the_cut_have_to_be_told_apart(session: Session, sources: str) -> None:
    two = Maintained(session, sources, f"SELECT id, v FROM ({NUMBERED}) WHERE n <= 2")
    shown = Maintained(session, sources, f"SELECT id, v, n FROM ({NUMBERED}) WHERE n <= 2")
    older = "INSERT INTO log VALUES (1, 0, 'older', 1, 0), (1, 1, 'old', 1, 0)"
    session.execute(older)
    assert (refresh_and_compare(two), refresh_and_compare(shown)) == (KEYS, KEYS)
    session.execute("INSERT INTO log VALUES (2, 50, 'one', 1, 0), (2, 50, 'the other', 1, 0)")
    assert refresh_and_compare(two) == KEYS
    assert shown.refresh().plan.reason_code == TIED
    session.execute("INSERT INTO log VALUES (2, 50, 'a third', 1, 0)")
    assert two.refresh().plan.reason_code == TIED


def test_a_column_that_is_compared_and_counted_has_to_be_the_same_too(
    session: Session, sources: str
) -> None:
    mt = Maintained(session, sources, f"SELECT id FROM ({NUMBERED}) WHERE n = 1 AND x <= 1")
    session.execute("INSERT INTO log VALUES (1, 90, 'a', 1, 0), (1, 90, 'b', 2, 0)")
    assert mt.refresh().plan.reason_code == TIED


def test_what_ties_at_first_is_looked_at_again_when_everything_is_computed(
    session: Session, sources: str
) -> None:
    session.execute("INSERT INTO log VALUES (1, 4, 'tied', 1, 0)")
    mt = Maintained(session, sources, NEWEST)
    session.execute("DELETE FROM log WHERE v = 'tied'")
    assert refresh_and_compare(mt) == TIED
    session.execute(CHANGES[0])
    assert refresh_and_compare(mt) == KEYS


def test_policy_auto_looks_again_when_it_is_told_to_compute_everything(
    session: Session, sources: str
) -> None:
    session.execute("INSERT INTO log VALUES (1, 4, 'tied', 1, 0)")
    mt = Maintained(session, sources, NEWEST)
    session.execute("DELETE FROM log WHERE v = 'tied'")
    assert refresh_and_compare(mt, policy=RefreshPolicy.AUTO) == TIED
    session.execute(CHANGES[0])
    assert refresh_and_compare(mt) == TIED
    session.execute(CHANGES[1])
    assert refresh_and_compare(mt) == KEYS


def test_a_change_that_is_not_recorded_makes_the_next_refresh_full(
    session: Session, sources: str
) -> None:
    mt = Maintained(session, sources, NEWEST, policy=RefreshPolicy.FULL)
    session.execute(CHANGES[0])
    assert refresh_and_compare(mt, policy=RefreshPolicy.INCREMENTAL_STRICT) == UNKNOWN
    session.execute(CHANGES[1])
    assert refresh_and_compare(mt, policy=RefreshPolicy.INCREMENTAL_STRICT) == KEYS


MILLIONS = "x * 4194304L"
AVERAGES = [
    f"""SELECT name, a FROM (SELECT id, avg({MILLIONS}) AS a FROM log GROUP BY id) AS g
    JOIN names USING (id)""",
    f"""SELECT a, m, count(*) AS c FROM (SELECT floor(avg({MILLIONS})) AS a,
    floor(median(x) + percentile_cont(0.2) WITHIN GROUP (ORDER BY at)) AS m FROM log GROUP BY id)
    GROUP BY a, m""",
    f"""SELECT v, count(*) AS c FROM log AS l JOIN (SELECT id, avg(DISTINCT {MILLIONS}) AS a,
    median(d) AS m FROM log GROUP BY id) AS g ON l.id = g.id AND l.x > g.a GROUP BY v""",
    f"""SELECT name, n.id, a FROM (SELECT id, avg({MILLIONS}) OVER (PARTITION BY id ORDER BY at
    ROWS 2 PRECEDING) AS a FROM log) AS l RIGHT JOIN names AS n ON l.id = n.id AND a > 0""",
]


def test_averages_of_whole_numbers_are_followed_as_long_as_they_are_exact(
    session: Session, sources: str
) -> None:
    each = 1 if FULL else 3
    tables = [Maintained(session, sources, query) for query in AVERAGES[::each]]
    for change in CHANGES[: 3 if FULL else 1]:
        session.execute(change)
        assert [refresh_and_compare(mt) for mt in tables] == [KEYS, COMBINED, ROUNDED, KEYS][::each]
    session.execute(f"INSERT INTO log VALUES (1, 31, 'large', {2**31 - 1}, 0.5)")
    assert {refresh_and_compare(mt) for mt in tables} == {ROUNDED}


NULL_AWARE = (
    "SELECT * FROM log WHERE id NOT IN (SELECT id FROM banned)",
    "SELECT id, name, id NOT IN (SELECT id FROM banned) AND name <> 'zero' AS good FROM names",
    "SELECT n.name, b.why FROM names n LEFT JOIN banned b ON n.id = b.id OR (n.id = b.id) IS NULL",
    "SELECT n.name, b.why FROM banned b RIGHT JOIN names n ON b.id = n.id OR (b.id = n.id) IS NULL",
    "SELECT n.name, b.why FROM banned b FULL JOIN names n ON b.id = n.id OR (b.id = n.id) IS NULL",
    "SELECT * FROM names n LEFT SEMI JOIN banned b ON n.id = b.id OR (n.id = b.id) IS NULL",
)
"""What is compared with NULL matches every key."""


def test_rows_that_null_matches_are_found_by_key(session: Session, sources: str) -> None:
    session.execute("CREATE TABLE banned (id INT, why STRING) USING delta")
    session.execute("INSERT INTO banned VALUES (1, 'spam'), (2, 'more spam')")
    tables = [Maintained(session, sources, query) for query in NULL_AWARE[:: 1 if FULL else 2]]
    steps = (
        "UPDATE banned SET id = id - 1",
        "INSERT INTO banned VALUES (NULL, 'unknown')",
        "DELETE FROM banned WHERE id IS NULL OR id = 0",
        "INSERT INTO banned VALUES (3, 'rude'), (3, 'rude')",
        "DELETE FROM banned",
        "INSERT INTO banned VALUES (1, 'again')",
        "UPDATE banned SET id = 2",
    )
    for change in steps if FULL else steps[1:4]:
        session.execute(change)
        session.execute("INSERT INTO log VALUES (1, 40, 'x', 1, 1), (NULL, 40, 'y', 1, 1)")
        session.execute("INSERT INTO names VALUES (2, 'also two'), (NULL, NULL)")
        assert {refresh_and_compare(table) for table in tables} <= {KEYS, WHOLE}, change


def test_not_in_of_columns_that_are_never_null_needs_no_look(
    session: Session, sources: str
) -> None:
    session.execute("CREATE TABLE all_ids (id INT NOT NULL) USING delta")
    session.execute("CREATE TABLE some_ids (id INT NOT NULL) USING delta")
    session.execute("INSERT INTO all_ids SELECT id FROM range(5)")
    mt = Maintained(
        session, sources, "SELECT * FROM all_ids WHERE id NOT IN (SELECT id FROM some_ids)"
    )
    for change in ("INSERT INTO some_ids VALUES (1), (2)", "DELETE FROM some_ids"):
        session.execute(change)
        assert refresh_and_compare(mt) == KEYS
