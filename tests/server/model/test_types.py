"""Data types are taken apart by their Spark DDL text."""

from __future__ import annotations

import pytest

from tidegate_server.model.types import Column, ColumnType, Schema, TypeKind, parse_type


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
