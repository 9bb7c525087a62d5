"""Lets EXPLAIN fail where the query would; Spark returns the error as rows, or within the plan."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.engine.storage.jvm import kind, plan_only

_COLUMNS: Final = ["plan"]


def require_planned(spark: SparkSession, frame: DataFrame) -> None:
    """Plan the statement again that the result of EXPLAIN shows.

    :raises Exception: what Spark raises for it.
    """
    if frame.columns != _COLUMNS:
        return
    command = frame._jdf.queryExecution().analyzed()
    if kind(command) == "ExplainCommand":
        plan_only(spark, command.logicalPlan())
