"""Changes the schema of a Delta table by one metadata commit that leaves the rows alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.model.names import quote_identifier, quote_literal
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.engine.storage.jvm import java
from tidegate_server.engine.storage.table_sql import column_sql

_WIDENING = "delta.enableTypeWidening"


def widen(spark: SparkSession, table: str, column: Column) -> None:
    """Widen a column's type by Delta's own type widening."""
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({quote_literal(_WIDENING)} = 'true')")
    name = quote_identifier(column.name)
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {column.type}")


def commit_metadata(
    spark: SparkSession,
    log: Any,
    entry: Any,
    schema: Schema,
    comment: str | None,
    properties: Mapping[str, str | None],
) -> None:
    """Commit schema, comment and properties together; Delta's SQL would make three commits.

    The operation of the commit is SET TBLPROPERTIES, which is known not to change rows.

    :param log: the table's ``DeltaLog``.
    :param entry: the metastore's entry of the table.
    """
    jvm: Any = java(spark)
    option = jvm.scala.Option
    transaction = log.startTransaction(option.apply(entry), option.empty())
    metadata = transaction.metadata()
    fields = json.loads(metadata.schemaString())["fields"]
    changed = metadata.copy(
        metadata.id(),
        metadata.name(),
        comment,
        metadata.format(),
        json.dumps({"type": "struct", "fields": _fields(jvm, fields, schema)}),
        metadata.partitionColumns(),
        _configuration(metadata.configuration(), properties),
        metadata.createdTime(),
    )
    transaction.updateMetadata(changed, False)
    tools = jvm.org.apache.spark.api.python.PythonUtils
    written = jvm.java.util.HashMap()
    for key, value in properties.items():
        if value is not None:
            written.put(key, value)
    operation = jvm.org.apache.spark.sql.delta.DeltaOperations.SetTableProperties(
        tools.toScalaMap(written)
    )
    transaction.commit(tools.toSeq(jvm.java.util.ArrayList()), operation)


def _configuration(configuration: Any, properties: Mapping[str, str | None]) -> Any:
    for key, value in properties.items():
        if value is None:
            configuration = configuration.removed(key)
        else:
            configuration = configuration.updated(key, value)
    return configuration


def _fields(jvm: Any, found: list[dict[str, Any]], schema: Schema) -> list[dict[str, Any]]:
    """Return the fields of ``schema``; existing ones keep their type and Delta's metadata."""
    existing = {field["name"].lower(): field for field in found}
    added = Schema(tuple(c for c in schema if c.name.lower() not in existing))
    new = {field["name"]: field for field in _new_fields(jvm, added)}
    return [
        _merge_field(existing[column.name.lower()], column)
        if column.name.lower() in existing
        else new[column.name]
        for column in schema
    ]


def _merge_field(field: dict[str, Any], column: Column) -> dict[str, Any]:
    notes = {key: value for key, value in field["metadata"].items() if key != "comment"}
    if column.comment:
        notes["comment"] = column.comment
    return {
        **field,
        # Existing rows may have NULL even if the new definition forbids it.
        "nullable": field["nullable"] or column.nullable,
        "metadata": notes,
    }


def _new_fields(jvm: Any, schema: Schema) -> list[dict[str, Any]]:
    if not len(schema):
        return []
    # They are NULL in existing rows, whatever the new definition says.
    columns = ", ".join(column_sql(replaced) for replaced in _nullable(schema))
    parsed = jvm.org.apache.spark.sql.types.StructType.fromDDL(columns)
    strings = jvm.org.apache.spark.sql.catalyst.util.CharVarcharUtils
    plain = strings.replaceCharVarcharWithStringInSchema(parsed)
    fields: list[dict[str, Any]] = json.loads(plain.json())["fields"]
    return fields


def _nullable(schema: Schema) -> list[Column]:
    return [Column(name=c.name, type=c.type, comment=c.comment) for c in schema]
