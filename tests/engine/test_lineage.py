"""Lineage of columns, and what makes a query unstable."""

from __future__ import annotations

import pytest

from tests.support.fixtures.spark import Lake
from tidegate_server.engine.definition.analyze import analyzed_plan
from tidegate_server.engine.query.determinism import time_dependent, unstable_parts
from tidegate_server.engine.query.lineage import column_origins, source_columns, used_columns
from tidegate_server.engine.query.plans import read_tree

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def tables(module_lake: Lake) -> Lake:
    module_lake.sql(
        "CREATE TABLE t (a INT, b STRING, s STRUCT<x: INT, y: INT>) USING delta",
        "CREATE TABLE u (a INT, c DECIMAL(10, 2), d STRING) USING parquet",
        "CREATE VIEW v (k, b) AS SELECT a, b FROM t WHERE a > 0",
        "CREATE FUNCTION plus_one(x INT) RETURNS INT RETURN x + 1",
    )
    return module_lake


def lineage(lake: Lake, sql: str) -> dict[str, str]:
    """Return what each column is made of; a star marks a value passed through."""
    frame = lake.session.sql(sql)
    found: dict[str, list[str]] = {name: [] for name in frame.columns}
    for origin in column_origins(analyzed_plan(frame), frame.columns):
        mark = "*" if origin.unchanged else ""
        found[origin.column].append(f"{origin.source.table}.{origin.source_column}{mark}")
    return {name: " ".join(made) for name, made in found.items()}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a, b AS z, a + 1 AS n, 1 AS one FROM t", ["t.a*", "t.b*", "t.a", ""]),
        ("SELECT CAST(a AS INT) AS a, CAST(a AS BIGINT) AS w FROM t", ["t.a*", "t.a"]),
        ("SELECT s.x, s FROM t", ["t.s", "t.s*"]),
        ("SELECT k, upper(b) AS b FROM v", ["t.a*", "t.b"]),
        ("SELECT x.k FROM (SELECT k FROM v ORDER BY k LIMIT 3) AS x", ["t.a*"]),
        ("SELECT t.a, u.c FROM t JOIN u ON t.a = u.a", ["t.a*", "u.c*"]),
        ("SELECT t.a, u.c FROM t LEFT JOIN u ON t.a = u.a", ["t.a*", "u.c"]),
        ("SELECT t.a, u.c FROM t RIGHT JOIN u ON t.a = u.a", ["t.a", "u.c*"]),
        ("SELECT t.a, u.c FROM t FULL JOIN u ON t.a = u.a", ["t.a", "u.c"]),
        ("SELECT a, b, c FROM t FULL JOIN u USING (a)", ["t.a u.a", "t.b", "u.c"]),
        ("SELECT a FROM t LEFT SEMI JOIN u USING (a)", ["t.a*"]),
        ("SELECT b, count(*) AS n, sum(a) AS m FROM t GROUP BY b", ["t.b*", "", "t.a"]),
        ("SELECT DISTINCT b FROM t", ["t.b*"]),
        ("SELECT a, b, count(*) AS n FROM t GROUP BY CUBE (a, b)", ["t.a", "t.b", ""]),
        (
            (
                "SELECT a, b, sum(n) AS n FROM (SELECT a, b, a AS n FROM t UNION ALL SELECT a, d, c"
                " FROM u) GROUP BY ROLLUP (a, b)"
            ),
            ["t.a u.a", "t.b u.d", "t.a u.c"],
        ),
        (
            (
                "SELECT * FROM (SELECT a AS x, c AS y FROM u UNION ALL SELECT a, a FROM t)"
                " UNPIVOT (v FOR n IN (x, y))"
            ),
            ["t.a u.a u.c", "t.a u.a u.c"],
        ),
        (
            "SELECT a, row_number() OVER (PARTITION BY b ORDER BY a) AS r FROM t",
            ["t.a*", "t.a t.b"],
        ),
        ("SELECT a FROM t UNION ALL SELECT a FROM u", ["t.a* u.a*"]),
        ("SELECT a FROM t UNION ALL SELECT a + 1 FROM u", ["t.a u.a"]),
        ("SELECT a FROM t EXCEPT SELECT a FROM u", ["t.a*"]),
        ("WITH q AS (SELECT a FROM t) SELECT x.a, y.a AS z FROM q x, q y", ["t.a*", "t.a*"]),
        ("SELECT a, e FROM t LATERAL VIEW explode(array(s.x)) AS e", ["t.a*", "t.s"]),
        ("SELECT t.a, z.m FROM t, LATERAL (SELECT t.a + 1 AS m) AS z", ["t.a*", "t.a"]),
        ("SELECT a, (SELECT max(c) FROM u WHERE u.a = t.a) AS m FROM t", ["t.a*", "u.c"]),
        ("SELECT plus_one(a) AS p FROM t", ["t.a"]),
        ("SELECT * FROM (SELECT a, b FROM t) PIVOT (max(a) FOR b IN ('x'))", ["t.a t.b"]),
        ("SELECT * FROM u WHERE d = 'x'", ["u.a*", "u.c*", "u.d*"]),
    ],
)
def test_columns_are_followed_to_the_sources(tables: Lake, sql: str, expected: list[str]) -> None:
    assert list(lineage(tables, sql).values()) == expected


