"""Refreshes CACHE TABLE entries of a materialized table after each commit.

Spark only notices writes by its own statements. All sessions share its cache, so one user's
CACHE TABLE would otherwise serve everyone an outdated version forever.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.model.names import TableName
from tidegate_server.engine.storage.jvm import kind

logger = logging.getLogger(__name__)


def read_again(spark: SparkSession, name: TableName) -> None:
    """Invalidate cache entries that read a table; Spark rebuilds them on next use."""
    session: Any = spark._jsparkSession
    manager = session.sharedState().cacheManager()
    if manager.isEmpty():
        return
    try:
        frame: Any = spark.table(name.quoted())
        plan = frame._jdf.queryExecution().analyzed()
        while kind(plan) == "SubqueryAlias":
            plan = plan.child()
        manager.recacheByPlan(session, plan)
    except Exception:
        # The commit is valid whether or not this fails.
        logger.warning("what is cached of %s may be old", name, exc_info=True)
