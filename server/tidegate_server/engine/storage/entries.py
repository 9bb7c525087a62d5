"""Looks up tables and views in the session catalog."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.model.names import DEFAULT_CATALOG, TableName
from tidegate_server.engine.storage.base import is_path
from tidegate_server.engine.storage.jvm import items, java, with_fields

logger = logging.getLogger(__name__)

TABLE_OWNER: Final = 7
"""Position of the owner in Spark's CatalogTable."""
SCHEMA_OWNER: Final = "owner"
"""The property of a schema that names its owner."""
_SCHEMA_PROPERTIES: Final = 3
"""Position of the properties in Spark's CatalogDatabase."""

_known: ContextVar[dict[TableName, Any] | None] = ContextVar("known", default=None)


@contextmanager
def cache_entries(spark: SparkSession, names: Iterable[TableName]) -> Iterator[None]:
    """Cache metastore entries in this thread until the block ends.

    Planning a refresh looks up the same few names a dozen times, and each lookup takes some
    milliseconds of the metastore's database. ``names`` are fetched with one lookup per schema. The
    entries may be stale, so nothing may be written based on them.
    """
    schemas: dict[str, set[TableName]] = {}
    for name in filter(_is_listed, names):
        schemas.setdefault(name.schema.lower(), set()).add(name.folded())
    known: dict[TableName, Any] = {}
    for schema, tables in schemas.items():
        known |= look_up_entries(spark, schema, tables)
    token = _known.set(known)
    try:
        yield
    finally:
        _known.reset(token)


def entry_of(spark: SparkSession, name: TableName) -> Any:
    """Return the catalog's entry (``CatalogTable``) of a table or view, or None."""
    if not _is_listed(name):
        return None
    key, known = name.folded(), _known.get()
    if known is None:
        return look_up_entries(spark, key.schema, {key})[key]
    if key not in known:
        known |= look_up_entries(spark, key.schema, {key})
    return known[key]


def provider_of(entry: Any) -> str | None:
    """Return the lower-case name of an entry's data source; None for a view."""
    provider = entry.provider()
    return str(provider.get()).lower() if provider.isDefined() else None


def _is_listed(name: TableName) -> bool:
    return not is_path(name) and name.catalog.lower() == DEFAULT_CATALOG


def look_up_entries(
    spark: SparkSession, schema: str, names: Collection[TableName]
) -> dict[TableName, Any]:
    """Return the entries of folded names of one schema; None where an entry is missing."""
    entries = dict.fromkeys(names)
    session: Any = spark._jsparkSession
    tables = java(spark).org.apache.spark.api.python.PythonUtils.toSeq([n.table for n in names])
    # The session catalog would query the schema first, then the table.
    catalog = session.sharedState().externalCatalog()
    try:
        found = catalog.getTablesByName(schema, tables)
    except (PySparkException, Py4JJavaError) as error:
        if catalog.databaseExists(schema):
            raise
        logger.debug("%s: %s", schema, error)
        return entries
    for entry in items(found):
        table = str(entry.identifier().table()).lower()
        entries[TableName(DEFAULT_CATALOG, schema, table)] = entry
    return entries


def set_schema_property(catalog: Any, schema: str, key: str, value: str) -> None:
    """Set a property of an existing schema of Spark's external catalog."""
    entry = catalog.getDatabase(schema)
    properties = entry.properties().updated(key, value)
    catalog.alterDatabase(with_fields(entry, {_SCHEMA_PROPERTIES: properties}))
