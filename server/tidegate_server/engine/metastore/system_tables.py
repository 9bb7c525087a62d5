"""Registers the system tables in Spark's metastore."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from tidegate_server.core.messages.requests import RegisterSystemTables, SystemTable
from tidegate_server.core.model.names import (
    DEFAULT_CATALOG,
    TableName,
    quote_identifier,
    quote_literal,
)
from tidegate_server.engine.metastore.mirror import mirror
from tidegate_server.engine.storage.entries import look_up_entries
from tidegate_server.engine.storage.jvm import java, with_fields

_IDENTIFIER: Final = 0
_STORAGE: Final = 2
_COMMENT: Final = 14
"""Positions of fields in Spark's CatalogTable."""
_LOCATION: Final = 0
"""Position of the location in Spark's CatalogStorageFormat."""


def register_system_tables(spark: SparkSession, request: RegisterSystemTables) -> None:
    """Register those tables that the metastore does not have; repeating this is harmless.

    Spark creates only the first table. The entries of the others are copies of its entry, since
    CREATE TABLE would read the log of each, at every first start.
    """
    names = {table.name: _name(request.schema, table) for table in request.tables}
    entries = look_up_entries(spark, request.schema, names.values())
    catalog: Any = spark._jsparkSession.sharedState().externalCatalog()
    missing: list[SystemTable] = []
    for table in request.tables:
        if table.source:
            mirror(spark, Path(table.source), table.location)
        entry = entries[names[table.name]]
        if entry is None:
            missing.append(table)
        elif not _is_at(spark, entry, table.location):  # it changes with the configuration
            catalog.alterTable(_copy(spark, entry, request.schema, table))
    if not missing:
        return
    model = next(filter(None, entries.values()), None)
    if model is None:
        first = missing.pop(0)
        _create(spark, request.schema, first)
        model = catalog.getTable(request.schema, first.name)
    for table in missing:
        catalog.createTable(_copy(spark, model, request.schema, table), True)


def _name(schema: str, table: SystemTable) -> TableName:
    return TableName(DEFAULT_CATALOG, schema, table.name).folded()


def _is_at(spark: SparkSession, entry: Any, location: str) -> bool:
    path = java(spark).org.apache.hadoop.fs.Path
    places = (path(entry.location()), path(location))
    first, second = (str(place.toUri().getPath()) for place in places)
    return first == second


def _create(spark: SparkSession, schema: str, table: SystemTable) -> None:
    name = _name(schema, table)
    spark.sql(
        f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(name.catalog)}.{quote_identifier(schema)}"
    )
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {name.quoted()} USING delta "
        f"COMMENT {quote_literal(table.comment)} LOCATION {quote_literal(table.location)}"
    )


def _copy(spark: SparkSession, model: Any, schema: str, table: SystemTable) -> Any:
    jvm: Any = java(spark)
    some = jvm.scala.Option.apply
    identifier = jvm.org.apache.spark.sql.catalyst.TableIdentifier(table.name, some(schema))
    place = jvm.org.apache.hadoop.fs.Path(table.location).toUri()
    storage = with_fields(model.storage(), {_LOCATION: some(place)})
    changes = {_IDENTIFIER: identifier, _STORAGE: storage, _COMMENT: some(table.comment)}
    return with_fields(model, changes)
