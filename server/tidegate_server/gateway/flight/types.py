"""The Arrow types of columns, as results have them; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from tidegate_server.core.model.types import Schema, TypeKind, parse_type

_TYPES: Final[Mapping[TypeKind, pa.DataType]] = {
    TypeKind.VOID: pa.null(),
    TypeKind.BOOLEAN: pa.bool_(),
    TypeKind.TINYINT: pa.int8(),
    TypeKind.SMALLINT: pa.int16(),
    TypeKind.INT: pa.int32(),
    TypeKind.BIGINT: pa.int64(),
    TypeKind.FLOAT: pa.float32(),
    TypeKind.DOUBLE: pa.float64(),
    TypeKind.BINARY: pa.binary(),
    TypeKind.DATE: pa.date32(),
    TypeKind.TIMESTAMP_NTZ: pa.timestamp("us"),
}


def arrow_type(text: str, zone: str) -> pa.DataType:
    """Return the type of a column; nested values and intervals are texts.

    :param zone: the time zone of the session.
    """
    kind = parse_type(text)
    if kind.kind is TypeKind.DECIMAL:
        return pa.decimal128(kind.precision or 10, kind.scale or 0)
    if kind.kind is TypeKind.TIMESTAMP:
        return pa.timestamp("us", zone)
    return _TYPES.get(kind.kind, pa.string())


def arrow_schema(schema: Schema, zone: str) -> pa.Schema:
    """Return the schema of a result."""
    return pa.schema([pa.field(each.name, arrow_type(each.type, zone)) for each in schema])
