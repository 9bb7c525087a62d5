# ruff: noqa: DTZ001  (moments without a zone are what timestamp_ntz holds)

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.wire.service import (
    TMemoryBuffer,
    accelerated_protocol,
    decode_struct,
    is_accelerated,
    ttypes,
)
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.gateway.protocol.encode import (
    encode_arrow_row_set,
    encode_row_set,
    encode_text_row_set,
    wire_size,
    with_row_set,
)

FIELDS = (
    "boolVal", "byteVal", "i16Val", "i32Val", "i64Val", "doubleVal", "stringVal", "binaryVal",
)  # fmt: skip


def encode_and_decode(spark_type: str, array: Any) -> tuple[str, list[Any]]:
    """Encode one column and read it back as a client does: the union's field and the values."""
    batch = pa.RecordBatch.from_arrays([array], names=["c"])
    schema = Schema((Column(name="c", type=spark_type),))
    row_set = decode_struct(ttypes.TRowSet, encode_row_set(schema, batch, 0))
    assert row_set.rows == []
    (column,) = row_set.columns
    (field,) = [name for name in FIELDS if getattr(column, name) is not None]
    return field, unpack(getattr(column, field), field == "stringVal")


def unpack(part: Any, text: bool) -> list[Any]:
    assert len(part.nulls) == (len(part.values) + 7) // 8
    bits = int.from_bytes(part.nulls, "little")
    assert bits >> len(part.values) == 0
    values = [v.decode() for v in part.values] if text else part.values
    return [None if bits >> i & 1 else value for i, value in enumerate(values)]


def shortest(value: float) -> float:
    return float(str(np.float32(value)))


def python_timestamp(value: datetime) -> str:
    plain = value.strftime("%H:%M:%S.%f").rstrip("0").rstrip(".")
    if not value.microsecond:
        plain = value.strftime("%H:%M:%S")
    return f"{value.date().isoformat()} {plain}"


def plain_decimal(value: Decimal) -> str:
    return format(value, "f")


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    edge = 10**precision - 1
    values = st.integers(-edge, edge) | st.sampled_from([0, 1, -1, 10, edge, -edge])
    return values.map(lambda n: Decimal(f"{n}e-{scale}") if scale else Decimal(n))


MOMENTS = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 28)) | st.datetimes(
    datetime(2020, 1, 1), datetime(2020, 1, 2)
).map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))
FLOATS = st.floats(width=32, allow_nan=False)

CASES: dict[str, tuple[str, pa.DataType, st.SearchStrategy[Any], str, Callable[[Any], Any]]] = {
    "boolean": ("boolean", pa.bool_(), st.booleans(), "boolVal", bool),
    "tinyint": ("tinyint", pa.int8(), integers(8), "byteVal", int),
    "smallint": ("smallint", pa.int16(), integers(16), "i16Val", int),
    "int": ("int", pa.int32(), integers(32), "i32Val", int),
    "bigint": ("bigint", pa.int64(), integers(64), "i64Val", int),
    "float": ("float", pa.float32(), FLOATS, "doubleVal", shortest),
    "double": ("double", pa.float64(), st.floats(allow_nan=False), "doubleVal", float),
    "string": ("string", pa.string(), st.text(), "stringVal", str),
    "large string": ("string", pa.large_string(), st.text(), "stringVal", str),
    "varchar": ("varchar(5)", pa.string(), st.text(max_size=5), "stringVal", str),
    "binary": ("binary", pa.binary(), st.binary(), "binaryVal", bytes),
    "date": ("date", pa.date32(), st.dates(), "stringVal", date.isoformat),
    "local time": ("timestamp_ntz", pa.timestamp("us"), MOMENTS, "stringVal", python_timestamp),
    "small decimal": ("decimal(10,3)", pa.decimal128(10, 3), decimals(10, 3), "stringVal",
                      plain_decimal),
    "whole decimal": ("decimal(18,0)", pa.decimal128(18, 0), decimals(18, 0), "stringVal",
                      plain_decimal),
    "fraction": ("decimal(18,18)", pa.decimal128(18, 18), decimals(18, 18), "stringVal",
                 plain_decimal),
    "wide decimal": ("decimal(38,18)", pa.decimal128(38, 18), decimals(38, 18), "stringVal",
                     plain_decimal),
    "array": ("array<int>", pa.string(), st.just("[1,null]"), "stringVal", str),
    "variant": ("variant", pa.string(), st.text(), "stringVal", str),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@given(data=st.data())
def test_every_value_null_and_slice_reads_back(case: str, data: st.DataObject) -> None:
    spark_type, arrow_type, values, field, expected = CASES[case]
    given_values = data.draw(st.lists(st.none() | values, max_size=40))
    start = data.draw(st.integers(0, len(given_values)))
    length = data.draw(st.integers(0, len(given_values) - start))
    array = pa.array(given_values, arrow_type).slice(start, length)
    wanted = [None if v is None else expected(v) for v in given_values[start : start + length]]
    assert encode_and_decode(spark_type, array) == (field, wanted)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"])
@given(moments=st.lists(st.none() | MOMENTS))
def test_instants_are_shown_in_their_columns_zone(
    zone: str, moments: list[datetime | None]
) -> None:
    instants = [None if m is None else m.replace(tzinfo=UTC) for m in moments]
    array = pa.array(instants, pa.timestamp("us", zone))
    wanted = [
        None if i is None else python_timestamp(i.astimezone(ZoneInfo(zone))) for i in instants
    ]
    assert encode_and_decode("timestamp", array) == ("stringVal", wanted)


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("+05:30", "2026-01-01 05:30:00"),
        ("-08:30:15", "2025-12-31 15:29:45"),
        ("+14", "2026-01-01 14:00:00"),
    ],
)
def test_a_zone_may_be_an_offset(zone: str, shown: str) -> None:
    array = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", zone))
    assert encode_and_decode("timestamp", array)[1] == [shown]


