"""What the dialect writes for statements, definitions, types."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex, CreateTable, DropIndex, SetColumnComment, SetTableComment

from tidegate_sqlalchemy import (
    ARRAY,
    INTERVAL,
    MAP,
    STRUCT,
    TIMESTAMP_NTZ,
    TINYINT,
    TidegateDialect,
)

DIALECT = TidegateDialect(paramstyle="pyformat")
METADATA = sa.MetaData()
TABLE = sa.Table(
    "t",
    METADATA,
    sa.Column("a", sa.Integer),
    sa.Column("b", sa.String),
    sa.Column("d", sa.Date),
    sa.Column("n", sa.Numeric(10, 2)),
)


def sql(element: Any, *, literals: bool = True) -> str:
    compiled = element.compile(dialect=DIALECT, compile_kwargs={"literal_binds": literals})
    return " ".join(str(compiled).split())


def ddl(element: Any) -> str:
    return " ".join(str(element.compile(dialect=DIALECT)).split())


def test_names_are_quoted_with_backticks() -> None:
    column = sa.column("a`b")
    assert sql(sa.select(column)) == "SELECT `a``b`"


def test_reserved_words_are_quoted() -> None:
    assert sql(sa.select(sa.table("order", sa.column("x")))).startswith("SELECT `order`.x")


def test_each_part_of_a_catalog_and_schema_is_quoted() -> None:
    table = sa.table("t", sa.column("x"), schema="Cat.select")
    assert sql(sa.select(table)) == "SELECT `Cat`.`select`.t.x FROM `Cat`.`select`.t"


def test_limit_and_offset_are_written_as_spark_reads_them() -> None:
    query = sa.select(TABLE.c.a)
    assert sql(query.limit(5).offset(2)).endswith("LIMIT 5 OFFSET 2")
    assert sql(query.offset(2)).endswith("FROM t OFFSET 2")


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        ("it's", r"'it\'s'"),
        ("a\\b", r"'a\\b'"),
        ("50%", "'50%%'"),
        (b"\x00\xff", "X'00FF'"),
        (datetime.date(2024, 1, 2), "DATE '2024-01-02'"),
        (datetime.datetime(2024, 1, 2, 3, 4, 5), "TIMESTAMP '2024-01-02 03:04:05'"),  # noqa: DTZ001
        (True, "true"),
    ],
)
def test_literals_read_back_as_the_value(value: object, literal: str) -> None:
    assert sql(sa.select(sa.literal(value))).startswith(f"SELECT {literal} AS")


def test_a_null_test_and_an_empty_list_need_no_table() -> None:
    assert "IN (NULL) AND (1 != 1)" in sql(sa.select(TABLE.c.a).where(TABLE.c.a.in_([])))


def test_regular_expressions_use_rlike() -> None:
    query = sa.select(TABLE.c.a).where(TABLE.c.b.regexp_match("^x"))
    assert sql(query).endswith("WHERE t.b RLIKE '^x'")
    negated = sa.select(TABLE.c.a).where(~TABLE.c.b.regexp_match("^x"))
    assert sql(negated).endswith("WHERE t.b NOT RLIKE '^x'")


def test_division_stays_true_division() -> None:
    assert sql(sa.select(TABLE.c.a / 2)).startswith("SELECT t.a / 2 AS")


def test_an_insert_of_several_rows_is_one_statement() -> None:
    statement = sa.insert(TABLE).values([{"a": 1}, {"a": 2}])
    assert sql(statement, literals=False) == "INSERT INTO t (a) VALUES (%(a_m0)s), (%(a_m1)s)"


def test_an_update_across_tables_is_refused() -> None:
    other = sa.table("o", sa.column("a"))
    statement = sa.update(TABLE).values(b="x").where(TABLE.c.a == other.c.a)
    with pytest.raises(sa.exc.CompileError, match="MERGE INTO"):
        sql(statement)


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (sa.Integer(), "INT"),
        (sa.BigInteger(), "BIGINT"),
        (TINYINT(), "TINYINT"),
        (sa.Float(), "DOUBLE"),
        (sa.Float(24), "FLOAT"),
        (sa.REAL(), "FLOAT"),
        (sa.Double(), "DOUBLE"),
        (sa.Numeric(), "DECIMAL(38, 18)"),
        (sa.Numeric(5), "DECIMAL(5, 0)"),
        (sa.Numeric(10, 2), "DECIMAL(10, 2)"),
        (sa.String(), "STRING"),
        (sa.String(20), "VARCHAR(20)"),
        (sa.Text(), "STRING"),
        (sa.Unicode(5), "VARCHAR(5)"),
        (sa.CHAR(3), "CHAR(3)"),
        (sa.Boolean(), "BOOLEAN"),
        (sa.Date(), "DATE"),
        (sa.DateTime(), "TIMESTAMP"),
        (sa.TIMESTAMP(timezone=True), "TIMESTAMP"),
        (TIMESTAMP_NTZ(), "TIMESTAMP_NTZ"),
        (sa.LargeBinary(), "BINARY"),
        (sa.Uuid(), "STRING"),
        (sa.JSON(), "STRING"),
        (sa.Enum("a", "b"), "STRING"),
        (INTERVAL("YEAR TO MONTH"), "INTERVAL YEAR TO MONTH"),
        (ARRAY(sa.Integer), "ARRAY<INT>"),
        (sa.ARRAY(sa.Integer, dimensions=2), "ARRAY<ARRAY<INT>>"),
        (MAP(sa.String, sa.Float), "MAP<STRING, DOUBLE>"),
        (STRUCT(("a", sa.Integer), ("b c", sa.Date)), "STRUCT<a: INT, `b c`: DATE>"),
    ],
)
def test_a_type_is_cast_by_its_name_in_spark(type_: Any, text: str) -> None:
    assert sql(sa.cast(sa.column("x"), type_)) == f"CAST(x AS {text})"


def test_a_table_is_created_with_sparks_clauses() -> None:
    table = sa.Table(
        "t",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("ds", sa.String, comment="the day's partition"),
        comment="facts",
        schema="s",
        tidegate_using="delta",
        tidegate_partitioned_by="ds",
        tidegate_location="/data/t",
        tidegate_properties={"delta.enableChangeDataFeed": "true"},
    )
    assert ddl(CreateTable(table)) == (
        r"CREATE TABLE s.t ( id INT NOT NULL, ds STRING COMMENT 'the day\'s partition' ) "
        "USING delta PARTITIONED BY (ds) LOCATION '/data/t' COMMENT 'facts' "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )


def test_keys_are_left_out_of_a_table_definition() -> None:
    table = sa.Table(
        "t",
        sa.MetaData(),
        sa.Column("a", sa.Integer, primary_key=True),
        sa.Column("b", sa.Integer, sa.ForeignKey("o.x"), unique=True),
    )
    assert ddl(CreateTable(table)) == "CREATE TABLE t ( a INT NOT NULL, b INT )"


def test_comments_are_changed_by_their_own_statements() -> None:
    table = sa.Table("t", sa.MetaData(), sa.Column("a", sa.Integer, comment="x"), comment="y")
    assert ddl(SetTableComment(table)) == "COMMENT ON TABLE t IS 'y'"
    assert ddl(SetColumnComment(table.c.a)) == "ALTER TABLE t ALTER COLUMN a COMMENT 'x'"


def test_an_empty_list_of_tuples_is_a_query_without_rows() -> None:
    pair = sa.tuple_(TABLE.c.a, TABLE.c.b)
    query = sa.select(TABLE.c.a).where(pair.in_([]))
    assert sql(query).endswith("WHERE (t.a, t.b) IN (SELECT NULL, NULL WHERE 1 != 1)")


def test_an_index_is_left_out_with_a_warning() -> None:
    table = sa.Table("t", sa.MetaData(), sa.Column("a", sa.Integer))
    index = sa.Index("i", table.c.a)
    with pytest.warns(sa.exc.SAWarning, match="no indexes: i was not created"):
        assert ddl(CreateIndex(index)) == ""
    assert ddl(DropIndex(index)) == ""


def test_statements_can_be_cached() -> None:
    assert DIALECT.supports_statement_cache
    assert sa.cast(TABLE.c.a, ARRAY(sa.Integer))._generate_cache_key() is not None
