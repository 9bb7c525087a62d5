"""What statements parse to, what they print, and how wrong ones are refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.sql.render import render
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.model.clauses import Expectation, Violation
from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.statements import (
    AlterRefresh,
    Cascade,
    ColumnName,
    ComputedColumn,
    CreateMaterializedTable,
    DescribeTable,
    MetadataColumn,
    PhysicalColumn,
    PrimaryKeyClause,
    RequestedMode,
    ResetOption,
    SetOption,
    ShowCreateTable,
    ShowOption,
    ShowOptions,
    SparkStatement,
)
from tidegate_server.core.sql.streams import find_stream

FIXTURES = Path(__file__).parents[2] / "sql" / "fixtures"


def lines(name: str) -> list[str]:
    return (FIXTURES / name).read_text(encoding="utf-8").splitlines()


def for_spark(text: str) -> str:
    statement = parse(text)
    assert isinstance(statement, SparkStatement)
    return statement.text


@pytest.mark.parametrize("text", lines("identity.sql"))
def test_every_form_prints_to_what_parses_the_same(text: str) -> None:
    statement = parse(text)
    assert not isinstance(statement, SparkStatement)
    assert parse(render(statement)) == statement


@pytest.mark.parametrize("line", lines("invalid.sql"))
def test_wrong_forms_are_refused_with_code_and_place(line: str) -> None:
    code, place, text = line.split(" ", 2)
    with pytest.raises(ServerError) as caught:
        parse(text)
    assert caught.value.code == code
    assert f"{caught.value.line}:{caught.value.column}:" == place


def test_a_syntax_error_names_what_was_expected() -> None:
    with pytest.raises(ServerError) as caught:
        parse("ALTER MATERIALIZED TABLE t")
    for word in ["ADD", "AS", "DROP", "MODIFY", "REFRESH", "RESET", "RESUME", "SET", "SUSPEND"]:
        assert word in caught.value.message


def test_a_syntax_error_counts_lines() -> None:
    with pytest.raises(ServerError) as caught:
        parse("-- one\nALTER MATERIALIZED TABLE t\n  SUSPEND now")
    assert (caught.value.line, caught.value.column) == (3, 11)


def create(text: str) -> CreateMaterializedTable:
    statement = parse(text)
    assert isinstance(statement, CreateMaterializedTable)
    return statement


def test_the_query_is_kept_as_written_with_its_comments() -> None:
    query = "-- why\nWITH q AS (SELECT count(*)  c FROM t1 /* ; */) SELECT c FROM q -- x"
    assert create(f"CREATE MATERIALIZED TABLE m AS {query}").query == query


def test_a_semicolon_ends_the_query() -> None:
    assert create("CREATE MATERIALIZED TABLE m AS SELECT 1 ; -- done").query == "SELECT 1"


def test_a_semicolon_inside_a_literal_does_not_end_the_query() -> None:
    assert create("CREATE MATERIALIZED TABLE m AS SELECT ';' AS a").query == "SELECT ';' AS a"


def test_all_clauses_together() -> None:
    assert create(
        "CREATE MATERIALIZED TABLE d.m (CONSTRAINT ct1 PRIMARY KEY(a) NOT ENFORCED) COMMENT 'x' "
        "PARTITIONED BY (a,d) WITH('format'='json') FRESHNESS=INTERVAL '30' SECOND "
        "REFRESH_MODE=FULL AS SELECT * FROM t1"
    ) == CreateMaterializedTable(
        name=("d", "m"),
        primary_key=PrimaryKeyClause(name="ct1", columns=("a",)),
        comment="x",
        partition_keys=("a", "d"),
        options={"format": "json"},
        freshness=Freshness(30, TimeUnit.SECOND),
        refresh_mode=RequestedMode.FULL,
        query="SELECT * FROM t1",
    )


def test_columns_of_every_kind() -> None:
    statement = create(
        "CREATE MATERIALIZED TABLE m (a STRUCT<x: INT> NOT NULL COMMENT 'c', "
        "b STRING METADATA FROM 'k' VIRTUAL, x AS f(a, b)) AS SELECT 1"
    )
    assert statement.columns == (
        PhysicalColumn(name="a", type="STRUCT<x: INT>", nullable=False, comment="c"),
        MetadataColumn(name="b", type="STRING", key="k", virtual=True),
        ComputedColumn(name="x", expression="f(a, b)"),
    )


def test_names_alone_are_an_identifier_list() -> None:
    statement = create("CREATE MATERIALIZED TABLE m (a, `b c`) AS SELECT 1")
    assert statement.columns == (ColumnName(name="a"), ColumnName(name="b c"))


def test_the_last_of_equal_option_keys_wins() -> None:
    assert create("CREATE MATERIALIZED TABLE m WITH ('k'='1','k'='2') AS SELECT 1").options == {
        "k": "2"
    }


def test_doubled_quotes_inside_a_literal_are_one_quote() -> None:
    text = "CREATE MATERIALIZED TABLE m WITH ('k'='#{between ''0'',''9''}') AS SELECT 1"
    assert create(text).options == {"k": "#{between '0','9'}"}
    text = """CREATE MATERIALIZED TABLE m COMMENT "one "" and '' two" AS SELECT 1"""
    assert create(text).comment == """one " and '' two"""


