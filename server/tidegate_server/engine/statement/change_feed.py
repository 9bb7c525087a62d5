"""Creates a table without Delta's change feed where its columns have names of the feed's own."""

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
"""The setting by which new tables have a change feed."""
_RESERVED = frozenset({"RESERVED_CDC_COLUMNS_ON_WRITE", "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS"})
_CREATING = frozenset(
    {"CreateTable", "CreateTableAsSelect", "ReplaceTable", "ReplaceTableAsSelect"}
)


def without_feed_if_reserved(child: Child, text: str, run: Callable[[], DataFrame]) -> DataFrame:
    """Run a statement; one that creates a table is run without the default of a change feed if
    that is why it fails.

    Delta looks at the names before it writes anything. A feed that the statement asks for itself
    stays, and with it the error.

    :param run: runs the statement ``text``.
    """
    try:
        return run()
    except (PySparkException, Py4JJavaError) as failed:
        if condition_of(failed) not in _RESERVED or not _creates(child.spark, text):
            raise
    with child.overlay({BY_DEFAULT: "false"}):
        return run()


def _creates(spark: SparkSession, text: str) -> bool:
    return kind(parse_statement(spark, text)) in _CREATING
