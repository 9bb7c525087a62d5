"""Has the code that Spark generates end when its statement is canceled (``CancelChecks.java``)."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import compiled_instance, java_source


def install_cancel_checks(spark: SparkSession) -> None:
    """Add checks to the queries of all sessions that are created from now on."""
    source = java_source(__package__, "CancelChecks")
    # Aggregates are sent to executors with the operators below them.
    checks = compiled_instance(spark, "tidegate.CancelChecks", source, executors=True)
    session: Any = spark._jsparkSession
    session.extensions().injectColumnar(checks)