def test_slash_comments_are_skipped() -> None:
    text = "// daily\nCREATE MATERIALIZED TABLE m // name\n AS SELECT 1"
    assert create(text).name == ("m",)


def test_partition_literals_become_strings() -> None:
    assert parse("ALTER MATERIALIZED TABLE t REFRESH PARTITION (a=2023, b='x') CASCADE") == (
        AlterRefresh(name=("t",), partition={"a": "2023", "b": "x"}, cascade=Cascade.DOWNSTREAM)
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        ";",
        "-- nothing",
        "SELECT 1",
        "select 'it''s' -- CREATE MATERIALIZED TABLE",
        "CREATE TABLE t (a INT)",
        "ALTER TABLE t SUSPEND",
        "SHOW TABLES",
        "SHOW CREATE TABLE t AS SERDE",
        "SHOW CREATE TABLE IDENTIFIER('t')",
        "DESCRIBE DATABASE d",
        "DESC FUNCTION upper",
        "DESCRIBE QUERY SELECT 1",
        "DESCRIBE t a",
        "DESCRIBE t PARTITION (ds='1')",
        "DESCRIBE HISTORY t",
        "EXPLAIN SELECT 1",
        "SET TIME ZONE 'Europe/Berlin'",
        "SET CATALOG IDENTIFIER('spark_catalog')",
        "SET VARIABLE x = 1",
        "SELECT 'unfinished",
        "/* unfinished",
    ],
)
def test_what_is_not_ours_is_kept_byte_for_byte(text: str) -> None:
    assert for_spark(text) == text


def test_settings_in_both_spellings() -> None:
    assert parse("SET 'a.b' = 'c d'") == SetOption(key="a.b", value="c d")
    assert parse("set a.b = c d ;") == SetOption(key="a.b", value="c d")
    assert parse("SET spark.x=hdfs://host/a") == SetOption(key="spark.x", value="hdfs://host/a")
    assert parse("-- why\nSET a-b.c=d") == SetOption(key="a-b.c", value="d")
    assert parse("SET a.b") == ShowOption(key="a.b")
    assert parse("SET day = 2026-01-01") == SetOption(key="day", value="2026-01-01")
    assert parse("set hivevar:day=1") == SetOption(key="day", value="1")
    assert parse("SET hiveconf:spark.x=1") == SetOption(key="spark.x", value="1")
    assert parse("SET hiveconf:spark.x") == ShowOption(key="spark.x")
    assert parse("RESET a.b") == ResetOption(key="a.b")
    assert parse("RESET") == ResetOption()
    assert parse("SET") == ShowOptions()
    assert parse("set -V ;") == ShowOptions(verbose=True)


