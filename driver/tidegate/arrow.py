"""Arrow tables from the wire as Python values; the only module that imports pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from importlib.util import find_spec
from itertools import repeat
from sys import byteorder
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import DataError
from tidegate.rows import rows_of
from tidegate.types import CONVERTERS
from tidegate.wire.schema import WireColumn, WireType

_HAS_NUMPY: Final = find_spec("numpy") is not None
_NUMBERS: Final = frozenset({pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64()})
_INT64_DIGITS: Final = 18
_EXACT: Final = Context(prec=2 * _INT64_DIGITS)
"""Does not round, whatever the context of the thread."""

_ARROW_TYPES: Final[dict[str, Any]] = {
    "NULL": pa.null(),
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
}
_PARSED: Final = frozenset({"DECIMAL", "DATE", "TIMESTAMP"})


def read_streams(streams: Sequence[bytes]) -> pa.Table | None:
    """Return the rows of zero or more Arrow IPC streams, None if there is no stream."""
    tables = [pa.ipc.open_stream(stream).read_all() for stream in streams]
    return pa.concat_tables(tables) if tables else None


def table_rows(table: pa.Table, columns: Sequence[WireColumn]) -> list[tuple[Any, ...]]:
    """Return the rows of ``table`` as tuples of Python values.

    A timestamp with a zone becomes a naive datetime in the zone of the session, as Hive's text
    of it is.

    :raises DataError: if a date or timestamp is outside of Python's years.
    """
    values = [
        _column_values(chunks, column.type)
        for chunks, column in zip(table.columns, columns, strict=True)
    ]
    return rows_of(values)


def _column_values(column: pa.ChunkedArray, wire_type: WireType) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        local = _local(column, wire_type).cast(pa.timestamp("us"))
        return _in_python_years(local, wire_type.name)
    if pa.types.is_date(kind):
        return _in_python_years(column, wire_type.name)
    if pa.types.is_float32(kind):
        # 1.1 and not 1.100000023841858: the shortest text that means the same, as Thrift has it.
        return list(column.cast(pa.string()).cast(pa.float64()).to_pylist())
    if pa.types.is_decimal(kind) and _HAS_NUMPY:
        return _decimals(column)
    if _HAS_NUMPY and not column.null_count and kind in _NUMBERS:
        return list(column.to_numpy().tolist())
    values: list[Any] = column.to_pylist()
    convert = CONVERTERS.get(wire_type.name) if _is_text(kind) else None
    if convert is None:
        return values
    return [None if value is None else convert(value) for value in values]


def _decimals(column: pa.ChunkedArray) -> list[Any]:
    """Return decimals several times as fast as to_pylist, which builds each from a scalar."""
    kind = column.type
    if kind.bit_width != 128 or kind.precision > _INT64_DIGITS or byteorder != "little":
        return list(column.to_numpy(zero_copy_only=False).tolist())
    import numpy as np

    found: list[Any] = []
    exponent = Decimal(-kind.scale)
    for chunk in column.chunks:
        # So few digits fit into the low half of each value.
        halves = np.frombuffer(chunk.buffers()[1], dtype="<i8")
        low = halves[2 * chunk.offset : 2 * (chunk.offset + len(chunk)) : 2].tolist()
        values = map(_EXACT.scaleb, low, repeat(exponent))
        if chunk.null_count:
            valid = chunk.is_valid().to_pylist()
            found += [value if there else None for value, there in zip(values, valid, strict=True)]
        else:
            found += values
    return found


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string())


def _local(column: pa.ChunkedArray, wire_type: WireType) -> pa.ChunkedArray:
    if column.type.tz is None:
        return column
    zone = wire_type.zone or column.type.tz
    if zone in ("UTC", "Etc/UTC", "Z", "+00:00"):
        return column.cast(pa.timestamp(column.type.unit))
    try:
        return pc.local_timestamp(column.cast(pa.timestamp(column.type.unit, tz=zone)))
    except pa.ArrowInvalid as error:
        raise DataError(
            f"the time zone {zone} is not known here: {error}",
            hint="Install the operating system's time zone data (tzdata).",
        ) from error


def _in_python_years(column: pa.ChunkedArray, type_name: str) -> list[Any]:
    try:
        if not _HAS_NUMPY:
            return list(column.to_pylist())
        # As numpy's datetime64, whose tolist is thirty times as fast as to_pylist. Outside of
        # Python's years it answers plain numbers instead of failing.
        values = list(column.to_numpy(zero_copy_only=False).tolist())
        pc.min_max(column).as_py()
    except (ValueError, OverflowError) as error:
        raise DataError(
            f"a {type_name} is outside of Python's years 1 to 9999",
            sqlstate="22008",
            hint="Select it as CAST(... AS STRING).",
        ) from error
    return values


def empty_table(columns: Sequence[WireColumn]) -> pa.Table:
    """Return a table without rows whose types are the natural ones of ``columns``."""
    return table_of([[] for _ in columns], columns)


def table_of(values: Sequence[list[Any]], columns: Sequence[WireColumn]) -> pa.Table:
    """Return decoded columns as a table, as a server that knows Arrow would have sent it.

    ``values`` are as Thrift carries them: numbers, bytes, and text for everything else.
    """
    arrays = [_array(items, column.type) for items, column in zip(values, columns, strict=True)]
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])


def _array(values: list[Any], wire_type: WireType) -> pa.Array:
    if wire_type.name == "DECIMAL":
        kind = pa.decimal128(wire_type.precision or 38, wire_type.scale or 0)
    else:
        kind = _ARROW_TYPES.get(wire_type.name, pa.string())
    if wire_type.name in _PARSED:
        convert = CONVERTERS[wire_type.name]
        values = [None if value is None else convert(value) for value in values]
    return pa.array(values, kind)
