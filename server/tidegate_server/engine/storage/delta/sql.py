"""SQL for Delta: creating tables, replacing partitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tidegate_server.core.model.names import TableName, quote_identifier, quote_literal
from tidegate_server.core.model.types import Schema
from tidegate_server.core.model.versions import PartitionSpec
from tidegate_server.engine.storage.delta.schema import column_sql

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
CHANGE_FEED = "delta.enableChangeDataFeed"
_FEED_NAMES = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
_NEEDS_MAPPING = frozenset(" ,;{}()\n\t=")
_PLAIN_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_QUOTED_NAME = re.compile("`((?:[^`]|``)*)`")


def type_sql(data_type: T.DataType) -> str:
    """Return a type in SQL, with names of fields quoted where necessary."""
    match data_type:
        case T.StructType():
            fields = (f"{_field_name(f.name)}:{type_sql(f.dataType)}" for f in data_type.fields)
            return f"struct<{','.join(fields)}>"
        case T.ArrayType():
            return f"array<{type_sql(data_type.elementType)}>"
        case T.MapType():
            return f"map<{type_sql(data_type.keyType)},{type_sql(data_type.valueType)}>"
        case _:
            return str(data_type.simpleString())


def _field_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else quote_identifier(name)


def has_feed_names(names: Iterable[str]) -> bool:
    """Say whether columns have names that Delta reserves for the change feed."""
    return any(name.lower() in _FEED_NAMES for name in names)


def create_sql(
    name: TableName,
    schema: Schema,
    partition_keys: Sequence[str],
    comment: str | None,
    properties: Mapping[str, str],
    location: str | None = None,
) -> str:
    facts = dict(properties)
    nested = "".join(name for column in schema for name in _QUOTED_NAME.findall(column.type))
    if any(_NEEDS_MAPPING & set(name) for name in (nested, *schema.names())):
        facts["delta.columnMapping.mode"] = "name"
    if has_feed_names(schema.names()):
        facts[CHANGE_FEED] = "false"
    columns = ", ".join(column_sql(column) for column in schema)
    parts = [f"CREATE TABLE {name.quoted()} ({columns}) USING delta"]
    # Delta cannot store rows that have only partition columns.
    if 0 < len(partition_keys) < len(schema):
        parts.append(f"PARTITIONED BY ({', '.join(quote_identifier(k) for k in partition_keys)})")
    if comment is not None:
        parts.append(f"COMMENT {quote_literal(comment)}")
    if location is not None:
        parts.append(f"LOCATION {quote_literal(location)}")
    parts.append(f"TBLPROPERTIES ({property_list(facts)})")
    return " ".join(parts)


def register_sql(name: TableName, location: str) -> str:
    return f"CREATE TABLE {name.quoted()} USING delta LOCATION {quote_literal(location)}"


def partition_filter(
    partitions: Sequence[PartitionSpec], types: Mapping[str, T.DataType]
) -> SparkColumn:
    """Return the condition for partitions; values are compared as literals, not put into SQL."""

    def matches(spec: PartitionSpec) -> SparkColumn:
        return reduce(and_, (_equals(key, value, types) for key, value in spec.items()))

    return reduce(or_, (matches(spec) for spec in partitions))


def _equals(key: str, value: str, types: Mapping[str, T.DataType]) -> SparkColumn:
    column = F.col(quote_identifier(key))
    if value == _NULL_PARTITION:
        return column.isNull()
    return column == F.lit(value).cast(types[key.lower()])


def partition_predicate(
    partitions: Sequence[PartitionSpec], types: Mapping[str, T.DataType]
) -> str:
    def matches(spec: PartitionSpec) -> str:
        return " AND ".join(_equals_sql(key, value, types) for key, value in spec.items())

    return " OR ".join(f"({matches(spec)})" for spec in partitions)


def _equals_sql(key: str, value: str, types: Mapping[str, T.DataType]) -> str:
    column = quote_identifier(key)
    if value == _NULL_PARTITION:
        return f"{column} IS NULL"
    return f"{column} = CAST({quote_literal(value)} AS {types[key.lower()].simpleString()})"


def property_list(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{quote_literal(k)} = {quote_literal(v)}" for k, v in properties.items())
