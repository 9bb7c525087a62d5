"""What identifies the rows of tables of catalogs: of Iceberg tables, their newest snapshot; of
those of catalogs written in Python, what the catalog says, the version of Delta, or the files.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.model.names import DEFAULT_CATALOG, TableName
from tidegate_server.engine.storage.base import is_path
from tidegate_server.engine.storage.jvm import active_session, java, known_instance

logger = logging.getLogger(__name__)

_PYTHON: Final = "tidegate.PythonCatalogs$Catalog"
_ICEBERGS: Final = "org.apache.iceberg.spark.source."


def is_foreign(name: TableName) -> bool:
    """Say whether a name is that of a table outside of the session catalog."""
    return not is_path(name) and name.catalog.lower() not in ("", DEFAULT_CATALOG)


@dataclass(frozen=True, slots=True)
class ForeignRows:
    """What identifies the rows of a table."""

    facts: tuple[str, ...]
    """Texts that change with the rows, if there are no files."""
    format: str = ""
    files: str | None = None
    """The directory or file that the table also consists of."""


def foreign_rows(spark: SparkSession, name: TableName) -> ForeignRows | None:
    """Return what identifies the rows of a table of a catalog.

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
            catalog = manager.catalog(name.catalog)
            if str(catalog.getClass().getName()) == _PYTHON:
                return _rows_in_python(json.loads(catalog.state(_identifier(spark, name))))
            found = catalog.loadTable(_identifier(spark, name))
            if not str(found.getClass().getName()).startswith(_ICEBERGS):
                return None
            return _newest(found.table())
    except (PySparkException, Py4JError) as problem:
        logger.debug("what identifies the rows of %s cannot be read: %s", name, problem)
        return None


def _rows_in_python(state: Mapping[str, str | None]) -> ForeignRows | None:
    """Return what identifies the rows of a table (``state`` of ``PythonCatalogs.java``)."""
    facts = str(state["facts"])
    if "version" in state:
        version = state["version"]
        return None if version is None else ForeignRows((facts, version))
    location = state["location"]
    return None if location is None else ForeignRows((facts,), str(state["format"]), location)


def _newest(table: Any) -> ForeignRows:
    table.refresh()  # it may have been remembered since before another engine wrote to it
    snapshot = table.currentSnapshot()
    return ForeignRows(
        (
            str(table.uuid()),
            "" if snapshot is None else str(snapshot.snapshotId()),
            str(table.schema().schemaId()),
        )
    )


def _identifier(spark: SparkSession, name: TableName) -> Any:
    gateway: Any = spark.sparkContext._gateway
    parts = name.schema.split(".")
    namespace = gateway.new_array(gateway.jvm.java.lang.String, len(parts))
    for place, part in enumerate(parts):
        namespace[place] = part
    catalog = java(spark).org.apache.spark.sql.connector.catalog
    return catalog.Identifier.of(namespace, name.table)
