"""Queries that can be followed are told from others, and taken apart."""

from __future__ import annotations

import pytest

from tidegate.cli.live_query import LiveQuery, NotLiveError, is_query, parse_query, require_rows


@pytest.mark.parametrize(
    ("sql", "parts"),
    [
        ("select a from t", (("t",), "t", "a", "")),
        (
            "SELECT a, b + 1 AS c FROM s.t AS x WHERE c > 1",
            (("s", "t"), "x", "a, b + 1 AS c", "c > 1"),
        ),
        ("SELECT a FROM c.s.`t``.1` y", (("c", "s", "t`.1"), "y", "a", "")),
        (
            "-- all\nSELECT a /* , */ FROM t WHERE b IN ('FROM x', \"limit\") -- end",
            (("t",), "t", "a /* , */", "b IN ('FROM x', \"limit\") -- end"),
        ),
        (
            "SELECT extract(YEAR FROM d), a IS DISTINCT FROM b FROM t",
            (("t",), "t", "extract(YEAR FROM d), a IS DISTINCT FROM b", ""),
        ),
        ("SELECT version FROM version version", (("version",), "version", "version", "")),
    ],
)
def test_a_query_is_taken_apart(sql: str, parts: tuple[object, ...]) -> None:
    query = parse_query(sql)
    assert (query.table, query.alias, query.items, query.condition) == parts
    require_rows(query)


@pytest.mark.parametrize(
    ("sql", "items"),
    [
        ("SELECT * FROM t", "`t`.`a`, `t`.`b``c`"),
        ("SELECT  x, t.*, T.* , a*2 FROM s.t", "x, `t`.`a`, `t`.`b``c`, `t`.`a`, `t`.`b``c` , a*2"),
        ("SELECT t.* , s.* FROM y t", "`t`.`a`, `t`.`b``c` , s.*"),
    ],
)
def test_stars_become_the_columns_of_the_table(sql: str, items: str) -> None:
    assert parse_query(sql).expand(["a", "b`c"]).items == items


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("WITH q AS (SELECT 1) SELECT * FROM q", "it does not begin with SELECT"),
        ("SELECT 1", "it reads no table"),
        ("SELECT DISTINCT a FROM t", "it has DISTINCT"),
        ("SELECT ALL a FROM t", "it has ALL"),
        ("SELECT a FROM t, u", "it reads several tables"),
        ("SELECT a FROM t x LEFT JOIN u", "it reads several tables"),
        ("SELECT a FROM t WHERE a IN (SELECT 1)", "it has several queries"),
        ("SELECT a FROM t WHERE a IN (TABLE u)", "it has several queries"),
        ("SELECT a FROM t UNION ALL TABLE u", "it has UNION"),
        ("SELECT a FROM t WHERE a EXCEPT TABLE u", "it has EXCEPT"),
        ("SELECT a FROM (SELECT 1)", "it has several queries"),
        ("SELECT a FROM range(3)", "it reads a function"),
        ("SELECT a FROM t VERSION AS OF 1", "it reads a fixed version"),
        ("SELECT a FROM t TIMESTAMP AS OF '2026-01-01'", "it reads a fixed version"),
        ("SELECT a FROM t FOR VERSION AS OF 1", "it has FOR"),
        ("SELECT a FROM t TABLESAMPLE (1 ROWS)", "it has TABLESAMPLE"),
        ("SELECT a FROM t AS x (b)", "it has ("),
        ("SELECT a FROM 't'", "it does not read a table by its name"),
        ("SELECT * EXCEPT (a) FROM t", "it has * EXCEPT"),
        ("SELECT struct(*) FROM t", "it has * in a function"),
        ("SELECT /*+ COALESCE(1) */ a FROM t", "it has a hint"),
        ("SELECT a FROM t |> LIMIT 1", "it has a pipe"),
        ("SELECT a FROM t ORDER BY a", "it has ORDER"),
        ("SELECT a FROM t WHERE b GROUP BY a", "it has GROUP"),
        ("SELECT a FROM t LIMIT 1", "it has LIMIT"),
        ("SELECT sum(a) OVER () FROM t", "it has a window function"),
        ("SELECT 'a FROM t", "a quote is not closed"),
        ("SELECT a FROM", "it does not read a table by its name"),
        ("", "it does not begin with SELECT"),
    ],
)
def test_other_queries_are_refused_with_the_reason(sql: str, reason: str) -> None:
    with pytest.raises(NotLiveError) as refused:
        require_rows(parse_query(sql))
    assert str(refused.value) == reason


def test_a_view_may_end_with_any_clause() -> None:
    query = parse_query("SELECT a, count(*) FROM s.t GROUP BY a ORDER BY 2 LIMIT 3")
    assert (query.table, query.beyond) == (("s", "t"), "an aggregate function")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("/* x */ select 1", True),
        ("(SELECT 1)", True),
        ("FROM t", True),
        ("INSERT INTO t SELECT 1", False),
        ("SHOW TABLES", False),
        ("", False),
    ],
)
def test_only_queries_have_results_to_follow(sql: str, expected: bool) -> None:
    assert is_query(sql) is expected


def test_statements_name_the_version_and_keep_comments_apart() -> None:
    query = LiveQuery(("s", "t"), "x", "a -- first", condition="a > 1 -- more")
    assert query.version_sql() == "DESCRIBE HISTORY `s`.`t` LIMIT 1"
    assert query.columns_sql(4) == "SELECT * FROM `s`.`t` VERSION AS OF 4 LIMIT 0"
    assert query.rows_sql(4) == (
        "SELECT '+I' AS `op`, a -- first\nFROM `s`.`t` VERSION AS OF 4 AS `x` WHERE a > 1 -- more\n"
    )
    changes = query.changes_sql((5, 7), 4, ["a"], ["k"])
    assert (
        "(SELECT _commit_version, _change_type, `x`.`k`, a -- first\n"
        "FROM table_changes('`s`.`t`', 5, 7) AS `x` "
        "WHERE _commit_version > 4 AND (a > 1 -- more\n))"
    ) in changes
    quoted = LiveQuery(("it's\\",), "x", "a").changes_sql((1, 1), 0, ["a"])
    assert "table_changes('`it\\'s\\\\`', 1, 1)" in quoted
