"""What the session catalog says of tables and views, by their names."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.model.names import DEFAULT_CATALOG, TableName
from tidegate_server.storage.base import is_path
from tidegate_server.storage.jvm import java

logger = logging.getLogger(__name__)

_known: ContextVar[dict[TableName, Any] | None] = ContextVar("known", default=None)


@contextmanager
def asked_once() -> Iterator[None]:
    """Ask the metastore for each name once until the block ends, in this thread.

    Planning a refresh comes back to the same few names a dozen times; each look takes some
    milliseconds of the metastore's database. Nothing may be written by what was seen so.
    """
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def entry_of(spark: SparkSession, name: TableName) -> Any:
    """Return the catalog's entry (``CatalogTable``) of a table or view, or None."""
    if is_path(name) or name.catalog.lower() != DEFAULT_CATALOG:
        return None
    known = _known.get()
    if known is None:
        return _looked_up(spark, name)
    key = name.folded()
    if key not in known:
        known[key] = _looked_up(spark, name)
    return known[key]


def provider_of(entry: Any) -> str | None:
    """Return the lower-case name of the format an entry's rows are in; None for a view."""
    provider = entry.provider()
    return str(provider.get()).lower() if provider.isDefined() else None


def _looked_up(spark: SparkSession, name: TableName) -> Any:
    session: Any = spark._jsparkSession
    tables = java(spark).org.apache.spark.api.python.PythonUtils.toSeq([name.table.lower()])
    # Asked directly: the session's own catalog first asks for the schema, then for the table.
    catalog = session.sharedState().externalCatalog()
    try:
        found = catalog.getTablesByName(name.schema.lower(), tables)
    except (PySparkException, Py4JJavaError) as failed:
        if catalog.databaseExists(name.schema.lower()):
            raise
        logger.debug("%s: %s", name, failed)
        return None
    return None if found.isEmpty() else found.head()
