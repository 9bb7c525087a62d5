"""The wire projection: the columns of a result, and how Spark converts each for the wire."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from tidegate_server.core.model.types import Column, Schema
from tidegate_server.engine.storage.jvm import items, kind
from tidegate_server.engine.storage.table_sql import type_sql

_NESTED = (T.ArrayType, T.MapType, T.StructType, T.VariantType)
_NATURAL = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.StringType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)
_TEXTS = (
    T.TimestampType,
    T.TimestampNTZType,
    T.DayTimeIntervalType,
    T.YearMonthIntervalType,
    T.CalendarIntervalType,
)
"""Types whose values have the same text nested in JSON as on their own."""
_JSON_KEYS = (T.StringType, T.BooleanType, T.IntegralType, T.FractionalType)
_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
_UNIONS = frozenset({"Union", "UnionLoop"})


def result_schema(frame: DataFrame) -> Schema:
    """Return the columns as the user named them, with their Spark DDL types."""
    fields = frame.schema.fields
    declared = any(_DECLARED in field.metadata for field in fields)
    mixed = _types_mixed_in_unions(frame) if declared else frozenset()
    return Schema(tuple(_column(f, mixed) for f in fields))


def _types_mixed_in_unions(frame: DataFrame) -> frozenset[str]:
    """Return the CHAR and VARCHAR types that a UNION mixes with other types.

    Spark gives the UNION the type of its first part, which the values of the others may exceed.
    """
    jdf: Any = frame._jdf
    found: set[str | None] = set()
    plans = [jdf.queryExecution().analyzed()]
    while plans:
        plan = plans.pop()
        children = list(items(plan.children()))
        plans += children
        if kind(plan) in _UNIONS:
            outputs = ([_declared_type(a) for a in items(child.output())] for child in children)
            for types in map(set, zip(*outputs, strict=True)):
                found |= types if len(types) > 1 else set()
    return frozenset(type_ for type_ in found if type_ is not None)


def _declared_type(attribute: Any) -> str | None:
    metadata = attribute.metadata()
    return str(metadata.getString(_DECLARED)) if metadata.contains(_DECLARED) else None


def wire_frame(frame: DataFrame) -> DataFrame:
    """Return ``frame`` with all columns converted to types that the wire supports.

    Most frames have only such types and are returned unchanged, which saves an analysis.
    """
    fields = frame.schema.fields
    if all(_is_natural(field.dataType) for field in fields):
        return frame
    renamed = frame.toDF(*(f"c{i}" for i in range(len(fields))))
    return renamed.select(*(_wire_column(f"c{i}", f.dataType) for i, f in enumerate(fields)))


def arrow_schema(wire: DataFrame, timezone: str) -> pa.Schema:
    """Return the Arrow schema of every batch of a wire frame; its columns are c0, c1, …"""
    schema = to_arrow_schema(wire.schema)
    return pa.schema(
        [pa.field(f"c{i}", _with_time_zone(f.type, timezone)) for i, f in enumerate(schema)]
    )


def type_text(data_type: T.DataType, metadata: dict[str, Any] | None = None) -> str:
    """Return a type as Spark DDL, with CHAR and VARCHAR as declared."""
    declared = (metadata or {}).get(_DECLARED)
    return str(declared) if declared else type_sql(data_type)


def _with_time_zone(arrow: pa.DataType, timezone: str) -> pa.DataType:
    """Set the time zone in which clients show timestamps; Arrow itself stores instants."""
    if pa.types.is_timestamp(arrow) and arrow.tz is not None:
        return pa.timestamp("us", tz=timezone)
    return arrow


def _column(field: T.StructField, mixed: frozenset[str]) -> Column:
    comment = field.metadata.get("comment")
    known = field.metadata if field.metadata.get(_DECLARED) not in mixed else {}
    return Column(
        name=field.name,
        type=type_text(field.dataType, known),
        nullable=field.nullable,
        comment=str(comment) if comment else None,
    )


def _is_natural(data_type: T.DataType) -> bool:
    return isinstance(data_type, _NATURAL)


def _wire_column(name: str, data_type: T.DataType) -> SparkColumn:
    column = F.col(name)
    match data_type:
        case _ if _is_natural(data_type):
            return column
        case T.VariantType():
            text = F.to_json(column)
        case _ if isinstance(data_type, _NESTED):
            text = F.to_json(_json_ready(column, data_type), {"ignoreNullFields": "false"})
        case _:
            text = _text(column, data_type)
    return text.alias(name)


def _text(column: SparkColumn, data_type: T.DataType) -> SparkColumn:
    match data_type:
        case T.DayTimeIntervalType():
            return _day_time_text(column)
        case T.YearMonthIntervalType():
            return _quoted_part(column.cast("interval year to month"))
        case _:
            return column.cast("string")


# ---- nested values as JSON --------------------------------------------------------------------


def _is_json(data_type: T.DataType) -> bool:
    """Say whether ``to_json`` writes every value of a type as clients expect it.

    It truncates timestamps to milliseconds, writes intervals as SQL, and writes map keys in Spark's
    internal form: a date as its number of days.
    """
    match data_type:
        case T.ArrayType():
            return _is_json(data_type.elementType)
        case T.MapType():
            return isinstance(data_type.keyType, _JSON_KEYS) and _is_json(data_type.valueType)
        case T.StructType():
            return all(_is_json(field.dataType) for field in data_type.fields)
        case _:
            return not isinstance(data_type, _TEXTS)


def _json_ready(column: SparkColumn, data_type: T.DataType) -> SparkColumn:
    """Return a nested value in which texts replace all values that ``to_json`` would distort."""
    if _is_json(data_type):
        return column
    match data_type:
        case T.ArrayType():
            element = data_type.elementType
            return F.transform(column, lambda value: _json_ready(value, element))
        case T.MapType():
            kind, value_kind = data_type.keyType, data_type.valueType
            keyed = F.transform_keys(column, lambda key, _: _json_key(key, kind))
            return F.transform_values(keyed, lambda _, value: _json_ready(value, value_kind))
        case T.StructType():
            fields = (
                _json_ready(column.getField(field.name), field.dataType).alias(field.name)
                for field in data_type.fields
            )
            return F.when(column.isNotNull(), F.struct(*fields))
        case _:
            return _text(column, data_type)


def _json_key(key: SparkColumn, data_type: T.DataType) -> SparkColumn:
    match data_type:
        case T.TimestampType():
            # With the offset: when clocks are set back, two keys would otherwise be equal.
            return F.date_format(key, "yyyy-MM-dd HH:mm:ss.SSSSSSXXX")
        case T.BinaryType():
            return F.base64(key)
        case T.ArrayType() | T.StructType():
            return F.to_json(_json_ready(key, data_type), {"ignoreNullFields": "false"})
        case _:
            return _text(key, data_type)


def _day_time_text(column: SparkColumn) -> SparkColumn:
    """Return ``d hh:mm:ss.nnnnnnnnn`` as Hive prints it."""
    text = _quoted_part(column.cast("interval day to second"))
    fraction = F.when(text.contains("."), F.substring_index(text, ".", -1)).otherwise("")
    return F.concat(F.substring_index(text, ".", 1), F.lit("."), F.rpad(fraction, 9, "0"))


def _quoted_part(interval: SparkColumn) -> SparkColumn:
    """Return the text between the quotes of ``INTERVAL '…' …``."""
    return F.regexp_extract(interval.cast("string"), "'([^']*)'", 1)
