"""Adds the columns of Delta tables, which the metastore lacks, to SHOW TABLE EXTENDED."""

from __future__ import annotations

import logging
import re
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.model.names import DEFAULT_CATALOG, TableName
from tidegate_server.engine.storage.delta.commits import newest_snapshot
from tidegate_server.engine.storage.entries import cache_entries, entry_of
from tidegate_server.engine.storage.jvm import java

logger = logging.getLogger(__name__)

_EXTENDED: Final = re.compile(r"\bshow\b.*\btable\b.*\bextended\b", re.IGNORECASE | re.DOTALL)
_COLUMNS: Final = ("namespace", "tableName", "isTemporary", "information")
_DELTA: Final = re.compile(r"^Provider: delta$", re.MULTILINE)
_SCHEMA: Final = re.compile(r"^Schema: ", re.MULTILINE)


def with_schemas(spark: SparkSession, text: str, frame: DataFrame) -> DataFrame:
    """Return the result of SHOW TABLE EXTENDED with the columns of Delta tables added.

    The result of any other statement is returned unchanged.
    """
    if not _EXTENDED.search(text) or tuple(frame.columns) != _COLUMNS:
        return frame
    rows = [tuple(row) for row in frame.collect()]
    names = [TableName(DEFAULT_CATALOG, row[0], row[1]) for row in rows if not row[2]]
    with cache_entries(spark, names):
        completed = [(*row[:3], row[3] if row[2] else _add_schema(spark, *row)) for row in rows]
    columns = [pa.array([row[n] for row in completed], pa.string()) for n in (0, 1, 3)]
    columns.insert(2, pa.array([row[2] for row in completed], pa.bool_()))
    return spark.createDataFrame(pa.Table.from_arrays(columns, names=list(_COLUMNS)), frame.schema)


def _add_schema(spark: SparkSession, schema: str, table: str, _: bool, information: str) -> str:
    if not _DELTA.search(information) or _SCHEMA.search(information):
        return information
    name = TableName(DEFAULT_CATALOG, schema, table)
    try:
        return information.rstrip("\n") + f"\n{_schema_line(spark, name)}\n"
    except (PySparkException, Py4JError) as caught:
        # One broken table must not hide all the others.
        logger.warning("cannot read the columns of %s: %s", name, caught)
        return information


def _schema_line(spark: SparkSession, name: TableName) -> str:
    jvm: Any = java(spark)
    entry = entry_of(spark, name)
    if entry is None:
        return ""  # dropped meanwhile
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, entry.identifier())
    return f"Schema: {newest_snapshot(jvm, log).metadata().schema().treeString()}"
