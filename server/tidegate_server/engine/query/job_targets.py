"""The targets of jobs: Delta tables, and tables of connectors that can be written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tidegate_server.core.connectors.change_targets import ChangeError, Taking, how_taken
from tidegate_server.core.connectors.sinks import Mark, mark_of
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.names import TableName, visible_name
from tidegate_server.core.sql.streams import Stream
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


def changes_taken(
    target: JobTarget, name: TableName, stream: Stream, query: str, columns: Sequence[str]
) -> tuple[Taking, tuple[int, ...]]:
    """Return how a target takes the changes of a table, and where its key is in a row.

    :param name: that of the target.
    :param columns: those that the INSERT lists; none for all.
    :raises ServerError: JOB_CHANGES_UNWRITABLE.
    """
    try:
        return how_taken(target.mark, query, columns or target.columns)
    except ChangeError as problem:
        raise unwritable_error(stream, name, str(problem), problem.hint) from problem


def unwritable_error(stream: Stream, target: TableName, reason: str, hint: str) -> ServerError:
    """Return the error for changes of a table that a target cannot take."""
    return error(
        Code.JOB_CHANGES_UNWRITABLE,
        source=visible_name(TableName(*stream.table)),
        target=visible_name(target),
        reason=reason,
        hint=hint,
    )
