"""What identifies the rows of tables of catalogs: of Iceberg tables, their newest snapshot; of
those of catalogs written in Python, what the catalog says, the version of Delta, or the files; of
those of databases, the answer of a query.
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

from tidegate_server.core.model.names import TableName
from tidegate_server.engine.storage.catalogs import catalog_of, identifier_of
from tidegate_server.engine.storage.databases import DATABASE, database_facts
from tidegate_server.engine.storage.iceberg.tables import load_table
from tidegate_server.engine.storage.jvm import active_session

logger = logging.getLogger(__name__)

_PYTHON: Final = "tidegate.PythonCatalogs$Catalog"


@dataclass(frozen=True, slots=True)
class ForeignRows:
    """What identifies the rows of a table."""

    facts: tuple[str, ...]
    """Texts that change with the rows, if there are no files."""
    format: str = ""
    files: tuple[str, ...] = ()
    """The directories or files that the table also consists of."""


def foreign_rows(spark: SparkSession, name: TableName) -> ForeignRows | None:
    """Return what identifies the rows of a table of a catalog.

    :return: None for tables of other kinds, and if the catalog cannot be used.
    """
    try:
        with active_session(spark):
            catalog = catalog_of(spark, name)
            if catalog is None:
                return None
            class_name = str(catalog.getClass().getName())
            if class_name == _PYTHON:
                return _rows_in_python(json.loads(catalog.state(identifier_of(spark, name))))
            if class_name == DATABASE:
                table = catalog.loadTable(identifier_of(spark, name))
                facts = database_facts(spark, name, table)
                return None if facts is None else ForeignRows(facts)
        found = load_table(spark, name)
        return None if found is None else ForeignRows(found.state)
    except (PySparkException, Py4JError) as problem:
        logger.debug("what identifies the rows of %s cannot be read: %s", name, problem)
        return None


def _rows_in_python(state: Mapping[str, Any]) -> ForeignRows | None:
    """Return what identifies the rows of a table (``state`` of ``PythonCatalogs.java``)."""
    facts = str(state["facts"])
    if "version" in state:
        version = state["version"]
        return None if version is None else ForeignRows((facts, version))
    places = tuple(map(str, state["places"]))
    partitions = str(state.get("partitions", ""))
    return ForeignRows((facts, partitions), str(state["format"]), places) if places else None
