"""Rows that tie in a window's order: whether they are known to be equal in every column."""

from __future__ import annotations

import pytest

from tests.support.fixtures.spark import Lake
from tidegate_server.engine.incremental.analysis.simplify import simplify
from tidegate_server.engine.incremental.analysis.windows import window_ties
from tidegate_server.engine.query.catalyst import Catalyst, descend
from tidegate_server.engine.storage.jvm import kind

pytestmark = pytest.mark.spark

TABLES = (
    "CREATE TABLE t (k STRING, n INT, p INT, d DOUBLE) USING delta",
    "CREATE TABLE u (k STRING, m INT) USING delta",
)
GROUPS = "(SELECT k, n, count(*) AS c, avg(d) AS a FROM t GROUP BY k, n)"
MEANS = "(SELECT k AS j, avg(d) AS a FROM t GROUP BY k)"
PLAIN = "(SELECT k, n, p FROM t)"
RANKED = (
    "(SELECT k, n, p, rank() OVER (PARTITION BY k ORDER BY n) AS q,"
    " count(*) OVER (PARTITION BY k) AS c,"
    " sum(p) OVER (PARTITION BY k ORDER BY n) AS s FROM t)"
)

EQUAL = [
    ("k", "n, p", PLAIN),
    ("k", "c, n", GROUPS),
    ("k", "n", f"(SELECT * FROM {GROUPS} WHERE c > 1 ORDER BY a)"),
    ("h", "x", "(SELECT upper(k) AS x, max(n) AS h, avg(d) AS a FROM t GROUP BY upper(k))"),
    ("k", "n, p", "(SELECT k, n, p, n + p AS s, upper(k) AS x FROM t)"),
    ("k", "m", "(SELECT k, n + p AS m FROM (SELECT DISTINCT k, n, p FROM t WHERE n = p))"),
    ("k", "c", f"(SELECT k, c FROM {GROUPS} WHERE n = 1)"),
    ("k", "n", f"{GROUPS} JOIN {MEANS} ON k = j"),
    ("j", "n", f"{GROUPS} JOIN {MEANS} ON k = j"),
    ("k", "n, p", f"{PLAIN} LEFT JOIN {MEANS} ON k = j AND n > 1"),
    ("k", "n, p", f"{MEANS} RIGHT JOIN {PLAIN} ON k <=> j"),
    ("k", "n, p", f"{PLAIN} WHERE k IN (SELECT k FROM u)"),
    ("k", "n", f"(SELECT *, EXISTS (SELECT 1 FROM u WHERE u.k = g.k) AS e FROM {GROUPS} AS g)"),
    ("k", "n, p", RANKED),
    ("s", "n", "(SELECT count(*) AS n, avg(d) AS s, 1 AS x FROM t)"),
]
PERHAPS_NOT = [
    ("k", "n", PLAIN),
    ("k", "n + p", PLAIN),
    ("k", "d", "(SELECT k, d FROM t)"),
    ("k", "c", GROUPS),
    ("n", "c", f"(SELECT n, c, a FROM {GROUPS})"),
    ("k", "n, c", "(SELECT k, n, count(*) AS c, avg(d) AS a FROM t GROUP BY ROLLUP (k, n))"),
    ("t.k", "n, p", f"{PLAIN} AS t LEFT JOIN u ON t.k = u.k"),
    ("j", "n", f"{GROUPS} LEFT JOIN {MEANS} ON k = j"),
    ("k", "n", f"{GROUPS} FULL JOIN {MEANS} ON k = j"),
    ("k", "n", f"{GROUPS} JOIN {MEANS} ON k < j"),
    ("k", "n, p", "(SELECT k, n, p, explode(array(n, p)) AS e FROM t)"),
    ("k", "n, p", f"(SELECT *, lag(p) OVER (PARTITION BY k ORDER BY n, p) AS l FROM {PLAIN})"),
    ("k", "n", f"({GROUPS} UNION ALL SELECT * FROM {GROUPS})"),
    ("k", "n", f"(SELECT * FROM {GROUPS} LIMIT 5)"),
]


def refusal(lake: Lake, partition: str, order: str, rows: str) -> str | None:
    """Return why the rows' numbers within a partition may vary, if they may."""
    number = f"row_number() OVER (PARTITION BY {partition} ORDER BY {order}) AS r"
    catalyst = Catalyst(lake.session)
    frame = lake.session.sql(f"SELECT *, {number} FROM {rows}")
    nodes = descend(simplify(catalyst, catalyst.analyzed_plan(frame)).plan)
    window = next(node for node in nodes if kind(node) == "Window")
    found = window_ties(window, catalyst)
    return None if found is None else found.code


def test_ties_between_equal_rows_do_not_matter(lake: Lake) -> None:
    lake.sql(*TABLES)
    assert {case: refusal(lake, *case) for case in EQUAL} == dict.fromkeys(EQUAL)


def test_ties_between_other_rows_are_told(lake: Lake) -> None:
    lake.sql(*TABLES)
    told = dict.fromkeys(PERHAPS_NOT, "ORDER_NOT_UNIQUE")
    assert {case: refusal(lake, *case) for case in PERHAPS_NOT} == told