def test_comments_behind_a_setting_are_no_part_of_it() -> None:
    assert parse("SET a.b = c; -- why") == SetOption(key="a.b", value="c")
    assert parse("SET a.b // why") == ShowOption(key="a.b")
    assert parse("RESET a.b /* why */;") == ResetOption(key="a.b")
    assert parse("RESET `a``.b` // why") == ResetOption(key="a`.b")
    assert for_spark("RESET a") == "RESET a"
    assert for_spark("SET hiveconf:1.b = c") == "SET hiveconf:1.b = c"
    assert parse("-- all\nRESET; -- of them") == ResetOption()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("// one\nSELECT '\n// no', 1 // 2\nFROM t", "-- one\nSELECT '\n// no', 1 -- 2\nFROM t"),
        ("CREATE TABLE t (a INT, // key\n b INT)", "CREATE TABLE t (a INT, -- key\n b INT)"),
        ("ADD JAR\thdfs://host/a.jar", "ADD JAR\thdfs://host/a.jar"),
        ("// mine\nadd jar //host/a.jar", "-- mine\nadd jar //host/a.jar"),
        ("REFRESH hdfs://host/t", "REFRESH hdfs://host/t"),
        ("SELECT 'open // x", "SELECT 'open // x"),
        ("// nothing", "-- nothing"),
        ("EXPLAIN Plan\n FOR SELECT 1", "EXPLAIN           SELECT 1"),
    ],
)
def test_slash_comments_reach_spark_as_its_own(text: str, expected: str) -> None:
    assert for_spark(text) == expected


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("SELECT 1; SELECT 2", "1:11"),
        ("-- a;\nSELECT ';' /* ; */;\n\n -- b\n DROP TABLE t;", "5:2"),
        ("DROP MATERIALIZED TABLE m; DROP MATERIALIZED TABLE n", "1:28"),
        ("CREATE MATERIALIZED TABLE m AS SELECT 1;\nSELECT 2;", "2:1"),
        ("DESC t; SELECT 1", "1:9"),
        ("USE a; SET 'k'='v'", "1:8"),
    ],
)
def test_a_second_statement_is_refused_where_it_begins(text: str, place: str) -> None:
    with pytest.raises(ServerError) as caught:
        parse(text)
    assert caught.value.code == "PARSE_SYNTAX"
    assert f"{caught.value.line}:{caught.value.column}" == place
    assert "one statement at a time" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 ;; -- end",
        "BEGIN SELECT 1; SELECT 2; END",
        "label: BEGIN DECLARE x INT; SET x = 1; END;",
        "SELECT r'\\', ';'",
        "SELECT `;`, \";\", 'it''s;' -- ;",
        "SELECT 1 /* ; */",
    ],
)
def test_semicolons_that_separate_nothing_are_left_to_spark(text: str) -> None:
    assert for_spark(text) == text


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("CREATE MATERIALIZED TABLE m FRESHNES = INTERVAL '1' DAY AS SELECT 1", "FRESHNESS"),
        ("CREATE MATERIALIZED TABLE m PARTITION BY (a) AS SELECT 1", "PARTITIONED"),
        ("ALTER MATERIALIZED TABLE m SUPEND", "SUSPEND"),
        ("ALTER MATERIALIZED TABLE m SET REFRESHMODE = FULL", "REFRESH_MODE"),
        ("SHOW MATERIALIZED TABLE", "TABLES"),
        ("SHOW LINEAGE m COLUMN", "COLUMNS"),
        ("CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' MINUTTE AS SELECT 1", "MINUTE"),
    ],
)
def test_a_slip_of_the_pen_is_recognised(text: str, hint: str) -> None:
    with pytest.raises(ServerError) as caught:
        parse(text)
    assert caught.value.hint == f"Did you mean {hint}?"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('DROP MATERIALIZED TABLE "m"', "Names are quoted with backticks"),
        ("CREATE MATERIALIZED TABLE m ('a') AS SELECT 1 AS a", "Names are quoted with backticks"),
        ("REFRESH MATERIALIZED TABLE d.`a b`", "ALTER MATERIALIZED TABLE `d`.`a b` REFRESH."),
        ("REFRESH MATERIALIZED VIEW m", "ALTER MATERIALIZED TABLE `m` REFRESH."),
        ("REFRESH MATERIALIZED VIEW CONCURRENTLY m", "ALTER MATERIALIZED TABLE `m` REFRESH."),
        ("REFRESH DYNAMIC TABLE concurrently", "ALTER MATERIALIZED TABLE `concurrently` REFRESH."),
        ("CREATE STREAMING TABLE s AS SELECT 1", "FROM STREAM read_files('/place'"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "Write CREATE OR ALTER MATERIALIZED TABLE"),
        ("create or refresh streaming table s AS SELECT 1", "Write CREATE OR ALTER MATERIALIZED"),
        ("CREATE OR REPLACE TRANSIENT DYNAMIC TABLE d AS SELECT 1", "Write CREATE OR ALTER"),
        ("ALTER DYNAMIC TABLE d SUSPEND", "Write ALTER MATERIALIZED TABLE name."),
        ("DROP MATERIALIZED VIEW IF EXISTS v", "Write DROP MATERIALIZED TABLE name."),
        ("DESC DYNAMIC TABLE d", "Write DESCRIBE MATERIALIZED TABLE name."),
        ("SHOW CREATE MATERIALIZED VIEW v", "Write SHOW CREATE MATERIALIZED TABLE name."),
        ("GRANT SELECT ON MATERIALIZED TABLE m TO bob", "Write USER, ROLE or GROUP before"),
        ("GRANT USE SCHEMA ON SCHEMA s TO USER u", "Write USAGE."),
        ("GRANT INSERT, SELECT ON TABLE t TO USER u", "Write MODIFY"),
        ("GRANT MANAGE ON SCHEMA s TO USER u", "WITH GRANT OPTION"),
        ("GRANT CREATE TABLE ON SCHEMA s TO USER u", "write CREATE alone"),
        ("GRANT analysts TO USER u", "ROLE `analysts`"),
        ("GRANT SELECT ON ALL TABLES IN SCHEMA s TO USER u", "Write ON SCHEMA name"),
        ("GRANT SELECT (a) ON TABLE t TO USER u", "Create a view"),
        ("ALTER VIEW v OWNER TO u", "Write USER or ROLE"),
        ("SHOW ROLE GRANT USER u", "SHOW GRANTS ON ROLE name"),
        ("ALTER MATERIALIZED TABLE m ADD CONSTRAINT c EXPECT (a > 0)", "CREATE OR ALTER"),
        ("SHOW DYNAMIC TABLES", "Write SHOW MATERIALIZED TABLES."),
        ("SHOW MATERIALIZED VIEWS", "Write SHOW MATERIALIZED TABLES."),
        ("SHOW MATERIALIZED LAKE VIEWS IN lake", "Write SHOW MATERIALIZED TABLES."),
        ("CREATE OR REPLACE MATERIALIZED LAKE VIEW v AS SELECT 1", "Write CREATE OR ALTER"),
        ("REFRESH MATERIALIZED LAKE VIEW v FULL", "ALTER MATERIALIZED TABLE `v` REFRESH."),
        ("ALTER MATERIALIZED VIEW d.v REBUILD", "Write ALTER MATERIALIZED TABLE `d`.`v` REFRESH."),
        ("ALTER MATERIALIZED VIEW", "Write ALTER MATERIALIZED TABLE name."),
        ("COMMENT ON MATERIALIZED TABLE m IS 'x'", "with the COMMENT"),
        ("STOP JOB 'x' WITH SAVEPOINT", "committed with its position"),
        ("BEGIN STATEMENT SET; SELECT 1; END", "INSERT INTO"),
        ("CREATE OR ALTER MATERIALIZED TABLE IF NOT EXISTS m AS SELECT 1", "leave IF NOT EXISTS"),
        ("CREATE MATERIALIZED TABLE m TARGET_LAG = '1 hour' AS SELECT 1", "Write FRESHNESS ="),
        ("CREATE MATERIALIZED TABLE m USING delta AS SELECT 1", "leave USING out"),
        ("CREATE MATERIALIZED TABLE m TBLPROPERTIES ('a' = 'b') AS SELECT 1", "WITH ('key'"),
        (
            "CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '5 minutes' AS SELECT 1",
            "comes after the quotes",
        ),
        ("ALTER MATERIALIZED TABLE m SET TBLPROPERTIES ('a' = 'b')", "SET ('key' = 'value')"),
        ("ALTER MATERIALIZED TABLE m RENAME COLUMN a TO b", "The query names the columns"),
        ("CREATE MATERIALIZED TABLE m (CHECK (a > 0)) AS SELECT 1", "CONSTRAINT name EXPECT"),
    ],
)
def test_what_other_systems_write_is_told_in_the_words_of_this_one(text: str, hint: str) -> None:
    with pytest.raises(ServerError) as caught:
        parse(text)
    assert caught.value.code in ("PARSE_SYNTAX", "NOT_SUPPORTED")
    assert caught.value.line == 1
    assert hint in caught.value.hint


