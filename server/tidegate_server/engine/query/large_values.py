"""Refuses functions that would build a value too large for the heap (``LargeValues.java``)."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import compiled_instance, java_source


def refuse_large_values(spark: SparkSession) -> None:
    """Check the plans of all sessions that are created from now on."""
    rule = compiled_instance(spark, "tidegate.LargeValues", java_source(__package__, "LargeValues"))
    session: Any = spark._jsparkSession
    session.extensions().injectCheckRule(rule)
