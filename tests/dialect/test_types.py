"""Spark type strings become SQLAlchemy types."""

from __future__ import annotations

import enum

import pytest
from sqlalchemy import types as sqltypes

from tidegate_sqlalchemy import ARRAY, MAP, STRUCT, TidegateDialect, parse_type

DIALECT = TidegateDialect(paramstyle="pyformat")


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("boolean", "BOOLEAN"),
        ("tinyint", "TINYINT"),
        ("INT", "INT"),
        ("bigint", "BIGINT"),
        ("float", "FLOAT"),
        ("double", "DOUBLE"),
        ("decimal", "DECIMAL(10, 0)"),
        ("decimal(12)", "DECIMAL(12, 0)"),
        ("DECIMAL(10,2)", "DECIMAL(10, 2)"),
        ("string", "STRING"),
        ("string collate UTF8_LCASE", "STRING"),
        ("varchar(7)", "VARCHAR(7)"),
        ("char(7)", "CHAR(7)"),
        ("binary", "BINARY"),
        ("date", "DATE"),
        ("timestamp", "TIMESTAMP"),
        ("timestamp_ntz", "TIMESTAMP_NTZ"),
        ("interval day to second", "INTERVAL DAY TO SECOND"),
        ("INTERVAL_YEAR_MONTH", "INTERVAL YEAR TO MONTH"),
        ("variant", "VARIANT"),
        ("array<int>", "ARRAY<INT>"),
        ("ARRAY<MAP<STRING,DECIMAL(3,1)>>", "ARRAY<MAP<STRING, DECIMAL(3, 1)>>"),
        ("struct<a:int,`b,``c`:array<date>>", "STRUCT<a: INT, `b,``c`: ARRAY<DATE>>"),
        ("STRUCT<a: INT NOT NULL, b: STRING>", "STRUCT<a: INT, b: STRING>"),
    ],
)
def test_a_type_string_is_understood(text: str, printed: str) -> None:
    assert DIALECT.type_compiler_instance.process(parse_type(text)) == printed


@pytest.mark.parametrize("text", ["hyperloglog", "array<int", "decimal(x)", "int int", ""])
def test_an_unknown_type_is_null_type_with_a_warning(text: str) -> None:
    with pytest.warns(Warning, match="Did not recognize type"):
        assert isinstance(parse_type(text), sqltypes.NullType)


def test_a_nested_type_without_arguments_keeps_its_kind() -> None:
    assert isinstance(parse_type("ARRAY"), ARRAY)
    assert isinstance(parse_type("MAP"), MAP)
    assert isinstance(parse_type("STRUCT"), STRUCT)


def test_nested_values_are_read_from_json_text_and_left_alone_otherwise() -> None:
    process = ARRAY(sqltypes.Integer).result_processor(DIALECT, None)
    assert process("[1, null]") == [1, None]
    assert process([1]) == [1]
    assert process(None) is None


def test_an_enum_is_text_that_spark_reads() -> None:
    kind = sqltypes.Enum("it's", "other", name="kind").dialect_impl(DIALECT)
    assert DIALECT.type_compiler_instance.process(kind) == "STRING"
    assert kind.literal_processor(DIALECT)("it's") == r"'it\'s'"


def test_an_enum_of_a_class_is_stored_by_name() -> None:
    class Color(enum.Enum):
        RED = 1

    kind = sqltypes.Enum(Color).dialect_impl(DIALECT)
    assert kind.bind_processor(DIALECT)(Color.RED) == "RED"
    assert kind.result_processor(DIALECT, None)("RED") is Color.RED
