"""Refuses queries that joins, views, common table expressions or grouping sets make too large.

See ``PlanSize.java``.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import compiled_instance, java_source


def refuse_large_plans(spark: SparkSession) -> None:
    """Check the plans of all sessions that are created from now on."""
    size = compiled_instance(spark, "tidegate.PlanSize", java_source(__package__, "PlanSize"))
    session: Any = spark._jsparkSession
    session.extensions().injectPostHocResolutionRule(size.resolved())
    session.extensions().injectHintResolutionRule(size.unresolved())  # these rules run first
