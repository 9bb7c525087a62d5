"""Ends the planning of canceled statements (``CanceledPlans.java``)."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import compiled_instance, java_source


def end_canceled_plans(spark: SparkSession) -> None:
    """Check the plans of all sessions that are created from now on."""
    plans = canceled_plans(spark)
    session: Any = spark._jsparkSession
    extensions = session.extensions()
    extensions.injectResolutionRule(plans.rules())
    extensions.injectOptimizerRule(plans.rules())
    extensions.injectPlannerStrategy(plans.strategies())


def canceled_plans(spark: SparkSession) -> Any:
    """Return the set of job groups whose plans are to end."""
    return compiled_instance(
        spark, "tidegate.CanceledPlans", java_source(__package__, "CanceledPlans")
    )
