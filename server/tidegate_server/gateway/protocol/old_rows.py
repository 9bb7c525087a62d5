"""The rows of protocols before V6, which have no columns."""

from __future__ import annotations

from typing import Any

from tidegate.wire.service import decode_struct, encode_struct, ttypes


def as_rows(row_set: bytes) -> bytes:
    """Return the rows of encoded columns, encoded."""
    columns = decode_struct(ttypes.TRowSet, row_set)
    values = [_cells(column) for column in columns.columns or ()]
    rows = [ttypes.TRow(colVals=list(cells)) for cells in zip(*values, strict=True)]
    return encode_struct(ttypes.TRowSet(startRowOffset=columns.startRowOffset, rows=rows))


def _cells(column: Any) -> list[Any]:
    field, value_class = next(
        (field, value_class)
        for field, value_class in _CELLS.items()
        if getattr(column, field) is not None
    )
    part = getattr(column, field)
    name = "stringVal" if field == "binaryVal" else field
    return [
        ttypes.TColumnValue(**{name: value_class(value=None if _is_null(part, i) else _as_text(v))})
        for i, v in enumerate(part.values)
    ]


def _is_null(part: Any, row: int) -> bool:
    return row // 8 < len(part.nulls) and bool(part.nulls[row // 8] >> row % 8 & 1)


def _as_text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


_CELLS = {
    "boolVal": ttypes.TBoolValue,
    "byteVal": ttypes.TByteValue,
    "i16Val": ttypes.TI16Value,
    "i32Val": ttypes.TI32Value,
    "i64Val": ttypes.TI64Value,
    "doubleVal": ttypes.TDoubleValue,
    "stringVal": ttypes.TStringValue,
    "binaryVal": ttypes.TStringValue,
}