def test_the_columns_of_sources_and_those_used(tables: Lake) -> None:
    plan = analyzed_plan(tables.session.sql("SELECT count(*) FROM v, u WHERE v.k = u.a"))
    t, u = tables.name("t"), tables.name("u")
    types = {name: [c.type for c in schema] for name, schema in source_columns(plan).items()}
    assert types == {
        t: ["int", "string", "struct<x:int,y:int>"],
        u: ["int", "decimal(10,2)", "string"],
    }
    assert used_columns(plan)[u] >= {"a"}
    assert "c" not in used_columns(plan)[u]
    assert used_columns(plan)[t] == {"a", "b"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a, sum(a) OVER (PARTITION BY b) AS n FROM t", ()),
        (
            "SELECT current_timestamp(), now(), current_date, current_user() FROM t",
            ("D1 current_date", "D1 current_timestamp", "D1 current_user", "D1 now"),
        ),
        ("SELECT a FROM t WHERE b = (SELECT max(b) FROM t WHERE rand() < 1)", ("D3 rand",)),
        (
            "SELECT uuid(), monotonically_increasing_id() FROM t",
            ("D3 monotonically_increasing_id", "D3 uuid"),
        ),
        (
            "SELECT first(a), collect_list(b), any_value(a) FROM t",
            ("D2 any_value", "D2 collect_list", "D2 first"),
        ),
        ("SELECT row_number() OVER (ORDER BY b) FROM t LIMIT 3", ("D2 LIMIT", "D2 row_number")),
        ("SELECT _metadata.file_name FROM t", ("D3 _metadata",)),
        ("SELECT a FROM t TABLESAMPLE (10 PERCENT)", ("D3 TABLESAMPLE",)),
    ],
)
def test_what_is_unstable_is_named_with_its_class(
    tables: Lake, sql: str, expected: tuple[str, ...]
) -> None:
    assert unstable_parts(analyzed_plan(tables.session.sql(sql))) == expected


def test_only_time_and_chance_change_a_query_by_themselves() -> None:
    assert time_dependent(("D1 now", "D2 first", "D3 rand")) == ("now", "rand")


def test_a_plan_is_read_from_its_nodes_in_preorder() -> None:
    flat = [
        {"class": "a.Project", "num-children": 1, "list": [[{"class": "b.X$", "num-children": 0}]]},
        {"class": "a.Leaf", "num-children": 0, "n": 1},
    ]
    plan = read_tree(flat)
    assert (plan.kind, plan.children[0].fields["n"], plan.many("list")[0].kind) == (
        "Project",
        1,
        "X",
    )
    with pytest.raises(ValueError, match="1 nodes are left over"):
        read_tree([*flat, {"class": "a.Leaf", "num-children": 0}])
