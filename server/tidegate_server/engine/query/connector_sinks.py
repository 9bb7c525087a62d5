"""Lets INSERT write into the tables of connectors (``ConnectorSinks.java``).

https://nightlies.apache.org/flink/flink-docs-stable/docs/dev/table/sql/insert/
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.engine.query.registry import registry
from tidegate_server.engine.storage.jvm import compiled_instance, java_source, known_instance


def install_connector_sinks(spark: SparkSession) -> None:
    """Replace the targets of INSERT in all sessions that are created from now on.

    The rules run after those that were installed before: the gate is one of them.
    """
    source = java_source(__package__, "ConnectorSinks")
    gate: Any = known_instance("tidegate.Gate")
    sinks = compiled_instance(spark, "tidegate.ConnectorSinks", source, uses=gate)
    sinks.connect(gate.catalogs(), registry(spark))
    session: Any = spark._jsparkSession
    extensions = session.extensions()
    extensions.injectHintResolutionRule(sinks.targets())
    extensions.injectPostHocResolutionRule(sinks.overwriting())


def accept_changes(spark: SparkSession) -> None:
    """Have the targets of INSERT in a session take whether a row is deleted as their last column.

    The column is DELETED. Rows are deleted by the key of the target, if it has one.
    """
    sinks: Any = known_instance("tidegate.ConnectorSinks")
    sinks.acceptChanges(spark._jsparkSession)
