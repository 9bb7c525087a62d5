"""The targets of jobs: Delta tables, and tables of connectors that can be written."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tidegate_server.core.connectors.sinks import Mark, mark_of
from tidegate_server.core.model.names import TableName
from tidegate_server.engine.query.connector_views import sink_text
from tidegate_server.engine.storage.base import TableFormat

_WAREHOUSE = "spark.sql.warehouse.dir"


@dataclass(frozen=True, slots=True)
class JobTarget:
    """What a job writes into."""

    id: str
    """Another one if the target was created again."""
    directory: str
    """Where the job may keep its position."""
    columns: tuple[str, ...]
    """Those that an INSERT without a list of columns writes."""
    mark: Mark | None = None
    """What the view of a connector's table says; None for a Delta table."""


def find_target(spark: SparkSession, format: TableFormat, name: TableName) -> JobTarget | None:
    """Return the target of this name; None for what jobs cannot write into."""
    state = format.find(name)
    if state is not None:
        return JobTarget(state.table_id, format.describe(name).location, state.columns)
    text = sink_text(spark, name)
    mark = None if text is None else mark_of(text)
    if text is None or mark is None:
        return None
    identity = hashlib.sha256(text.encode()).hexdigest()[:32]
    columns = tuple(StructType.fromDDL(mark.columns).names)
    return JobTarget(f"sink-{identity}", str(spark.conf.get(_WAREHOUSE)), columns, mark)