def test_clauses_out_of_order_are_told_their_order() -> None:
    with pytest.raises(ServerError) as caught:
        parse("CREATE MATERIALIZED TABLE m REFRESH_MODE = FULL COMMENT 'x' AS SELECT 1")
    assert caught.value.hint.startswith("The order of the clauses is: COMMENT")


def test_expectations_are_read_with_their_consequence() -> None:
    statement = create(
        "CREATE MATERIALIZED TABLE m (a INT, CONSTRAINT c1 EXPECT (a > 0 AND f(a, ')')), "
        "CONSTRAINT `c 2` EXPECT (a IS NOT NULL) ON VIOLATION DROP ROW, PRIMARY KEY (a) NOT "
        "ENFORCED, CONSTRAINT c3 EXPECT (a < 9) ON VIOLATION FAIL UPDATE) AS SELECT 1 AS a"
    )
    assert statement.expectations == (
        Expectation(name="c1", condition="a > 0 AND f(a, ')')"),
        Expectation(name="c 2", condition="a IS NOT NULL", violation=Violation.DROP_ROW),
        Expectation(name="c3", condition="a < 9", violation=Violation.FAIL),
    )


def test_describe_of_a_table_in_its_forms() -> None:
    assert parse("show /* x */ create table d.t") == ShowCreateTable(name=("d", "t"))
    assert parse("DESC d.t") == DescribeTable(name=("d", "t"))
    assert parse("DESCRIBE TABLE EXTENDED t") == DescribeTable(name=("t",), extended=True)
    assert parse("DESC MATERIALIZED TABLE t") == DescribeTable(name=("t",), materialized=True)


