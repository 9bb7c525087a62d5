"""Of a source only the columns that the query uses are read, compared and kept."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.fixtures.spark import Lake
from tests.support.materialized import Materialized
from tidegate_server.core.model.runs import Strategy
from tidegate_server.engine.incremental.analysis.columns import is_used_columns, leave_out_unused
from tidegate_server.engine.incremental.analysis.simplify import simplify
from tidegate_server.engine.query.catalyst import Catalyst, descend
from tidegate_server.engine.storage.jvm import items

pytestmark = pytest.mark.spark

T = "CREATE TABLE t (k STRING, n INT, m INT, v VARIANT) USING delta"
ROWS = "INSERT INTO t VALUES ('a', 1, 2, NULL), ('b', 2, 2, NULL), ('b', 3, 0, NULL)"
CHANGES = (
    "INSERT INTO t VALUES ('a', 5, 2, parse_json('1'))",
    "UPDATE t SET v = parse_json('2'), m = m + 1",
    "UPDATE t SET n = 2 WHERE k = 'a'",
    "DELETE FROM t WHERE n = 3",
)


@pytest.mark.thorough(5)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, n FROM t WHERE m > 1",
        "SELECT count(*) AS c FROM t",
        "SELECT k, sum(n) AS s FROM t GROUP BY k",
        "SELECT k, row_number() OVER (PARTITION BY k ORDER BY n) AS place FROM t",
        "SELECT a.k, b.n FROM t a JOIN t b ON a.k = b.k AND a.n < b.n",
        "SELECT k FROM (SELECT k, n FROM t UNION ALL SELECT k, m FROM t)",
        "SELECT k, m FROM (SELECT k, m FROM t EXCEPT SELECT k, n FROM t)",
        "SELECT k FROM (SELECT DISTINCT k, n FROM t)",
        "SELECT k, n FROM t o WHERE EXISTS (SELECT 1 FROM t i WHERE i.m = o.n)",
        "SELECT k, (SELECT max(m) FROM t) AS highest FROM t",
        "SELECT k, (SELECT max(i.m) FROM t i WHERE i.k = o.k) AS highest FROM t o",
        "SELECT o.k, l.s FROM t o, LATERAL (SELECT sum(i.m) AS s FROM t i WHERE i.n = o.n) l",
        "SELECT k, e FROM t LATERAL VIEW explode(array(n, m)) AS e",
        "WITH u AS (SELECT k, n FROM t) SELECT a.k, b.n FROM u a LEFT JOIN u b ON a.n = b.n",
    ],
)
def test_tables_equal_their_queries(lake: Lake, query: str) -> None:
    lake.sql(T, ROWS)
    mt = Materialized(lake, query)
    mt.refresh()
    for change in CHANGES:
        lake.sql(change)
        plan = mt.refresh().plan
        assert plan.strategy is not Strategy.FULL, plan.reason_text
        wanted, found = lake.rows(query), lake.rows("SELECT * FROM mt")
        assert Counter(map(repr, found)) == Counter(map(repr, wanted)), change


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("SELECT k, n FROM t WHERE m > 1", [{"k", "m", "n"}]),
        ("SELECT count(*) AS c FROM t", [{"k"}]),
        ("SELECT k FROM t WHERE n > (SELECT avg(m) FROM t)", [{"k", "n"}, {"m"}]),
        ("SELECT a.k FROM t a JOIN t b ON a.n = b.m", [{"k", "n"}, {"m"}]),
    ],
)
def test_other_columns_are_left_out(lake: Lake, query: str, read: list[set[str]]) -> None:
    lake.sql(T)
    catalyst = Catalyst(lake.session)
    simple = simplify(catalyst, catalyst.analyzed_plan(lake.query(query)))
    plan = leave_out_unused(catalyst, simple.plan)
    found = [
        {str(attribute.name()) for attribute in items(part.output())}
        for whole in (plan, *items(plan.subqueriesAll()))
        for part in descend(whole)
        if is_used_columns(part, catalyst)
    ]
    assert found == read


def test_a_change_of_other_columns_changes_nothing(lake: Lake) -> None:
    lake.sql(T, ROWS)
    mt = Materialized(lake, "SELECT k, sum(n) AS s FROM t GROUP BY k")
    mt.refresh()
    lake.sql("UPDATE t SET v = parse_json('2'), m = m + 1")
    outcome = mt.refresh()
    assert outcome.plan.strategy is Strategy.INCREMENTAL
    assert outcome.metrics.rows_written == 0
