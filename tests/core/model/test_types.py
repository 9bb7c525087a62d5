"""Data types are taken apart by their Spark DDL text."""

from __future__ import annotations

import pytest

from tidegate_server.core.model.types import (
    Column,
    ColumnType,
    Schema,
    TypeKind,
    TypePart,
    castable_type,
    parse_type,
    parts_of,
    plain_type,
    spark_type,
    unknown_type,
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("int", TypeKind.INT),
        ("INTEGER", TypeKind.INT),
        ("long", TypeKind.BIGINT),
        ("array<decimal(10,2)>", TypeKind.ARRAY),
        ("map<string,int>", TypeKind.MAP),
        ("struct<a:int,b:array<string>>", TypeKind.STRUCT),
        ("interval", TypeKind.INTERVAL),
        ("interval day to second", TypeKind.INTERVAL_DAY_TIME),
        ("interval hour", TypeKind.INTERVAL_DAY_TIME),
        ("interval month", TypeKind.INTERVAL_YEAR_MONTH),
        ("timestamp_ntz", TypeKind.TIMESTAMP_NTZ),
        ("variant", TypeKind.VARIANT),
        ("void", TypeKind.VOID),
        ("geometry(4326)", TypeKind.OTHER),
    ],
)
def test_the_kind_is_read_from_the_ddl_text(text: str, kind: TypeKind) -> None:
    assert parse_type(text).kind is kind


def test_decimals_carry_precision_and_scale() -> None:
    assert parse_type("decimal(12, 3)") == ColumnType(
        TypeKind.DECIMAL, "decimal(12, 3)", precision=12, scale=3
    )


def test_a_bare_decimal_is_sparks_default() -> None:
    found = parse_type("DECIMAL")
    assert (found.precision, found.scale) == (10, 0)


def test_char_and_varchar_carry_their_length() -> None:
    assert parse_type("varchar(20)").length == 20
    assert parse_type("char(3)").length == 3


def test_columns_are_found_without_regard_to_case() -> None:
    schema = Schema((Column(name="Day", type="date"),))
    assert schema.find("dAY") is schema.columns[0]
    assert schema.find("month") is None


@pytest.mark.parametrize(
    "text",
    [
        *(kind.value for kind in TypeKind if kind is not TypeKind.OTHER),
        "INTEGER",
        " Decimal(10, 2) ",
        "dec",
        "VARCHAR(255)",
        "TIMESTAMP(3) WITH LOCAL TIME ZONE",
        "string COLLATE UTF8_LCASE",
        "interval day to second",
        "ARRAY<MAP<STRING, DECIMAL(10, 2)>>",
        "STRUCT<a: INT, `b c` STRUCT<d: STRING NOT NULL COMMENT 'x, y <z'>>",
        "struct<map: int, nosuch: array<int>>",
        "STRUCT<>",
    ],
)
def test_types_of_spark_are_known(text: str) -> None:
    assert unknown_type(text) is None


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("TIMESTAMP(3)", "TIMESTAMP"),
        ("timestamp ( 6 )", "timestamp"),
        ("TIMESTAMP", "TIMESTAMP"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP_LTZ"),
        ("TIMESTAMP WITHOUT TIME ZONE", "TIMESTAMP_NTZ"),
        ("BYTES", "BINARY"),
        ("VARBINARY(16)", "BINARY"),
        ("DOUBLE PRECISION", "DOUBLE"),
        ("VARCHAR(2147483647)", "STRING"),
        ("VARCHAR(10)", "VARCHAR(10)"),
        ("DECIMAL(10, 2)", "DECIMAL(10, 2)"),
        ("ARRAY<BYTES>", "ARRAY<BINARY>"),
        ("MAP<STRING, ROW<a INT, b BYTES>>", "MAP<STRING, STRUCT<a INT, b BINARY>>"),
        (
            "ROW<bytes: INT, `row, <` TIMESTAMP(3) NOT NULL COMMENT 'BYTES, <z'>",
            "STRUCT<bytes: INT, `row, <` TIMESTAMP NOT NULL COMMENT 'BYTES, <z'>",
        ),
    ],
)
def test_types_of_flink_are_put_in_spark_s_words(text: str, spelled: str) -> None:
    assert spark_type(text) == spelled
    assert spark_type(spelled) == spelled


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("INT", "integer"),
        ("DECIMAL(10, 2)", "decimal(10,2)"),
        ("STRUCT<a INT, `b` STRING COMMENT 'x, <y'>", "struct<a:int,b:string>"),
        ("STRUCT<a: INT NOT NULL COMMENT 'x'>", "struct<a:int>"),
        ("ARRAY <INT>", "array<int>"),
        ("MAP<STRING, ARRAY<STRUCT<x BIGINT>>>", "map<string,array<struct<x:long>>>"),
        ("interval day to second", "INTERVAL DAY TO SECOND"),
    ],
)
def test_one_type_spelled_in_two_ways_is_the_same(one: str, other: str) -> None:
    assert plain_type(one) == plain_type(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("INT", "BIGINT"),
        ("DECIMAL(10, 2)", "DECIMAL(10, 3)"),
        ("STRUCT<a: INT>", "STRUCT<b: INT>"),
        ("ARRAY<INT>", "ARRAY<BIGINT>"),
        ("interval day", "interval year"),
        ("struct<\u01c20\u01c2: int>", "struct<\u01c21\u01c2: int>"),
    ],
)
def test_other_types_are_told_apart(one: str, other: str) -> None:
    assert plain_type(one) != plain_type(other)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("NOSUCHTYPE", "NOSUCHTYPE"),
        ("varchr(3)", "varchr"),
        ("null", "null"),
        ("ARRAY<Wrong>", "Wrong"),
        ("MAP<STRING, ARRAY<wrong>>", "wrong"),
        ("STRUCT<a: INT, b: NOPE COMMENT 'INT'>", "NOPE"),
        ("struct<int: int, `a` bigger>", "bigger"),
    ],
)
def test_the_first_word_that_is_no_type_is_told(text: str, word: str) -> None:
    assert unknown_type(text) == word


def test_nested_types_are_taken_apart() -> None:
    text = "STRUCT<a: INT NOT NULL COMMENT 'x, y', `b c`: ARRAY<STRUCT<d: CHAR(2) NOT NULL>>>"
    assert parts_of(text) == (
        TypePart("a", "INT", nullable=False),
        TypePart("b c", "ARRAY<STRUCT<d: CHAR(2) NOT NULL>>", nullable=True),
    )
    assert [each.type for each in parts_of("MAP<STRING, INT>")] == ["STRING", "INT"]
    assert parts_of("DECIMAL(10, 2)") == ()
    assert castable_type(text) == "STRUCT<`a`: INT, `b c`: ARRAY<STRUCT<`d`: CHAR(2)>>>"
    assert castable_type("STRUCT<a: INT>") == "STRUCT<a: INT>"
