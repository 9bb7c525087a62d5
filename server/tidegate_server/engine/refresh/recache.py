"""What CACHE TABLE keeps of materialized tables is read again after each commit.

Spark knows of the writes of its own statements only. Its cache belongs to all sessions, so that one
user's CACHE TABLE would show everybody the version of that moment for ever.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.model.names import TableName
from tidegate_server.engine.storage.jvm import kind

logger = logging.getLogger(__name__)


def read_again(spark: SparkSession, name: TableName) -> None:
    """Have everything cached that reads a table read it anew, when it is asked for."""
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
        # The commit stands, whatever becomes of what was cached.
        logger.warning("what is cached of %s may be old", name, exc_info=True)
