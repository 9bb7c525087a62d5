"""Scans of Delta tables in statements that write into other tables (``DeltaScans.java``)."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import compiled_instance, java_source


def install_delta_scans(spark: SparkSession) -> None:
    """Have all sessions that are created from now on read Delta tables in such statements."""
    scans = compiled_instance(spark, "tidegate.DeltaScans", java_source(__package__, "DeltaScans"))
    session: Any = spark._jsparkSession
    session.extensions().injectOptimizerRule(scans.reading())
    session.extensions().injectPreCBORule(scans)
