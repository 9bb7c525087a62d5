"""Finds the catalogs of tables outside of the session catalog."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.model.names import TableName
from tidegate_server.engine.storage.jvm import java, kind, known_instance, string_array


def catalog_of(spark: SparkSession, name: TableName) -> Any | None:
    """Return Spark's catalog of a table; None if the active session has none of its name.

    :raises py4j.protocol.Py4JError: or an error of Spark if the catalog cannot be loaded.
    """
    session: Any = spark._jsparkSession
    manager = session.sessionState().catalogManager()
    gate = known_instance("tidegate.Gate")
    if gate is not None:
        gate.catalogs().use(session, name.catalog)
    if not manager.isCatalogRegistered(name.catalog):
        return None
    return manager.catalog(name.catalog)


def pinned_table(leaf: Any, class_name: str) -> Any | None:
    """Return the table of a leaf of a plan that reads a version of it; None for other leaves.

    :param class_name: that of the table.
    """
    if kind(leaf) != "DataSourceV2Relation" or not leaf.timeTravelSpec().isDefined():
        return None
    table = leaf.table()
    return table if str(table.getClass().getName()) == class_name else None


def identifier_of(spark: SparkSession, name: TableName) -> Any:
    """Return the name of a table within its catalog."""
    catalog = java(spark).org.apache.spark.sql.connector.catalog
    return catalog.Identifier.of(namespace_of(spark, name.schema), name.table)


def namespace_of(spark: SparkSession, schema: str) -> Any:
    """Return the name of a schema within its catalog."""
    return string_array(spark, schema.split("."))
