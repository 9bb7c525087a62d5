"""Takes dropped and moved tables out of what Delta remembers of the tables it has read.

Delta keeps the newest state of a table, with its plan and session, for as long as it is among the
last used: up to 2.4 MB of the heap each.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.model.names import DEFAULT_CATALOG, TableName
from tidegate_server.storage.entries import entry_of, provider_of
from tidegate_server.storage.jvm import items, java, kind

logger = logging.getLogger(__name__)

_DELTA = "delta"


@contextmanager
def forgetting(spark: SparkSession, *names: TableName) -> Iterator[None]:
    """Let Delta forget the states of tables that are dropped, or moved, until the block ends."""
    places = [place for name in names for place in _places(spark, name)]
    try:
        yield
    finally:
        _forget(spark, places)


@contextmanager
def forgetting_dropped(spark: SparkSession, sql: str) -> Iterator[None]:
    """Let Delta forget the tables that a statement of a session drops, if it is one that does."""
    dropped = sql.lstrip()[:4].upper() == "DROP"
    with forgetting(spark, *(_dropped(spark, sql) if dropped else ())):
        yield


def _dropped(spark: SparkSession, sql: str) -> list[TableName]:
    """Return the tables that a DROP TABLE or DROP SCHEMA names; none if it cannot be read."""
    session: Any = spark._jsparkSession
    try:
        plan = session.sessionState().sqlParser().parsePlan(sql)
        if kind(plan) == "DropTable":
            parts = [str(part) for part in items(plan.child().nameParts())]
            current = list(session.sessionState().catalogManager().currentNamespace())
            schema = parts[-2] if len(parts) > 1 else str(current[-1])
            return [TableName(DEFAULT_CATALOG, schema, parts[-1])]
        if kind(plan) != "DropNamespace":
            return []
        schema = str(list(items(plan.namespace().multipartIdentifier()))[-1]).lower()
        catalog = session.sharedState().externalCatalog()
        listed = catalog.listTables(schema) if catalog.databaseExists(schema) else None
    except (PySparkException, Py4JError) as refused:
        # The statement itself will say what is wrong with it.
        logger.debug("%s", refused)
        return []
    return [TableName(DEFAULT_CATALOG, schema, str(t)) for t in (items(listed) if listed else ())]


def _places(spark: SparkSession, name: TableName) -> list[str]:
    """Return where a Delta table of the metastore is; nothing for anything else."""
    entry = entry_of(spark, name)
    if entry is None or provider_of(entry) != _DELTA:
        return []
    location = entry.storage().locationUri()
    return [str(location.get().toString())] if location.isDefined() else []


def _forget(spark: SparkSession, places: Iterable[str]) -> None:
    jvm: Any = java(spark)
    session: Any = spark._jsparkSession
    for place in places:
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI.create(place))
        jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(session, path)
