"""Python values as TColumns with null bitmaps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import Any, Final

from tidegate.wire.service import ttypes

_MEMBERS: Final[dict[str, tuple[str, Any, Any]]] = {
    "BOOLEAN": ("boolVal", ttypes.TBoolColumn, False),
    "TINYINT": ("byteVal", ttypes.TByteColumn, 0),
    "SMALLINT": ("i16Val", ttypes.TI16Column, 0),
    "INT": ("i32Val", ttypes.TI32Column, 0),
    "BIGINT": ("i64Val", ttypes.TI64Column, 0),
    "FLOAT": ("doubleVal", ttypes.TDoubleColumn, 0.0),
    "DOUBLE": ("doubleVal", ttypes.TDoubleColumn, 0.0),
    "BINARY": ("binaryVal", ttypes.TBinaryColumn, b""),
}
_TEXT: Final = ("stringVal", ttypes.TStringColumn, b"")
_NAMES: Final = (
    "stringVal",
    "i32Val",
    "i64Val",
    "doubleVal",
    "boolVal",
    "i16Val",
    "byteVal",
    "binaryVal",
)
_BITS: Final = tuple(tuple(bool(byte >> bit & 1) for bit in range(8)) for byte in range(256))


def null_bitmap(values: Sequence[object]) -> bytes:
    """Return the bitmap of the Nones in ``values``, lowest bit first; none at all is ``b""``.

    No bit is set at or above the number of values.
    """
    bits = 0
    for position, value in enumerate(values):
        if value is None:
            bits |= 1 << position
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def encode_column(type_name: str, values: Sequence[Any]) -> Any:
    """Return the TColumn of ``values`` for a type name of TYPE_IDS.

    Text may be str or bytes already in UTF-8; types without their own member are text.
    """
    member, column_class, placeholder = _MEMBERS.get(type_name, _TEXT)
    nulls = null_bitmap(values)
    filled = [placeholder if value is None else value for value in values]
    if column_class is ttypes.TStringColumn:
        filled = [value.encode() if isinstance(value, str) else value for value in filled]
    return ttypes.TColumn(**{member: column_class(filled, nulls)})


def row_set(type_names: Sequence[str], rows: Iterable[Sequence[Any]], *, start_row: int = 0) -> Any:
    """Return the TRowSet of ``rows``: one TColumn per type, also when there is no row."""
    columns = list(zip(*rows, strict=True)) or [()] * len(type_names)
    encoded = [
        encode_column(name, values) for name, values in zip(type_names, columns, strict=True)
    ]
    return ttypes.TRowSet(startRowOffset=start_row, rows=[], columns=encoded)


def column_length(column: Any) -> int:
    """Return the number of values in a TColumn."""
    return len(_content(column).values)


def decode_column(column: Any, convert: Callable[[Any], Any] | None = None) -> list[Any]:
    """Return the values of a TColumn with None for nulls, each other one through ``convert``."""
    content = _content(column)
    values: list[Any] = content.values
    if column.stringVal is not None:
        values = decode_texts(values)
    if not content.nulls.strip(b"\0"):
        return values if convert is None else list(map(convert, values))
    flags = chain.from_iterable(map(_BITS.__getitem__, content.nulls))
    pairs = zip(values, chain(flags, repeat(False)), strict=False)
    if convert is None:
        return [None if null else value for value, null in pairs]
    return [None if null else convert(value) for value, null in pairs]


def decode_texts(values: list[bytes]) -> list[str]:
    """Return ``values`` decoded from UTF-8, with U+FFFD where they are not."""
    try:
        return [value.decode() for value in values]
    except UnicodeDecodeError:
        return [value.decode("utf-8", "replace") for value in values]


def _content(column: Any) -> Any:
    for name in _NAMES:
        content = getattr(column, name)
        if content is not None:
            return content
    raise ValueError("the column has no values: none of its members is set")
