"""What the words of a statement tell without a grammar of queries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_server.core.sql.query import (
    begins_like_rows,
    dropped_object,
    may_read_rows,
    sets_time_zone,
    spark_text,
    temporary_object,
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
        "VACUUM t DRY RUN",
        "OPTIMIZE t",
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "BEGIN SELECT 1; END",
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


def test_slash_comments_become_dash_comments_in_place() -> None:
    query = "SELECT 1 // one\n, '//not', 4 -- // kept\n/* // */ // last"
    assert spark_text(query) == "SELECT 1 -- one\n, '//not', 4 -- // kept\n/* // */ -- last"


@given(st.text(max_size=80))
def test_questions_about_any_text_have_an_answer(text: str) -> None:
    begins_like_rows(text)
    assert len(spark_text(text)) == len(text)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("SELECT 1", True),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", True),
        ("-- x\n/* y */ insert into t select * from m", True),
        ("CREATE TABLE t AS SELECT * FROM m", True),
        ("create or replace table t using delta as select 1", True),
        ("MERGE INTO t USING m ON true WHEN MATCHED THEN DELETE", True),
        ("CACHE TABLE c AS SELECT 1", True),
        ("EXECUTE IMMEDIATE 'SELECT 1'", True),
        ("", True),
        ("`show` tables", True),
        ("EXPLAIN SELECT 1", False),
        ("create or replace global temporary view v as select 1", False),
        ("CREATE FUNCTION f() RETURNS INT RETURN 1", False),
        ("DROP VIEW v", False),
        ("show tables", False),
    ],
)
def test_statements_that_read_rows_are_known_by_their_first_words(text: str, reads: bool) -> None:
    assert may_read_rows(text) is reads


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("CREATE TEMPORARY VIEW v AS SELECT 1", "view v"),
        ("/* x */ create or replace global temp view `V w` using csv", "view v w"),
        ("CREATE TEMP VIEW IF NOT EXISTS v AS SELECT 1", "view v"),
        ("CREATE TEMPORARY FUNCTION f() RETURNS INT RETURN 1", "function f"),
        ("DECLARE OR REPLACE VARIABLE x INT", "variable x"),
        ("DECLARE x = 1", "variable x"),
        ("CREATE VIEW v AS SELECT 1", None),
        ("CREATE TABLE temp AS SELECT 1", None),
        ("CREATE TEMPORARY", None),
        ("SELECT 'CREATE TEMP VIEW v'", None),
        ("", None),
    ],
)
def test_what_a_session_makes_for_itself_is_known_by_its_words(text: str, made: str | None) -> None:
    assert temporary_object(text) == made


@pytest.mark.parametrize(
    ("text", "dropped"),
    [
        ("DROP VIEW IF EXISTS V", "view v"),
        ("drop temporary function f", "function f"),
        ("DROP TEMPORARY VARIABLE x", "variable x"),
        ("DROP TABLE v", None),
        ("SELECT 1", None),
    ],
)
def test_what_is_dropped_is_known_by_its_words(text: str, dropped: str | None) -> None:
    assert dropped_object(text) == dropped


@pytest.mark.parametrize(
    "text",
    [
        "SET TIME ZONE 'Asia/Tokyo'",
        "-- here\nset time zone LOCAL;",
        "SET TIME ZONE INTERVAL '08:00' HOUR TO MINUTE",
        "EXECUTE IMMEDIATE 'SET TIME ZONE LOCAL'",
        "BEGIN SET spark.sql.session.timeZone = 'Asia/Tokyo'; END",
    ],
)
def test_statements_that_set_the_time_zone_are_known(text: str) -> None:
    assert sets_time_zone(text)


@pytest.mark.parametrize(
    "text", ["SET x = 'TIME ZONE'", "SELECT 'SET TIME ZONE'", "SET", "BEGIN SELECT 1; END"]
)
def test_other_statements_set_no_time_zone(text: str) -> None:
    assert not sets_time_zone(text)
