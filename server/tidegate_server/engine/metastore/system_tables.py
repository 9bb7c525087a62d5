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
    catalog: Any = spark._jsparkSession.sharedState().externalCatalog()
    known = None
    missing: list[SystemTable] = []
    for table in request.tables:
        if table.source:
            mirror(spark, Path(table.source), table.location)
        if catalog.tableExists(request.schema, table.name):
            known = table.name
            _move(spark, catalog, request.schema, table)
        else:
            missing.append(table)
    if not missing:
        return
    if known is None:
        known = missing[0].name
        _create(spark, request.schema, missing.pop(0))
    model = catalog.getTable(request.schema, known)
    for table in missing:
        catalog.createTable(_copy(spark, model, request.schema, table), True)


def _move(spark: SparkSession, catalog: Any, schema: str, table: SystemTable) -> None:
    """Have an entry name the location of a table, which changes with the configuration."""
    entry = catalog.getTable(schema, table.name)
    path = java(spark).org.apache.hadoop.fs.Path
    if str(path(entry.location()).toUri().getPath()) != str(path(table.location).toUri().getPath()):
        catalog.alterTable(_copy(spark, entry, schema, table))


def _create(spark: SparkSession, schema: str, table: SystemTable) -> None:
    name = TableName(DEFAULT_CATALOG, schema, table.name)
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
