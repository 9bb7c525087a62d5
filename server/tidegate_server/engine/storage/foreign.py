"""Fingerprints of tables of catalogs: of Iceberg tables, by their newest snapshot."""

from __future__ import annotations

import hashlib
import logging
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.model.names import DEFAULT_CATALOG, TableName
from tidegate_server.engine.storage.base import is_path
from tidegate_server.engine.storage.jvm import active_session, java, known_instance

logger = logging.getLogger(__name__)

_ICEBERGS: Final = "org.apache.iceberg.spark.source."


def is_foreign(name: TableName) -> bool:
    """Say whether a name is that of a table outside of the session catalog."""
    return not is_path(name) and name.catalog.lower() not in ("", DEFAULT_CATALOG)


def snapshot_fingerprint(spark: SparkSession, name: TableName) -> int | None:
    """Return a number of 53 bits that changes with every snapshot of an Iceberg table.

    :return: None for tables of other kinds, and if the catalog cannot be used.
    """
    session: Any = spark._jsparkSession
    manager = session.sessionState().catalogManager()
    try:
        with active_session(spark):
            gate = known_instance("tidegate.Gate")
            if gate is not None:
                gate.catalogs().use(session, name.catalog)
            if not manager.isCatalogRegistered(name.catalog):
                return None
            found = manager.catalog(name.catalog).loadTable(_identifier(spark, name))
            if not str(found.getClass().getName()).startswith(_ICEBERGS):
                return None
            return _newest(found.table())
    except (PySparkException, Py4JError) as problem:
        logger.debug("the newest snapshot of %s cannot be read: %s", name, problem)
        return None


def _newest(table: Any) -> int:
    table.refresh()  # it may have been remembered since before another engine wrote to it
    snapshot = table.currentSnapshot()
    facts = (
        str(table.uuid()),
        "" if snapshot is None else str(snapshot.snapshotId()),
        str(table.schema().schemaId()),
    )
    return int.from_bytes(hashlib.sha256("\n".join(facts).encode()).digest()[:8]) >> 11


def _identifier(spark: SparkSession, name: TableName) -> Any:
    gateway: Any = spark.sparkContext._gateway
    parts = name.schema.split(".")
    namespace = gateway.new_array(gateway.jvm.java.lang.String, len(parts))
    for place, part in enumerate(parts):
        namespace[place] = part
    catalog = java(spark).org.apache.spark.sql.connector.catalog
    return catalog.Identifier.of(namespace, name.table)
