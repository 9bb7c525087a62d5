"""Types of columns: Paimon's and those of SQL.

https://paimon.apache.org/docs/master/concepts/data-types/
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import sqlglot
from sqlglot import exp

from tidegate_server.core.catalogs.base import CatalogError, TableColumn

_TO_SQL: Final = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "INT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "DATE": "DATE",
    "STRING": "STRING",
    "CHAR": "STRING",
    "VARCHAR": "STRING",
    "BYTES": "BINARY",
    "BINARY": "BINARY",
    "VARBINARY": "BINARY",
    "TIMESTAMP_LTZ": "TIMESTAMP",
    "TIMESTAMP": "TIMESTAMP_NTZ",
}
_FROM_SQL: Final = {
    exp.DataType.Type.BOOLEAN: "BOOLEAN",
    exp.DataType.Type.TINYINT: "TINYINT",
    exp.DataType.Type.SMALLINT: "SMALLINT",
    exp.DataType.Type.INT: "INT",
    exp.DataType.Type.BIGINT: "BIGINT",
    exp.DataType.Type.FLOAT: "FLOAT",
    exp.DataType.Type.DOUBLE: "DOUBLE",
    exp.DataType.Type.DATE: "DATE",
    exp.DataType.Type.TEXT: "STRING",
    exp.DataType.Type.BINARY: "BYTES",
    exp.DataType.Type.TIMESTAMPTZ: "TIMESTAMP_LTZ(6)",
    exp.DataType.Type.TIMESTAMPNTZ: "TIMESTAMP(6)",
}
_WITH_LENGTH: Final = {exp.DataType.Type.CHAR: "CHAR", exp.DataType.Type.VARCHAR: "VARCHAR"}
_PRECISION: Final = re.compile(r"\((\d+)\)")
_MICROSECONDS: Final = 6
"""The precision of Spark's timestamps."""


def columns_of(fields: Sequence[Any]) -> tuple[TableColumn, ...]:
    """Return the columns of Paimon's fields; raises CatalogError for a type that Spark lacks."""
    return tuple(
        TableColumn(
            name=field.name,
            type=_sql_type(field.name, field.type),
            nullable=field.type.nullable,
            comment=field.description or None,
        )
        for field in fields
    )


def fields_of(columns: Sequence[TableColumn]) -> list[Any]:
    """Return Paimon's fields of columns; raises CatalogError for a type that Paimon lacks."""
    numbers = itertools.count()
    return [_field(each, numbers) for each in columns]


def type_of(column: TableColumn) -> Any:
    """Return Paimon's type of a column that is added; raises CatalogError."""
    return _field(column, itertools.count()).type


def _sql_type(column: str, found: Any) -> str:
    match type(found).__name__:
        case "ArrayType":
            return f"ARRAY<{_sql_type(column, found.element)}>"
        case "MapType":
            return f"MAP<{_sql_type(column, found.key)}, {_sql_type(column, found.value)}>"
        case "RowType":
            parts = (f"{_quoted(f.name)}: {_sql_type(column, f.type)}" for f in found.fields)
            return f"STRUCT<{', '.join(parts)}>"
        case "AtomicType":
            text = str(found.type).upper()
            base = text.partition("(")[0].strip()
            if base in ("DECIMAL", "NUMERIC", "DEC"):
                return text.replace(base, "DECIMAL", 1).replace(" ", "")
            if text.startswith("TIMESTAMP") and "LOCAL TIME ZONE" in text:
                base = "TIMESTAMP_LTZ"
            precision = _PRECISION.search(text) if base.startswith("TIMESTAMP") else None
            fine = precision is not None and int(precision[1]) > _MICROSECONDS
            if base in _TO_SQL and not fine:
                return _TO_SQL[base]
    raise CatalogError(f"its column {column} has the type {found}, which Spark does not have")


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _field(column: TableColumn, numbers: Iterator[int]) -> Any:
    from pypaimon.schema.data_types import DataField

    number = next(numbers)
    parsed = sqlglot.parse_one(column.type, into=exp.DataType, dialect="spark")
    kind = _paimon_type(column, parsed, column.nullable, numbers)
    return DataField(number, column.name, kind, column.comment)


def _paimon_type(column: TableColumn, parsed: Any, nullable: bool, numbers: Iterator[int]) -> Any:
    from pypaimon.schema import data_types as found

    kind, inner = getattr(parsed, "this", None), getattr(parsed, "expressions", [])
    match kind:
        case exp.DataType.Type.ARRAY:
            element = _paimon_type(column, inner[0], True, numbers)
            return found.ArrayType(nullable, element)
        case exp.DataType.Type.MAP:
            key, value = (_paimon_type(column, each, each is inner[1], numbers) for each in inner)
            return found.MapType(nullable, key, value)
        case exp.DataType.Type.STRUCT:
            fields = [
                found.DataField(
                    next(numbers),
                    each.this.name,
                    _paimon_type(column, each.kind, not each.constraints, numbers),
                )
                for each in inner
            ]
            return found.RowType(nullable, fields)
        case exp.DataType.Type.DECIMAL:
            size = ", ".join(each.this.name for each in inner)
            return found.AtomicType(f"DECIMAL({size})", nullable)
    if kind in _WITH_LENGTH:
        return found.AtomicType(f"{_WITH_LENGTH[kind]}({inner[0].this.name})", nullable)
    if kind in _FROM_SQL:
        return found.AtomicType(_FROM_SQL[kind], nullable)
    raise CatalogError(f"Paimon has no type {column.type}, which the column {column.name} has")
