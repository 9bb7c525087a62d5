"""Reads the changes of a Delta table as a stream.

https://docs.delta.io/latest/delta-change-data-feed.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.core.connectors.change_targets import FEED_COLUMNS, names_feed
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.names import TableName, qualify, visible_name
from tidegate_server.core.sql.cursor import position
from tidegate_server.core.sql.streams import LATEST, START, VIEW, Stream
from tidegate_server.engine.query.references import canonical_name, parse_query
from tidegate_server.engine.query.resolution import current_place, is_temporary_view
from tidegate_server.engine.storage.base import TableFormat, is_path
from tidegate_server.engine.storage.exact import quote_column
from tidegate_server.engine.storage.jvm import frame_of, items, java, kind

CHANGE: Final = "__tidegate_change"
VERSION: Final = "__tidegate_version"
"""The last columns of changes: their kind, and the version of the table that has them."""

_FEED = "delta.enableChangeDataFeed"
# What is split into several batches would not be one change of each key any more.
_WHOLE = str(2**31 - 1)
_REPLACED = "the table was dropped or replaced"
_GONE = "versions that the job has not read yet are gone"
_READ_TOO_LATE = (
    "Submit the INSERT again, which begins with all rows of the table. Keep its versions longer "
    "with delta.logRetentionDuration and delta.deletedFileRetentionDuration."
)
_UNREADABLE = {
    "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE": _REPLACED,
    "DELTA_MISSING_CHANGE_DATA": "its change feed was off for a while",
    "DELTA_CHANGE_TABLE_FEED_DISABLED": "its change feed was off for a while",
    "DELTA_VERSION_NOT_FOUND": _GONE,
    "DELTA_VERSIONS_NOT_CONTIGUOUS": _GONE,
    "DELTA_TRUNCATED_TRANSACTION_LOG": _GONE,
    "DELTA_LOG_FILE_NOT_FOUND": _GONE,
    "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE": _GONE,
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION": _GONE,
    "FAILED_READ_FILE.FILE_NOT_EXIST": _GONE,
}
"""Why changes cannot be read any more, by the condition of Delta's or Spark's error."""


def locate_changes(
    spark: SparkSession, stream: Stream, text: str, format: TableFormat
) -> tuple[Stream, str]:
    """Return a stream with the full name of its table and a fixed start, and the table's id.

    :param text: the query, in which the stream is.
    :raises ServerError: NOT_SUPPORTED if it is no Delta table; MT_CHANGES_UNREADABLE if its changes
        are not recorded or it has no such version; MT_QUERY_UNSUPPORTED for ``*`` beside columns of
        the feed.
    :raises pyspark.errors.AnalysisException: if there is no such table.
    """
    if names_feed(text) and parse_query(spark, stream.with_view(text)).stars:
        reason = f"{', '.join(FEED_COLUMNS)} and * cannot be in one query: write names of columns"
        raise error(Code.MT_QUERY_UNSUPPORTED, reason=reason)
    place = current_place(spark)
    name = qualify(canonical_name(stream.table), place.catalog, place.schema)
    shown = str(visible_name(name))
    hidden = is_temporary_view(spark, stream.table) or is_path(name)
    state = None if hidden else format.find(name)
    if state is None:
        if not hidden:
            spark.table(name.quoted())  # fails if it does not exist
        line, column = position(text, stream.start)
        what, hint = f"STREAM {shown}", "STREAM reads the changes of tables in the format of Delta."
        raise error(Code.NOT_SUPPORTED, what=what, hint=hint, line=line, column=column)
    if format.describe(name).properties.get(_FEED, "").lower() != "true":
        hint = (
            f"Record them from now on: ALTER TABLE {shown} SET TBLPROPERTIES ('{_FEED}' = 'true'). "
            "Then submit the INSERT again."
        )
        raise _unreadable(shown, "its change feed is off", hint)
    start = stream.parameters.get(START)
    if start == LATEST:
        start = str(state.newest + 1)
    if start is not None and int(start) > state.newest + 1:
        reason = f"its newest version is {state.newest}, not {start}"
        raise _unreadable(shown, reason, f"Leave out {START} to begin with its rows.")
    parameters = {} if start is None else {START: start}
    return (
        replace(stream, table=(name.catalog, name.schema, name.table), parameters=parameters),
        state.table_id,
    )


def check_source(format: TableFormat, stream: Stream, table_id: str) -> None:
    """Require that the table whose changes are read is that of the INSERT.

    :raises ServerError: MT_CHANGES_UNREADABLE.
    """
    name = TableName(*stream.table)
    state = format.find(name)
    if state is None or state.table_id != table_id:
        raise _unreadable(str(visible_name(name)), _REPLACED, _READ_TOO_LATE)


def read_changes(spark: SparkSession, stream: Stream, text: str, format: TableFormat) -> DataFrame:
    """Return what a query returns of each change, with the columns CHANGE and VERSION.

    Both images of an updated row pass through the query, so that a row that its condition starts
    to include is inserted, and one that it stops to include is deleted.
    """
    name = TableName(*stream.table)
    reader = spark.readStream.format("delta").option("readChangeFeed", "true")
    reader = reader.option("maxFilesPerTrigger", _WHOLE)
    first: Column | None = None
    if (start := stream.parameters.get(START)) is not None:
        state = format.find(name)
        # Delta begins with an existing version only.
        begin = int(start) if state is None else min(int(start), state.newest)
        reader = reader.option(START, str(begin))
        first = F.col("_commit_version") >= int(start)
    feed = reader.table(name.quoted())
    if first is not None:
        feed = feed.where(first)
    shown = feed.columns if names_feed(text) else [c for c in feed.columns if c not in FEED_COLUMNS]
    columns = [F.col(quote_column(column)) for column in shown]
    change, version = (F.col(column) for column in FEED_COLUMNS[:2])
    feed = feed.select(*columns, change.alias(CHANGE), version.alias(VERSION))
    feed.select(*columns).createOrReplaceTempView(VIEW)
    frame: Any = spark.sql(stream.with_view(text))
    plan, _ = _pass_on(java(spark), frame._jdf.queryExecution().analyzed())
    return frame_of(spark, plan)


def unreadable_error(problem: ServerError, stream: Stream) -> ServerError:
    """Return the error for a stream that has failed, in words on the table if that is known."""
    reason = _UNREADABLE.get(problem.code)
    if reason is None:
        return problem
    name = str(visible_name(TableName(*stream.table)))
    return _unreadable(name, reason, _READ_TOO_LATE, detail=problem.headline)


def _unreadable(source: str, reason: str, hint: str, *, detail: str = "") -> ServerError:
    return error(Code.MT_CHANGES_UNREADABLE, source=source, reason=reason, hint=hint, detail=detail)


def _pass_on(jvm: Any, node: Any) -> tuple[Any, Sequence[Any]]:
    """Return the plan of a query that processes one row at a time, with CHANGE and VERSION as its
    last columns, and those; none if the plan does not contain them.
    """
    sequence = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    hidden = [each for each in items(node.output()) if str(each.name()) in (CHANGE, VERSION)]
    if hidden:
        return node, hidden
    children = [_pass_on(jvm, child) for child in items(node.children())]
    passed = [column for _, columns in children for column in columns]
    below = [child for child, _ in children]
    if kind(node) == "Project" and passed:
        columns = sequence([*items(node.projectList()), *passed])
        return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(columns, below[0]), passed
    return (node.withNewChildren(sequence(below)) if below else node), passed
