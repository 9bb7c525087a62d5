"""Creates and changes Iceberg tables that store materialized tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.names import TableName, quote_identifier, quote_literal, quote_pairs
from tidegate_server.core.model.types import Schema
from tidegate_server.engine.storage.jvm import java
from tidegate_server.engine.storage.table_sql import column_sql

_COMMENT: Final = "comment"
_LIMITED: Final = re.compile(r"\b(var)?char\(", re.IGNORECASE)
_VERSION: Final = 2
_FORMAT: Final = {"format-version": str(_VERSION)}
"""Version 2 has sequence numbers, which are the versions of a table."""


def create_sql(
    name: TableName,
    schema: Schema,
    partition_keys: Sequence[str],
    comment: str | None,
    properties: Mapping[str, str],
) -> str:
    """Return the statement that creates a table."""
    columns = ", ".join(column_sql(column) for column in schema)
    parts = [f"CREATE TABLE {name.quoted()} ({columns}) USING iceberg"]
    if partition_keys:
        parts.append(f"PARTITIONED BY ({', '.join(map(quote_identifier, partition_keys))})")
    if comment is not None:
        parts.append(f"COMMENT {quote_literal(comment)}")
    parts.append(f"TBLPROPERTIES ({quote_pairs({**_FORMAT, **properties})})")
    return " ".join(parts)


def check_types(spark: SparkSession, name: TableName, schema: Schema) -> None:
    """Require that Iceberg stores the values of all columns as they are.

    :raises ServerError: NOT_SUPPORTED for a type that it would change or does not have.
    """
    for column in schema:
        stored, cause = _stored_type(spark, column.type)
        if stored == column.type.upper():
            continue
        hint = "Leave the column out, or create the table in the catalog spark_catalog."
        if stored is not None:
            written = quote_identifier(column.name)
            hint = f"Iceberg would store {stored}: write CAST({written} AS {stored}) in the query."
        what = f"The type {column.type} of the column {column.name} in the Iceberg table {name}"
        raise error(Code.NOT_SUPPORTED, what=what, hint=hint) from cause


def _stored_type(spark: SparkSession, type: str) -> tuple[str | None, Exception | None]:
    """Return the type with which Iceberg stores another one: itself if they are the same.

    :return: None for the type, and the reason, if Iceberg has none.
    """
    iceberg = java(spark).org.apache.iceberg
    convert = iceberg.spark.SparkSchemaUtil.convert
    wanted = java(spark).org.apache.spark.sql.types.StructType.fromDDL(f"c {type}")
    try:
        schema = convert(wanted)
        iceberg.Schema.checkCompatibility(schema, _VERSION)  # VARIANT is a type of later versions
        stored = convert(schema).fields()[0].dataType()
    except (PySparkException, Py4JJavaError) as refused:
        return None, refused
    # Spark itself takes texts of a limited length for a use of STRING.
    same = not _LIMITED.search(type) and stored.sameType(wanted.fields()[0].dataType())
    return type.upper() if same else str(stored.sql()), None


def java_map(spark: SparkSession, values: Mapping[str, str | None]) -> Any:
    """Return properties for ``IcebergCommits.java``; None removes one."""
    made = java(spark).java.util.HashMap()
    for key, value in values.items():
        made.put(key, value)
    return made


def evolve(
    spark: SparkSession,
    commits: Any,
    table: Any,
    schema: Schema,
    comment: str | None,
    properties: Mapping[str, str | None],
    widened: Sequence[str],
) -> None:
    """Change columns, comment and properties in one commit.

    :param commits: the instance of ``IcebergCommits.java``.
    :param table: as the catalog has it.
    """
    jvm = java(spark)
    columns = jvm.org.apache.spark.sql.types.StructType.fromDDL(", ".join(map(column_sql, schema)))
    changed = java_map(spark, {**properties, _COMMENT: comment})
    wider = jvm.java.util.ArrayList()
    for name in widened:
        wider.add(name)
    commits.evolve(table, columns, wider, changed)