_WORDS = st.sampled_from(
    [
        "CREATE",
        "OR",
        "ALTER",
        "MATERIALIZED",
        "TABLE",
        "t",
        "(",
        ")",
        ",",
        ".",
        "=",
        ";",
        "AS",
        "SELECT",
        "SET",
        "RESET",
        "REFRESH",
        "PARTITION",
        "WITH",
        "FRESHNESS",
        "INTERVAL",
        "'1'",
        "'a'",
        "DAY",
        '"',
        "'",
        "`",
        "/*",
        "*/",
        "//",
        "--",
        "\n",
        "<",
        ">",
        "PRIMARY",
        "KEY",
        "DROP",
        "SHOW",
        "DESCRIBE",
        "EXPLAIN",
        "ADD",
        "AFTER",
        "WATERMARK",
        "FOR",
        "COMMENT",
        "\\",
        "é",
        "\x00",
        "1",
        "2.5",
        "x'00'",
        "$",
        "{",
        "}",
        "{{",
        "{%",
        ";",
    ]
)
_OURS = st.sampled_from(
    [
        "CREATE MATERIALIZED TABLE m ",
        "ALTER MATERIALIZED TABLE m ",
        "DROP MATERIALIZED TABLE ",
        "SHOW MATERIALIZED ",
        "SET ",
        "RESET ",
        "DESC ",
        "EXPLAIN REFRESH ",
        "",
    ]
)


@settings(max_examples=6 * settings().max_examples)
@given(_OURS, st.one_of(st.text(max_size=60), st.lists(_WORDS, max_size=25).map(" ".join)))
def test_any_text_is_a_statement_or_a_located_error(head: str, tail: str) -> None:
    try:
        statement = parse(head + tail)
    except ServerError as problem:
        assert problem.code in Code.__members__
        assert problem.line is not None
        assert problem.column is not None
    else:
        assert parse(render(statement)) == statement


_NAMES = st.text(min_size=1, max_size=8).filter(lambda s: "\x00" not in s)
_TEXTS = st.text(max_size=12)
_OPTIONS = st.dictionaries(_TEXTS, _TEXTS, max_size=3)


