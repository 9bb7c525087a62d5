"""Values as Flink's JSON format and its SQL client write them."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidegate_server.core.model.types import Column, Schema
from tidegate_server.gateway.rest.flink.values import RowFormat, rows_of

BERLIN = "Europe/Berlin"
INSTANT = datetime(2024, 1, 1, 9, 30, 0, 250000, tzinfo=UTC)


def cell(value: Any, spark: str, arrow: pa.DataType, form: RowFormat) -> Any:
    batch = pa.RecordBatch.from_arrays([pa.array([value, None], arrow)], names=["c"])
    first, second = rows_of(Schema((Column(name="c", type=spark),)), batch, form, BERLIN)
    assert second == {"kind": "INSERT", "fields": (None,)}
    assert first["kind"] == "INSERT"
    return first["fields"][0]


@pytest.mark.parametrize(
    ("value", "spark", "arrow", "json", "text"),
    [
        (True, "boolean", pa.bool_(), True, "TRUE"),
        (7, "int", pa.int32(), 7, "7"),
        (2**63 - 1, "bigint", pa.int64(), 2**63 - 1, str(2**63 - 1)),
        (0.1, "float", pa.float32(), 0.1, "0.1"),
        (1e10, "double", pa.float64(), 1e10, "1.0E10"),
        (-1.5e-7, "double", pa.float64(), -1.5e-7, "-1.5E-7"),
        (0.0, "double", pa.float64(), 0.0, "0.0"),
        (9999999.5, "double", pa.float64(), 9999999.5, "9999999.5"),
        (math.nan, "double", pa.float64(), "NaN", "NaN"),
        (-math.inf, "float", pa.float32(), "-Infinity", "-Infinity"),
        (Decimal("1.50"), "decimal(10,2)", pa.decimal128(10, 2), Decimal("1.50"), "1.50"),
        (Decimal("1E-7"), "decimal(16,7)", pa.decimal128(16, 7), "0.0000001", "0.0000001"),
        (
            Decimal("12345678901234567890.5"),
            *("decimal(21,1)", pa.decimal128(21, 1)),
            *("12345678901234567890.5", "12345678901234567890.5"),
        ),
        ("x", "string", pa.string(), "x", "x"),
        (b"\x00\xff", "binary", pa.binary(), "AP8=", "x'00ff'"),
        (date(2024, 2, 29), "date", pa.date32(), "2024-02-29", "2024-02-29"),
        (
            *(
                datetime.fromisoformat("2024-01-01 00:00:00.25"),
                "timestamp_ntz",
                pa.timestamp("us"),
            ),
            *("2024-01-01T00:00:00.25", "2024-01-01 00:00:00.250000"),
        ),
        (
            *(datetime.fromisoformat("1969-12-31 23:59:59"), "timestamp_ntz", pa.timestamp("us")),
            *("1969-12-31T23:59:59", "1969-12-31 23:59:59.000000"),
        ),
        (
            *(INSTANT, "timestamp", pa.timestamp("us", BERLIN)),
            *("2024-01-01T09:30:00.25Z", "2024-01-01 10:30:00.250000"),
        ),
        (
            *("-1 02:03:04.500000000", "interval day to second", pa.string()),
            *(-93784500, "-1 02:03:04.500"),
        ),
        (
            *("0 00:00:00.000001000", "interval day to second", pa.string()),
            *(0, "+0 00:00:00.000001"),
        ),
        ("1-02", "interval year to month", pa.string(), 14, "+1-02"),
        ("-0-3", "interval month", pa.string(), -3, "-0-03"),
        ('{"a":1}', "variant", pa.string(), '{"a":1}', '{"a":1}'),
        ("[1,null]", "array<int>", pa.string(), [1, None], "[1, NULL]"),
        ('{"1":"v"}', "map<int,string>", pa.string(), {"1": "v"}, "{1=v}"),
        (
            *('{"k":null,"s":"x"}', "struct<k: int, s: string>", pa.string()),
            *({"k": None, "s": "x"}, "(NULL, x)"),
        ),
        (
            '[{"t":"2024-01-01 10:30:00.25","n":"2024-01-01 10:30:00"}]',
            "array<struct<t: timestamp, n: timestamp_ntz>>",
            pa.string(),
            [{"t": "2024-01-01T09:30:00.25Z", "n": "2024-01-01T10:30:00"}],
            "[(2024-01-01 10:30:00.25, 2024-01-01 10:30:00)]",
        ),
        (
            '{"d":12345678901234567.5,"b":"AP8=","f":"NaN","i":"1 00:00:00.000000000"}',
            "struct<d: decimal(18,1), b: binary, f: double, i: interval day to second>",
            pa.string(),
            {"d": "12345678901234567.5", "b": "AP8=", "f": "NaN", "i": 86400000},
            "(12345678901234567.5, x'00ff', NaN, +1 00:00:00.000)",
        ),
    ],
)
def test_a_value_is_written_as_in_flink(
    value: Any, spark: str, arrow: pa.DataType, json: Any, text: str
) -> None:
    assert cell(value, spark, arrow, RowFormat.JSON) == json
    assert cell(value, spark, arrow, RowFormat.PLAIN_TEXT) == text


def test_a_year_beyond_pythons_has_the_sign_that_java_needs() -> None:
    day = pa.array([3_000_000], pa.int32()).view(pa.date32())
    batch = pa.RecordBatch.from_arrays([day], names=["c"])
    schema = Schema((Column(name="c", type="date"),))
    [row] = rows_of(schema, batch, RowFormat.JSON, "UTC")
    assert row["fields"] == ("+10183-09-21",)


def test_a_page_without_rows_is_empty() -> None:
    assert rows_of(Schema((Column(name="c", type="int"),)), None, RowFormat.JSON, "UTC") == []