def test_whole_seconds_have_no_fraction_and_keep_their_zeros() -> None:
    array = pa.array([datetime(2026, 1, 1, 10, 0, 0), datetime(2026, 1, 1, 0, 0, 0, 500_000)])
    assert encode_and_decode("timestamp_ntz", array)[1] == [
        "2026-01-01 10:00:00",
        "2026-01-01 00:00:00.5",
    ]


@pytest.mark.parametrize(
    ("day", "text"),
    [
        (-719_163, "0000-12-31"),
        (-719_162, "0001-01-01"),
        (2_932_896, "9999-12-31"),
        (2_932_897, "+10000-01-01"),
        (-719_893, "-0001-01-01"),
    ],
)
def test_dates_outside_pythons_years_are_spelled_as_spark_does(day: int, text: str) -> None:
    assert encode_and_decode("date", pa.array([day, 0], pa.int32()).cast(pa.date32()))[1] == [
        text,
        "1970-01-01",
    ]


def test_timestamps_outside_pythons_years_are_spelled_as_spark_does() -> None:
    micros = pa.array([2_932_897 * 86_400_000_000 + 1, 0])
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        assert encode_and_decode("timestamp", micros.cast(kind))[1] == [
            "+10000-01-01 00:00:00.000001",
            "1970-01-01 00:00:00",
        ]
    berlin = micros.cast(pa.timestamp("us", "Europe/Berlin"))
    assert encode_and_decode("timestamp", berlin)[1][0] == "+10000-01-01 01:00:00.000001"


def test_decimals_never_take_an_exponent() -> None:
    array = pa.array([Decimal("0"), Decimal("1e-18"), None], pa.decimal128(38, 18))
    assert encode_and_decode("decimal(38,18)", array)[1] == [
        "0.000000000000000000",
        "0.000000000000000001",
        None,
    ]


def test_not_a_number_and_infinities_stay() -> None:
    for spark_type, kind in (("float", pa.float32()), ("double", pa.float64())):
        values = encode_and_decode(spark_type, pa.array([math.nan, math.inf, -math.inf], kind))[1]
        assert math.isnan(values[0])
        assert values[1:] == [math.inf, -math.inf]


def test_a_void_column_is_text_of_nulls() -> None:
    assert encode_and_decode("void", pa.nulls(3)) == ("stringVal", [None, None, None])


def test_dictionaries_are_spelled_out() -> None:
    array = pa.array(["a", "b", None, "a"]).dictionary_encode()
    assert encode_and_decode("string", array)[1] == ["a", "b", None, "a"]


