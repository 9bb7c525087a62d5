"""What the words of a statement tell without a grammar of queries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_server.sql.query import (
    Target,
    begins_like_rows,
    dropped_schema,
    spark_text,
    targets,
)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "-- c\n/* d */ select 1",
        "(SELECT 1)",
        "WITH q AS (SELECT 1) SELECT * FROM q",
        "WITH q AS (SELECT 'INSERT INTO t') SELECT * FROM q",
        "FROM t SELECT a",
        "VALUES (1)",
        "TABLE t",
        "SHOW TABLES",
        "DESC t",
        "EXPLAIN INSERT INTO t SELECT 1",
        "SET x",
        "SELECT 'open",
    ],
)
def test_these_answer_rows(text: str) -> None:
    assert begins_like_rows(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-- c",
        "INSERT INTO t SELECT 1",
        "WITH q AS (SELECT 1) INSERT INTO t SELECT * FROM q",
        "FROM s INSERT INTO a SELECT x INSERT OVERWRITE TABLE b SELECT y",
        "CREATE TABLE t AS SELECT 1",
        "DROP TABLE t",
        "USE d",
        "UPDATE t SET a = 1",
        "MERGE INTO t USING s ON true",
    ],
)
def test_these_answer_none(text: str) -> None:
    assert not begins_like_rows(text)


@pytest.mark.parametrize(
    ("text", "action", "names"),
    [
        ("INSERT INTO t VALUES (1)", "INSERT", ["t"]),
        ("insert overwrite table `a b`.t select 1", "INSERT", ["a b.t"]),
        ("UPDATE c.d.t SET a = 1", "UPDATE", ["c.d.t"]),
        ("DELETE FROM t WHERE a", "DELETE", ["t"]),
        ("MERGE INTO t USING s ON x", "MERGE", ["t"]),
        ("MERGE WITH SCHEMA EVOLUTION INTO t USING s ON x", "MERGE", ["t"]),
        ("TRUNCATE TABLE t", "TRUNCATE TABLE", ["t"]),
        ("DROP TABLE IF EXISTS d.t", "DROP TABLE", ["d.t"]),
        ("ALTER TABLE t RENAME TO x", "ALTER TABLE", ["t"]),
        ("SHOW CREATE TABLE t", "SHOW CREATE TABLE", ["t"]),
        ("ANALYZE TABLE t COMPUTE STATISTICS", "ANALYZE TABLE", ["t"]),
        ("CREATE OR REPLACE TABLE t AS SELECT 1", "CREATE OR REPLACE TABLE", ["t"]),
        ("LOAD DATA LOCAL INPATH 'x' OVERWRITE INTO TABLE t", "LOAD DATA", ["t"]),
        ("WITH q AS (SELECT 1) INSERT INTO t SELECT * FROM q", "INSERT", ["t"]),
        ("FROM s INSERT INTO a SELECT x INSERT INTO b SELECT y", "INSERT", ["a", "b"]),
    ],
)
def test_the_changed_table_is_found(text: str, action: str, names: list[str]) -> None:
    assert targets(text) == tuple(
        Target(action=action, name=tuple(name.split("."))) for name in names
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t",
        "INSERT OVERWRITE DIRECTORY '/x' SELECT 1",
        "CREATE TABLE t (a INT)",
        "DROP VIEW t",
        "SHOW TABLES",
        "WITH q AS (SELECT 'insert into t') SELECT * FROM q",
        "",
    ],
)
def test_other_statements_change_no_table(text: str) -> None:
    assert targets(text) == ()


def test_a_dropped_schema_is_found() -> None:
    assert dropped_schema("DROP SCHEMA IF EXISTS c.d CASCADE") == ("c", "d")
    assert dropped_schema("DROP DATABASE d") == ("d",)
    assert dropped_schema("DROP TABLE d") is None


def test_slash_comments_become_dash_comments_in_place() -> None:
    query = "SELECT 1 // one\n, '//not', 4 -- // kept\n/* // */ // last"
    assert spark_text(query) == "SELECT 1 -- one\n, '//not', 4 -- // kept\n/* // */ -- last"


@given(st.text(max_size=80))
def test_questions_about_any_text_have_an_answer(text: str) -> None:
    begins_like_rows(text)
    targets(text)
    dropped_schema(text)
    assert len(spark_text(text)) == len(text)
