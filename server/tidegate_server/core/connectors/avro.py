"""Avro: the schema that Flink derives from columns, and the types of its values in Spark.

https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/formats/avro/
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate_server.core.connectors.columns import ConnectorColumn
from tidegate_server.core.connectors.options import OptionError
from tidegate_server.core.model.names import quote_identifier
from tidegate_server.core.model.types import (
    ColumnType,
    TypeKind,
    castable_type,
    mapped_type,
    parse_type,
    parts_of,
)

_RECORD = "org.apache.flink.avro.generated.record"
"""Flink's name of the record; nested ones have the names of their fields after it."""
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LOCAL = "TIMESTAMP_LTZ"
_EPOCH = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"
_SIMPLE: Mapping[TypeKind, Any] = {
    TypeKind.BOOLEAN: "boolean",
    **dict.fromkeys((TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.INT), "int"),
    TypeKind.BIGINT: "long",
    TypeKind.FLOAT: "float",
    TypeKind.DOUBLE: "double",
    **dict.fromkeys((TypeKind.STRING, TypeKind.CHAR, TypeKind.VARCHAR), "string"),
    TypeKind.BINARY: "bytes",
    TypeKind.DATE: {"type": "int", "logicalType": "date"},
}
_STORED: Mapping[TypeKind, str] = {
    **dict.fromkeys((TypeKind.TINYINT, TypeKind.SMALLINT), "INT"),
    **dict.fromkeys((TypeKind.CHAR, TypeKind.VARCHAR), "STRING"),
}


def avro_schema(columns: Sequence[ConnectorColumn], *, moments: bool = False) -> str:
    """Return the schema of a record with these columns, as JSON.

    Times have milliseconds, to which Flink's default mapping is limited.

    :param moments: whether a time without a zone has the logical type of a moment, in which Flink
        writes its hours as those of UTC. The bytes are the same.
    :raises OptionError: if Avro has no type or name for one.
    """
    fields = [_field(each.name, each.type, each.nullable, _RECORD, moments) for each in columns]
    return json.dumps({"type": "record", "name": _RECORD, "fields": fields})


def stored_type(text: str) -> str:
    """Return the type that a value has in Spark when it is read from Avro or written to it.

    A time without a zone is one in Avro, too.
    """
    return mapped_type(text, _stored)


def _stored(text: str) -> str:
    return "TIMESTAMP_NTZ" if without_zone(text) else _STORED.get(parse_type(text).kind, text)


def without_zone(text: str) -> bool:
    """Return whether a simple type is that of times without a zone."""
    kind = parse_type(text).kind
    return kind is TypeKind.TIMESTAMP_NTZ or (
        kind is TypeKind.TIMESTAMP and text.strip().upper() != _LOCAL
    )


def has_nested_times(text: str) -> bool:
    """Return whether a nested type has times without a zone."""
    return any(without_zone(each.type) or has_nested_times(each.type) for each in parts_of(text))


# ---- files -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AvroFiles:
    """How values are in files."""

    legacy: bool
    """Whether times without a zone have the logical type of moments, with their hours in UTC."""

    def check(self, columns: Sequence[ConnectorColumn]) -> None:
        """Require that times within other types can be told from moments.

        :raises OptionError: if a column has them.
        """
        for each in columns:
            if self.legacy and has_nested_times(each.type):
                raise OptionError(
                    f"the times in the column {each.name} would be read as moments: declare them "
                    "TIMESTAMP_LTZ, or set 'avro.timestamp_mapping.legacy' = 'false'"
                )

    def type_of(self, column: ConnectorColumn) -> str:
        """Return the type with which Spark reads a column."""
        return _LOCAL if self._shifted(column) else stored_type(column.type)

    def read_sql(self, column: ConnectorColumn) -> str:
        """Return SQL for the value of a column that was read."""
        name = quote_identifier(column.name)
        if self._shifted(column):
            name = f"{_EPOCH} + unix_micros({name}) * INTERVAL '0.000001' SECOND"
        return f"CAST({name} AS {castable_type(column.type)})"

    def written_sql(self, column: ConnectorColumn) -> str:
        """Return SQL for the value of a column to write."""
        name = quote_identifier(column.name)
        if self._shifted(column):
            return f"from_utc_timestamp(CAST({name} AS TIMESTAMP), current_timezone())"
        return f"CAST({name} AS {stored_type(column.type)})"

    def _shifted(self, column: ConnectorColumn) -> bool:
        return self.legacy and without_zone(column.type)


# ---- schemas -----------------------------------------------------------------------------------


def _field(name: str, type: str, nullable: bool, record: str, moments: bool) -> dict[str, Any]:
    if _NAME.fullmatch(name) is None:
        raise OptionError(f"a name in Avro has letters, digits and _ alone, unlike '{name}'")
    schema = _schema(type, f"{record}_{name}", moments)
    if not nullable:
        return {"name": name, "type": schema}
    return {"name": name, "type": ["null", schema], "default": None}


def _schema(text: str, record: str, moments: bool) -> Any:
    found, parts = parse_type(text), parts_of(text)
    match found.kind:
        case TypeKind.ARRAY:
            return {"type": "array", "items": ["null", _schema(parts[0].type, record, moments)]}
        case TypeKind.MAP:
            if _SIMPLE.get(parse_type(parts[0].type).kind) != "string":
                raise OptionError(
                    f"the keys of a map in Avro are of the type STRING, unlike {text}"
                )
            return {"type": "map", "values": ["null", _schema(parts[1].type, record, moments)]}
        case TypeKind.STRUCT:
            fields = [
                _field(each.name, each.type, each.nullable, record, moments) for each in parts
            ]
            return {"type": "record", "name": record, "fields": fields}
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_NTZ:
            local = without_zone(text) and not moments
            return {"type": "long", "logicalType": f"{'local-' if local else ''}timestamp-millis"}
        case TypeKind.DECIMAL:
            return _decimal(found)
    if found.kind not in _SIMPLE:
        raise OptionError(f"Avro has no type for {text}")
    return _SIMPLE[found.kind]


def _decimal(found: ColumnType) -> dict[str, Any]:
    return {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": found.precision,
        "scale": found.scale,
    }
