"""Encodes Arrow batches as TRowSet columns, a whole column at a time.

Numpy and pyarrow write the values in the format of TBinaryProtocol, big-endian and length-prefixed,
without a Python object per cell. Text equals Spark's, which Arrow's casts do not produce: fractions
of seconds are trimmed, and decimals have no exponent.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate_server.core.model.types import Schema, TypeKind, parse_type
from tidegate_server.gateway.protocol.text import date_cells, decimal_cells, timestamp_cells

_BOOL, _BYTE, _DOUBLE, _I16, _I32, _I64, _STRING, _STRUCT, _LIST = 2, 3, 4, 6, 8, 10, 11, 12, 15
_STOP: Final = b"\x00"

BOOL_COLUMN, BYTE_COLUMN, I16_COLUMN, I32_COLUMN, I64_COLUMN = 1, 2, 3, 4, 5
DOUBLE_COLUMN, STRING_COLUMN, BINARY_COLUMN = 6, 7, 8

_COLUMN_OF_KIND = {
    TypeKind.BOOLEAN: BOOL_COLUMN,
    TypeKind.TINYINT: BYTE_COLUMN,
    TypeKind.SMALLINT: I16_COLUMN,
    TypeKind.INT: I32_COLUMN,
    TypeKind.BIGINT: I64_COLUMN,
    TypeKind.FLOAT: DOUBLE_COLUMN,
    TypeKind.DOUBLE: DOUBLE_COLUMN,
    TypeKind.BINARY: BINARY_COLUMN,
}
_FIXED: dict[int, tuple[int, str, pa.DataType]] = {
    BYTE_COLUMN: (_BYTE, ">i1", pa.int8()),
    I16_COLUMN: (_I16, ">i2", pa.int16()),
    I32_COLUMN: (_I32, ">i4", pa.int32()),
    I64_COLUMN: (_I64, ">i8", pa.int64()),
    DOUBLE_COLUMN: (_DOUBLE, ">f8", pa.float64()),
}
_WIDTH = {BOOL_COLUMN: 1, BYTE_COLUMN: 1, I16_COLUMN: 2, I32_COLUMN: 4, I64_COLUMN: 8}
_WIDTH[DOUBLE_COLUMN] = 8

_COMPRESSION = "lz4" if pa.Codec.is_available("lz4") else None


def column_of(spark_type: str) -> int:
    """Return the field of TColumn for a Spark type; string is the default."""
    return _COLUMN_OF_KIND.get(parse_type(spark_type).kind, STRING_COLUMN)


def encode_row_set(schema: Schema, batch: pa.RecordBatch | None, start_row: int) -> bytes:
    """Return a whole TRowSet: one TColumn per column of ``schema``, even without a batch."""
    columns = [
        _encode_column(column_of(c.type), _column_array(batch, i)) for i, c in enumerate(schema)
    ]
    return _row_set(start_row, columns)


def encode_arrow_row_set(
    batch: pa.RecordBatch | None, start_row: int, *, compressed: bool
) -> bytes:
    """Return a whole TRowSet of one binary column: an Arrow IPC stream per batch."""
    streams = [] if batch is None or not batch.num_rows else [_ipc_stream(batch, compressed)]
    values = [part for stream in streams for part in (struct.pack(">i", len(stream)), stream)]
    nulls = bytes(len(streams))
    return _row_set(start_row, [_column(BINARY_COLUMN, _STRING, len(streams), values, nulls)])


def wire_size(batch: pa.RecordBatch) -> int:
    """Estimate the bytes of a batch in a TRowSet from its types and string offsets."""
    return sum(_wire_size(array) for array in batch.columns)


def _row_set(start_row: int, columns: list[list[Any]]) -> bytes:
    parts = [
        struct.pack(">bhq", _I64, 1, start_row),
        struct.pack(">bhbi", _LIST, 2, _STRUCT, 0),
        struct.pack(">bhbi", _LIST, 3, _STRUCT, len(columns)),
    ]
    for column in columns:
        parts.extend(column)
    parts.append(_STOP)
    return b"".join(parts)


def _column_array(batch: pa.RecordBatch | None, index: int) -> Any:
    return pa.array([], pa.string()) if batch is None else batch.column(index)


def _encode_column(column: int, array: Any) -> list[Any]:
    element, values = _encode_values(column, array)
    return _column(column, element, len(array), [values], _null_bitmap(array))


def _column(
    column: int, element: int, count: int, values: Sequence[Any], nulls: bytes
) -> list[Any]:
    """Return the parts of a TColumn, bytes or buffers."""
    return [
        struct.pack(">bh", _STRUCT, column),
        struct.pack(">bhbi", _LIST, 1, element, count),
        *values,
        struct.pack(">bhi", _STRING, 2, len(nulls)),
        nulls,
        _STOP,  # of the column's struct
        _STOP,  # of the union around it
    ]


def _encode_values(column: int, array: Any) -> tuple[int, bytes]:
    if column == BOOL_COLUMN:
        return _BOOL, _bool_bytes(array)
    if column in _FIXED:
        element, layout, arrow_type = _FIXED[column]
        return element, _fixed_bytes(array, layout, arrow_type)
    return _STRING, _text_bytes(array)


def _bool_bytes(array: Any) -> bytes:
    plain = _fill_nulls(array.cast(pa.bool_()), False)
    return bytes(plain.cast(pa.uint8()).to_numpy().tobytes())


def _fixed_bytes(array: Any, layout: str, arrow_type: pa.DataType) -> bytes:
    if array.type == pa.float32():
        array = _shortest_double(array)
    elif array.type != arrow_type:
        array = array.cast(arrow_type)
    return bytes(_fill_nulls(array, 0).to_numpy().astype(layout).tobytes())


def _shortest_double(array: Any) -> Any:
    """Return the doubles that read like the floats do: 0.1f becomes 0.1."""
    return _fill_nulls(array, 0.0).cast(pa.string()).cast(pa.float64())


def _text_bytes(array: Any) -> bytes:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _text_bytes(array.dictionary_decode())
    if pa.types.is_date(kind):
        return date_cells(array)
    if pa.types.is_timestamp(kind):
        return timestamp_cells(array)
    if pa.types.is_decimal(kind):
        return decimal_cells(array)
    return _prefix_lengths(_as_binary(array))


def _as_binary(array: Any) -> Any:
    kind = array.type
    if pa.types.is_nested(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind):
        # The engine sends these as text; anything else is shown rather than rejected.
        return pa.array([None if v is None else str(v).encode() for v in array.to_pylist()])
    if pa.types.is_null(kind):
        return pa.array([b""] * len(array), pa.binary())
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        array = array.cast(pa.binary() if pa.types.is_large_binary(kind) else pa.string())
    return array.cast(pa.binary())


def _prefix_lengths(array: Any) -> bytes:
    """Return each value after its length of four bytes."""
    if not len(array):
        return b""
    plain = _fill_nulls(array, b"")
    lengths = pc.binary_length(plain).to_numpy().astype(">i4")
    offsets = np.arange(0, 4 * len(plain) + 4, 4, dtype=np.int32)
    prefixes = pa.Array.from_buffers(
        pa.binary(), len(plain), [None, pa.py_buffer(offsets), pa.py_buffer(lengths)]
    )
    joined = pc.binary_join_element_wise(prefixes, plain, b"")
    data = joined.buffers()[2]
    return b"" if data is None else bytes(data)


def _fill_nulls(array: Any, value: Any) -> Any:
    return array.fill_null(value) if array.null_count else array


def _null_bitmap(array: Any) -> bytes:
    """Return one bit per row, lowest first, set where the value is null."""
    rows = len(array)
    size = (rows + 7) // 8
    if not array.null_count:
        return bytes(size)
    bits = np.frombuffer(array.is_null().buffers()[1], dtype=np.uint8)[:size].copy()
    if rows % 8:
        bits[-1] &= (1 << rows % 8) - 1
    return bits.tobytes()


def _ipc_stream(batch: pa.RecordBatch, compressed: bool) -> Any:
    """Return a buffer."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=_COMPRESSION if compressed else None)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _wire_size(array: Any) -> int:
    kind: Any = array.type
    rows = len(array)
    if pa.types.is_boolean(kind):
        return rows
    if pa.types.is_integer(kind) or pa.types.is_float64(kind):
        return rows * int(kind.bit_width) // 8
    if pa.types.is_float32(kind):
        return rows * 8
    if pa.types.is_decimal(kind):
        return rows * (int(kind.precision) + 7)
    if pa.types.is_date(kind):
        return rows * 14
    if pa.types.is_timestamp(kind):
        return rows * 30
    return rows * 4 + int(array.nbytes)


def encode_text_row_set(lines: list[str], start_row: int) -> bytes:
    """Return a whole TRowSet of one text column, for fetches of the log."""
    return _row_set(start_row, [_encode_column(STRING_COLUMN, pa.array(lines, pa.string()))])


def with_row_set(response: bytes, row_set: bytes) -> bytes:
    """Add field 3, ``results``, to an encoded TFetchResultsResp."""
    return b"".join((response[:-1], struct.pack(">bh", _STRUCT, 3), row_set, _STOP))
