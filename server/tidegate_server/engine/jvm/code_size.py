"""Bounds the size of the methods that Spark generates (``CodeSize.java``)."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import compiled_instance, java_source


def bound_code_size(spark: SparkSession) -> None:
    """Look at the queries of all sessions that are created from now on."""
    session: Any = spark._jsparkSession
    rule = compiled_instance(spark, "tidegate.CodeSize", java_source(__package__, "CodeSize"))
    session.extensions().injectColumnar(rule)