def test_narrower_arrow_types_are_widened() -> None:
    assert encode_and_decode("bigint", pa.array([1, None], pa.int8())) == ("i64Val", [1, None])


def test_an_empty_result_still_has_every_column() -> None:
    schema = Schema((Column(name="a", type="int"), Column(name="b", type="date")))
    row_set = decode_struct(ttypes.TRowSet, encode_row_set(schema, None, 7))
    assert row_set.startRowOffset == 7
    assert row_set.columns[0].i32Val.values == []
    assert row_set.columns[1].stringVal.values == []


def test_many_columns_keep_their_order() -> None:
    arrays = [pa.array([n, None]) for n in range(50)]
    names = [f"c{n}" for n in range(50)]
    schema = Schema(tuple(Column(name=n, type="bigint") for n in names))
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    row_set = decode_struct(ttypes.TRowSet, encode_row_set(schema, batch, 0))
    assert [c.i64Val.values[0] for c in row_set.columns] == list(range(50))


@pytest.mark.parametrize("compressed", [False, True])
def test_arrow_rides_as_whole_streams_in_one_binary_column(compressed: bool) -> None:
    texts = ["a", None, *["c" * 100] * 50]
    batch = pa.RecordBatch.from_pydict({"n": [*range(52)], "s": texts}).slice(1)
    encoded = encode_arrow_row_set(batch, 1, compressed=compressed)
    assert (len(encoded) < 4_000) is compressed
    row_set = decode_struct(ttypes.TRowSet, encoded)
    (column,) = row_set.columns
    (stream,) = column.binaryVal.values
    assert pa.ipc.open_stream(stream).read_all().to_pylist() == batch.to_pylist()
    assert column.binaryVal.nulls == b"\0"


def test_arrow_without_rows_is_one_empty_column() -> None:
    row_set = decode_struct(ttypes.TRowSet, encode_arrow_row_set(None, 0, compressed=True))
    assert [c.binaryVal.values for c in row_set.columns] == [[]]


def test_log_lines_are_one_text_column() -> None:
    row_set = decode_struct(ttypes.TRowSet, encode_text_row_set(["a", "ü"], 3))
    assert (row_set.startRowOffset, row_set.columns[0].stringVal.values) == (
        3,
        [b"a", "ü".encode()],
    )


def test_a_row_set_is_added_to_its_response() -> None:
    head = ttypes.TFetchResultsResp(status=ttypes.TStatus(statusCode=0), hasMoreRows=True)
    buffer = TMemoryBuffer()
    head.write(accelerated_protocol(buffer))
    whole = with_row_set(buffer.getvalue(), encode_text_row_set(["x"], 0))
    response = decode_struct(ttypes.TFetchResultsResp, whole)
    assert response.hasMoreRows
    assert response.results.columns[0].stringVal.values == [b"x"]


def test_the_accelerated_reader_is_the_one_these_tests_use() -> None:
    assert is_accelerated(accelerated_protocol(TMemoryBuffer(b"")))


@pytest.mark.parametrize("case", CASES)
@given(data=st.data())
def test_the_estimate_is_near_the_real_size_and_never_far_below(
    case: str, data: st.DataObject
) -> None:
    spark_type, arrow_type, values, _, _ = CASES[case]
    array = pa.array(data.draw(st.lists(values, max_size=20)), arrow_type)
    batch = pa.RecordBatch.from_arrays([array], names=["c"])
    schema = Schema((Column(name="c", type=spark_type),))
    overhead = len(encode_row_set(schema, None, 0)) + 3
    assert len(encode_row_set(schema, batch, 0)) <= wire_size(batch) + overhead


def test_lengths_are_four_bytes_big_endian() -> None:
    batch = pa.RecordBatch.from_pydict({"c": ["abc"]})
    encoded = encode_row_set(Schema((Column(name="c", type="string"),)), batch, 0)
    assert struct.pack(">i", 3) + b"abc" in encoded


def test_sub_second_units_other_than_microseconds_are_converted() -> None:
    moment = datetime(2026, 1, 1) + timedelta(milliseconds=120)
    assert encode_and_decode("timestamp_ntz", pa.array([moment], pa.timestamp("ms")))[1] == [
        "2026-01-01 00:00:00.12"
    ]
