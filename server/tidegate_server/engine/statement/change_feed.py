"""Creates a table without Delta's change feed if its columns have reserved names of the feed."""

from __future__ import annotations

from collections.abc import Callable

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegate_server.engine.jvm.errors import condition_of
from tidegate_server.engine.query.references import parse_statement
from tidegate_server.engine.session.sessions import Child
from tidegate_server.engine.storage.jvm import kind

BY_DEFAULT = "spark.databricks.delta.properties.defaults.enableChangeDataFeed"
"""The setting that enables the change feed of new tables."""
_RESERVED = frozenset({"RESERVED_CDC_COLUMNS_ON_WRITE", "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS"})
_CREATING = frozenset(
    {"CreateTable", "CreateTableAsSelect", "ReplaceTable", "ReplaceTableAsSelect"}
)


def without_feed_if_reserved(child: Child, text: str, run: Callable[[], DataFrame]) -> DataFrame:
    """Run a statement; if the default change feed makes it fail to create a table, run it again
    without that default.

    The second run is safe, since Delta checks the names before it writes anything. If the
    statement itself enables the feed, the error remains.

    :param run: runs the statement ``text``.
    """
    try:
        return run()
    except (PySparkException, Py4JJavaError) as caught:
        if condition_of(caught) not in _RESERVED or not _creates(child.spark, text):
            raise
    with child.overlay({BY_DEFAULT: "false"}):
        return run()


def _creates(spark: SparkSession, text: str) -> bool:
    return kind(parse_statement(spark, text)) in _CREATING
