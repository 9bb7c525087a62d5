"""The first words of a statement for Spark are enough to know these facts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.sql.dialect import head
from tidegate_server.core.sql.facts import facts_of
from tidegate_server.core.sql.statements import (
    ListingKind,
    ObjectAct,
    ObjectChange,
    StatementFacts,
)


def facts(text: str) -> StatementFacts:
    return facts_of(text, head(text, 32))


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
    assert facts(text).returns_rows


@pytest.mark.parametrize(
    ("text", "verb"),
    [
        ("/* a */ insert INTO t SELECT 1", "INSERT"),
        ("", ""),
        ("(SELECT 1)", ""),
        ("'INSERT'", ""),
        ("`INSERT` t", ""),
        (f"{'X' * 21} 1", ""),
    ],
)
def test_the_verb_is_a_word(text: str, verb: str) -> None:
    assert facts(text).verb == verb


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
    assert not facts(text).returns_rows


@given(st.text(max_size=80))
def test_any_text_has_facts(text: str) -> None:
    facts(text)


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
    assert facts(text).may_read_rows is reads


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
    assert facts(text).creates_temporary == made


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
    assert facts(text).drops == dropped


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
    assert facts(text).sets_time_zone


@pytest.mark.parametrize(
    "text", ["SET x = 'TIME ZONE'", "SELECT 'SET TIME ZONE'", "SET", "BEGIN SELECT 1; END"]
)
def test_other_statements_set_no_time_zone(text: str) -> None:
    assert not facts(text).sets_time_zone


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SHOW TABLES IN s", ListingKind.TABLES),
        ("/* all */ show table extended LIKE '*'", ListingKind.TABLE_EXTENDED),
        ("SHOW VIEWS", ListingKind.VIEWS),
        ("SHOW TBLPROPERTIES t", None),
        ("`show` tables", None),
        ("SELECT 'SHOW TABLES'", None),
    ],
)
def test_listings_are_told_apart(text: str, kind: ListingKind | None) -> None:
    assert facts(text).lists is kind


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("BEGIN SELECT 1; END", True),
        ("execute immediate 'SELECT 1'", True),
        ("CALL p()", True),
        ("SELECT 1", False),
        ("DROP TABLE begin", False),
    ],
)
def test_statements_that_run_others_are_known(text: str, runs: bool) -> None:
    assert facts(text).runs_others is runs


# ---- what a statement does to an object ------------------------------------------------------

TABLE, VIEW, FUNCTION, SCHEMA = (
    SecuredKind.TABLE,
    SecuredKind.VIEW,
    SecuredKind.FUNCTION,
    SecuredKind.SCHEMA,
)
CHANGES = {
    "DROP TABLE a.b": ObjectChange(act=ObjectAct.DROP, kind=TABLE, name=("a", "b")),
    "drop view if exists `a b`.c.`if`": ObjectChange(
        act=ObjectAct.DROP, kind=VIEW, name=("a b", "c", "if")
    ),
    "DROP DATABASE IF EXISTS s CASCADE": ObjectChange(act=ObjectAct.DROP, kind=SCHEMA, name=("s",)),
    "DROP FUNCTION f": ObjectChange(act=ObjectAct.DROP, kind=FUNCTION, name=("f",)),
    "DROP TABLE IDENTIFIER('a')": ObjectChange(act=ObjectAct.DROP, kind=TABLE, name=()),
    "ALTER TABLE a RENAME TO b.c": ObjectChange(
        act=ObjectAct.RENAME, kind=TABLE, name=("a",), new_name=("b", "c")
    ),
    "/* why */ ALTER VIEW s.a RENAME TO b -- x": ObjectChange(
        act=ObjectAct.RENAME, kind=VIEW, name=("s", "a"), new_name=("b",)
    ),
    "ALTER TABLE IDENTIFIER('a') RENAME TO b": ObjectChange(
        act=ObjectAct.RENAME, kind=TABLE, name=()
    ),
    "CREATE FUNCTION s.f(x INT) RETURNS INT RETURN x": ObjectChange(
        act=ObjectAct.CREATE, kind=FUNCTION, name=("s", "f")
    ),
    "CREATE OR REPLACE FUNCTION f() RETURNS INT RETURN 1": ObjectChange(
        act=ObjectAct.CREATE, kind=FUNCTION, name=("f",), may_exist=True
    ),
    "CREATE FUNCTION IF NOT EXISTS f AS 'a.b.C'": ObjectChange(
        act=ObjectAct.CREATE, kind=FUNCTION, name=("f",), may_exist=True
    ),
    "CREATE OR REPLACE VIEW v AS SELECT 1": ObjectChange(
        act=ObjectAct.CREATE, kind=VIEW, name=("v",), may_exist=True
    ),
    "REPLACE TABLE t (x INT) USING delta": ObjectChange(
        act=ObjectAct.CREATE, kind=TABLE, name=("t",), may_exist=True
    ),
    "CREATE TEMPORARY FUNCTION f AS 'a.b.C'": None,
    "CREATE OR REPLACE TEMP VIEW v AS SELECT 1": None,
    "CREATE VIEW v AS SELECT 1": None,
    "CREATE TABLE t (x INT)": None,
    "DROP TEMPORARY FUNCTION f": None,
    "ALTER TABLE a RENAME COLUMN b TO c": None,
    "ALTER TABLE a ADD COLUMN drop INT": None,
    "SELECT 'DROP TABLE t'": None,
}


@pytest.mark.parametrize("text", CHANGES)
def test_the_object_that_a_statement_changes_is_known(text: str) -> None:
    assert facts(text).change == CHANGES[text]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SHOW SCHEMAS", ListingKind.SCHEMAS),
        ("show databases like 'a'", ListingKind.SCHEMAS),
        ("SHOW NAMESPACES", ListingKind.SCHEMAS),
        ("SHOW FUNCTIONS", ListingKind.FUNCTIONS),
        ("SHOW USER FUNCTIONS IN d", ListingKind.FUNCTIONS),
        ("SHOW COLUMNS IN t", None),
    ],
)
def test_lists_of_names_are_known(text: str, kind: ListingKind | None) -> None:
    assert facts(text).lists is kind
