"""Python values as TColumns with null bitmaps."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.wire import columns
from tidegate.wire.service import decode_struct, encode_struct, ttypes

_nullable = st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)))
_BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.floats(allow_nan=False),
    "STRING": st.text(),
    "BINARY": st.binary(),
    "DECIMAL": st.text(string.digits),
}


@given(_nullable)
def test_the_bitmap_has_a_bit_for_each_null_and_no_other(values: list[int | None]) -> None:
    bits = int.from_bytes(columns.null_bitmap(values), "little")
    flags = [bool(bits >> place & 1) for place in range(len(values))]
    assert flags == [value is None for value in values]


@given(_nullable)
def test_the_bitmap_has_no_bit_at_or_above_the_row_count(values: list[int | None]) -> None:
    assert int.from_bytes(columns.null_bitmap(values), "little") < 2 ** len(values)


@given(_nullable, st.integers(0, 9))
def test_trailing_zero_bytes_of_a_bitmap_change_nothing(
    values: list[int | None], extra: int
) -> None:
    column = columns.encode_column("BIGINT", values)
    column.i64Val.nulls += bytes(extra)
    assert columns.decode_column(column) == values


def test_bits_count_from_the_lowest() -> None:
    assert columns.null_bitmap([None, 1, 2, None, 4, 5, 6, 7, None]) == b"\x09\x01"


@pytest.mark.parametrize("type_name", sorted(_BY_TYPE))
def test_values_come_back_as_they_went(type_name: str) -> None:
    @given(st.lists(st.one_of(st.none(), _BY_TYPE[type_name])))
    def check(values: list[Any]) -> None:
        sent = encode_struct(columns.encode_column(type_name, values))
        assert columns.decode_column(decode_struct(ttypes.TColumn, sent)) == values

    check()


def test_a_null_is_never_converted() -> None:
    column = columns.encode_column("DECIMAL", ["1", None, "2"])
    assert columns.decode_column(column, int) == [1, None, 2]


def test_every_value_of_a_column_without_nulls_is_converted() -> None:
    assert columns.decode_column(columns.encode_column("STRING", ["1", "2"]), int) == [1, 2]


def test_text_that_is_not_utf8_is_kept_with_replacement_characters() -> None:
    column = columns.encode_column("STRING", [b"ok", b"\xff\xfe"])
    assert columns.decode_column(column) == ["ok", "\ufffd\ufffd"]


def test_a_row_set_without_rows_still_has_its_columns() -> None:
    row_set = columns.row_set(["INT", "STRING"], [])
    assert [columns.column_length(column) for column in row_set.columns] == [0, 0]
    assert row_set.rows == []


def test_a_column_without_values_is_refused() -> None:
    with pytest.raises(ValueError, match="none of its members"):
        columns.decode_column(ttypes.TColumn())
