"""Filters rows by a condition that a user wrote."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from tidegate_server.core.errors import Code, error
from tidegate_server.engine.storage.jvm import java


def select_matching(rows: DataFrame, predicate: str) -> DataFrame:
    """Return the rows that satisfy a condition, parsed and checked by Spark.

    :raises pyspark.errors.AnalysisException: if the condition names a column that does not exist.
    :raises ServerError: MT_PREDICATE if it is not deterministic or reads other tables.
    """
    chosen = rows.where(predicate)
    condition: Any = chosen._jdf.queryExecution().analyzed().condition()
    jvm: Any = java(rows.sparkSession)
    patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    if condition.containsPattern(patterns.PLAN_EXPRESSION()):
        raise error(Code.MT_PREDICATE, predicate=predicate, reason="it reads other tables")
    if not condition.deterministic() or condition.containsPattern(patterns.CURRENT_LIKE()):
        reason = "it may select different rows each time"
        raise error(Code.MT_PREDICATE, predicate=predicate, reason=reason)
    return chosen
