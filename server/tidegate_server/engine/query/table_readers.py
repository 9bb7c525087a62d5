"""The table functions read_files and read_kafka (``TableReaders.java``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from tidegate_server.core.connectors.readers import READERS
from tidegate_server.engine.query.registry import registry
from tidegate_server.engine.storage.jvm import compiled_instance, java, java_source, scala_object

_USAGES: Final[Mapping[str, str]] = {
    "read_files": "(path, format => format[, schema => columns, ...]) - the rows in files",
    "read_kafka": "(bootstrapServers => servers, subscribe => topic[, ...]) - records of Kafka",
}


def install_table_readers(spark: SparkSession) -> None:
    """Make the functions known to all sessions that are created from now on."""
    source = java_source(__package__, "TableReaders")
    readers = compiled_instance(spark, "tidegate.TableReaders", source, uses=registry(spark))
    jvm = java(spark)
    analysis = "org.apache.spark.sql.catalyst.analysis"
    builtin = scala_object(jvm, f"{analysis}.TableFunctionRegistry").builtin()
    for name, usage in _USAGES.items():
        builtin.registerFunction(
            jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name),
            readers.information(name, f"_FUNC_{usage}."),
            readers.builder(
                READERS[name].source, list(READERS[name].formats), dict(READERS[name].renamed)
            ),
        )