@settings(max_examples=3 * settings().max_examples)
@given(
    st.builds(
        CreateMaterializedTable,
        name=st.lists(_NAMES, min_size=1, max_size=3).map(tuple),
        query=st.sampled_from(["SELECT 1", "-- c\nSELECT ';' -- d", "WITH q AS (TABLE t) FROM q"]),
        or_alter=st.booleans(),
        columns=st.one_of(
            st.lists(st.builds(ColumnName, name=_NAMES), max_size=3).map(tuple),
            st.lists(
                st.builds(
                    PhysicalColumn,
                    name=_NAMES,
                    type=st.sampled_from(["INT", "DECIMAL(10, 2)", "MAP<STRING, ARRAY<INT>>"]),
                    nullable=st.booleans(),
                    comment=st.none() | _TEXTS,
                ),
                max_size=3,
            ).map(tuple),
        ),
        comment=st.none() | _TEXTS,
        partition_keys=st.lists(_NAMES, max_size=2).map(tuple),
        options=_OPTIONS,
        freshness=st.none()
        | st.builds(Freshness, st.integers(1, 10_000), st.sampled_from(list(TimeUnit))),
        refresh_mode=st.none() | st.sampled_from(list(RequestedMode)),
    )
)
def test_generated_statements_survive_printing(statement: CreateMaterializedTable) -> None:
    assert parse(render(statement)) == statement


def test_types_are_nested_so_deep_and_no_deeper() -> None:
    nested = "CREATE MATERIALIZED TABLE t (a {}INT{}) AS SELECT 1"
    assert parse(nested.format("ARRAY<" * 100, ">" * 100))
    with pytest.raises(ServerError) as caught:
        parse(nested.format("ARRAY<" * 101, ">" * 101))
    assert caught.value.code == Code.PARSE_SYNTAX.name
    assert "at most 100 levels" in caught.value.message


_TABLE = "CREATE MATERIALIZED TABLE t "
_SELECT = f"{_TABLE}AS SELECT "
_PARTITION = "ALTER MATERIALIZED TABLE t REFRESH PARTITION "
_LONG: dict[str, Callable[[int], str]] = {
    "columns": lambda n: f"{_TABLE}({_many(n, 'c{} INT')}) AS SELECT 1",
    "names": lambda n: f"{_TABLE}({_many(n, 'c{}')}) AS SELECT 1",
    "options": lambda n: f"{_TABLE}WITH (" + _many(n, "'k{}' = 'v'") + ") AS SELECT 1",
    "partition": lambda n: f"{_PARTITION}({_many(n, 'p{} = 1')})",
    "stream": lambda n: f"{_SELECT}* FROM STREAM rate({_many(n, 'a{} => 1')})",
    "streams": lambda n: _SELECT + "STREAM " * n,
    "select list": lambda n: f"{_SELECT}{_many(n, 'a{}')} FROM t",
    "open brackets": lambda n: _TABLE + "(" * n,
    "brackets": lambda n: _SELECT + "(" * n + "1" + ")" * n,
    "a nested type": lambda n: f"{_TABLE}(a {'ARRAY<' * n}INT{'>' * n}) AS SELECT 1",
    "a dotted name": lambda n: f"CREATE MATERIALIZED TABLE {'a.' * n}b AS SELECT 1",
    "nested comments": lambda n: "/* " * n + _SELECT + "1",
    "line comments": lambda n: "// x\n" * n + _SELECT + "1",
    "doubled quotes": lambda n: f"{_TABLE}COMMENT '" + "''" * n + "' AS SELECT 1",
    "semicolons": lambda n: "SELECT 1;" * n,
    "slips": lambda n: _TABLE + "FRESHNES " * n,
    "Spark's": lambda n: "SELECT " + "a + " * n + "1",
}


def _many(count: int, item: str) -> str:
    return ", ".join(item.format(number) for number in range(count))


@pytest.mark.parametrize("form", _LONG)
def test_four_times_the_text_is_four_times_the_work(form: str) -> None:
    once, more = (_calls(_LONG[form](count)) for count in (800, 3200))
    assert more < 5 * once


def _calls(text: str) -> int:
    """Return how many functions are called to read a statement."""
    done = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal done
        done += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        with suppress(ServerError):
            parse(text)
            find_stream(text)
    finally:
        sys.setprofile(before)
    return done
