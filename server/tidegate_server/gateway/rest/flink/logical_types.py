"""The columns of a result as Flink's logical types, in the JSON that Flink's clients read.

https://nightlies.apache.org/flink/flink-docs-stable/docs/dev/table/types/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidegate_server.core.model.types import (
    Column,
    ColumnType,
    Schema,
    TypeKind,
    parse_type,
    parts_of,
)

LONGEST: Final = 2**31 - 1
"""The length of STRING and BYTES, which are VARCHAR and VARBINARY of it."""
MICROSECONDS: Final = 6
"""The precision of all timestamps."""

_PLAIN: Final[Mapping[TypeKind, str]] = {
    TypeKind.BOOLEAN: "BOOLEAN",
    TypeKind.TINYINT: "TINYINT",
    TypeKind.SMALLINT: "SMALLINT",
    TypeKind.INT: "INTEGER",
    TypeKind.BIGINT: "BIGINT",
    TypeKind.FLOAT: "FLOAT",
    TypeKind.DOUBLE: "DOUBLE",
    TypeKind.DATE: "DATE",
}
_TIMESTAMPS: Final[Mapping[TypeKind, str]] = {
    TypeKind.TIMESTAMP: "TIMESTAMP_WITH_LOCAL_TIME_ZONE",
    TypeKind.TIMESTAMP_NTZ: "TIMESTAMP_WITHOUT_TIME_ZONE",
}
_DAY_TIME: Final = {
    "precision": 6,
    "fractionalPrecision": MICROSECONDS,
    "resolution": "DAY_TO_SECOND",
}
_YEAR_MONTH: Final = {"precision": 4, "resolution": "YEAR_TO_MONTH"}

LogicalType = dict[str, Any]


def columns_of(schema: Schema) -> list[dict[str, Any]]:
    """Return the ``columns`` of a result."""
    return [_column(column) for column in schema]


def logical_type(text: str, *, nullable: bool = True) -> LogicalType:
    """Return a Spark type in DDL as a logical type of Flink.

    Types that Flink or its JSON do not have are strings: VOID, VARIANT (as JSON), calendar
    intervals and others. So are the keys of every map: Flink's JSON has no others.
    """
    found = parse_type(text)
    kind = found.kind
    if kind in _PLAIN:
        return _typed(_PLAIN[kind], nullable)
    if kind in _TIMESTAMPS:
        return _typed(_TIMESTAMPS[kind], nullable, precision=MICROSECONDS)
    make = _OTHERS.get(kind)
    return _string(nullable) if make is None else make(found, nullable)


def _column(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "logicalType": logical_type(column.type, nullable=column.nullable),
        "comment": column.comment,
    }


def _typed(name: str, nullable: bool, **details: Any) -> LogicalType:
    return {"type": name, "nullable": nullable, **details}


def _string(nullable: bool) -> LogicalType:
    return _typed("VARCHAR", nullable, length=LONGEST)


def _decimal(found: ColumnType, nullable: bool) -> LogicalType:
    return _typed("DECIMAL", nullable, precision=found.precision, scale=found.scale)


def _array(found: ColumnType, nullable: bool) -> LogicalType:
    match parts_of(found.text):
        case (element,):
            inner = logical_type(element.type, nullable=element.nullable)
            return _typed("ARRAY", nullable, elementType=inner)
    return _string(nullable)


def _map(found: ColumnType, nullable: bool) -> LogicalType:
    match parts_of(found.text):
        case (_, value):
            inner = logical_type(value.type, nullable=value.nullable)
            return _typed("MAP", nullable, keyType=_string(nullable=False), valueType=inner)
    return _string(nullable)


def _row(found: ColumnType, nullable: bool) -> LogicalType:
    fields = [
        {"name": part.name, "fieldType": logical_type(part.type, nullable=part.nullable)}
        for part in parts_of(found.text)
    ]
    return _typed("ROW", nullable, fields=fields)


_OTHERS: Final[Mapping[TypeKind, Callable[[ColumnType, bool], LogicalType]]] = {
    TypeKind.DECIMAL: _decimal,
    TypeKind.CHAR: lambda found, nullable: _typed("CHAR", nullable, length=found.length),
    TypeKind.VARCHAR: lambda found, nullable: _typed("VARCHAR", nullable, length=found.length),
    TypeKind.BINARY: lambda _, nullable: _typed("VARBINARY", nullable, length=LONGEST),
    TypeKind.INTERVAL_DAY_TIME: lambda _, nullable: _typed(
        "INTERVAL_DAY_TIME", nullable, **_DAY_TIME
    ),
    TypeKind.INTERVAL_YEAR_MONTH: lambda _, nullable: _typed(
        "INTERVAL_YEAR_MONTH", nullable, **_YEAR_MONTH
    ),
    TypeKind.ARRAY: _array,
    TypeKind.MAP: _map,
    TypeKind.STRUCT: _row,
}
