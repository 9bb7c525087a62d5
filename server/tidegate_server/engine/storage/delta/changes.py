"""Reads the change of a Delta table between two versions by the cheapest exact method."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.core.model.runs import ChangeMethod
from tidegate_server.engine.storage.base import FoundChange
from tidegate_server.engine.storage.delta.files import read_files
from tidegate_server.engine.storage.delta.log import (
    Action,
    Span,
    column_layout,
    has_change_feed,
    read_span,
    stored_vector,
    vacuum_candidates,
)
from tidegate_server.engine.storage.delta.tables import metadata_of
from tidegate_server.engine.storage.exact import WEIGHT, quote_column
from tidegate_server.engine.storage.jvm import active_session, java, scala_object

_MOST_FILES_CHECKED = 1000
_REMOVED = "_change_type IN ('delete', 'update_preimage')"


def read_change(session: SparkSession, snapshot: Any, before: int, after: int) -> FoundChange:
    """Return the change after version ``before`` up to ``after``; starts no Spark job.

    :param snapshot: the table's newest snapshot.
    """
    log, newest = snapshot.deltaLog(), int(snapshot.version())
    if before == after:
        return FoundChange(method=ChangeMethod.UNCHANGED, rows=0)
    if before > after:
        return _unknown_change("VERSION_WENT_BACK")
    jvm: Any = java(session)
    span = read_span(jvm, log, before, newest)
    if span is None:
        return _unknown_change("VERSION_GONE")
    before = span.same_until(before, after)
    span = span.since(before)
    if not _can_recreate(jvm, log, before):
        return _unknown_change("VERSION_GONE")
    metadata = _metadata_before(jvm, log, snapshot, before, span)
    if any(column_layout(later) != column_layout(metadata) for later in span.metadata):
        return _unknown_change("SCHEMA_CHANGED")
    if any(field["name"].lower() == WEIGHT for field in _fields(metadata)):
        return _unknown_change("COLUMN_NAMED_WEIGHT")
    wanted = span.until(after)
    if not wanted.changes_rows:
        return FoundChange(method=ChangeMethod.UNCHANGED, rows=0)
    if not _files_exist(jvm, log, vacuum_candidates(span, _MOST_FILES_CHECKED)):
        return _unknown_change("FILES_GONE")
    if wanted.only_adds:
        return FoundChange(
            method=ChangeMethod.APPENDED,
            base=before,
            rows=wanted.rows,
            read=partial(_added_rows, session, snapshot, wanted),
        )
    recorded = all(has_change_feed(each) for each in (metadata, *wanted.metadata))
    return FoundChange(
        method=ChangeMethod.CHANGE_FEED if recorded else ChangeMethod.DIFFERENCE,
        base=before,
        rows=wanted.rows,
        guess=wanted.guess,
        read=partial(_changed_rows, session, log, metadata, before, after, recorded=recorded),
    )


def _unknown_change(reason: str) -> FoundChange:
    return FoundChange(method=ChangeMethod.WHOLE, reason=reason)


def _added_rows(session: SparkSession, snapshot: Any, span: Span) -> DataFrame:
    jvm: Any = java(session)
    parser = scala_object(jvm, "org.apache.spark.sql.delta.actions.Action")
    added = (json.dumps({"add": file}) for commit in span.commits for file in commit.added)
    with active_session(session):
        rows = read_files(session, snapshot, [parser.fromJson(text) for text in added])
    return rows.withColumn(WEIGHT, F.lit(1).cast("bigint"))


def _changed_rows(
    session: SparkSession, log: Any, metadata: Action, before: int, after: int, *, recorded: bool
) -> DataFrame:
    """Return the change feed, or compare the rows of replaced files if nothing is recorded."""
    jvm: Any = java(session)
    nothing = jvm.scala.Option.empty()
    reader = scala_object(jvm, "org.apache.spark.sql.delta.commands.cdc.CDCReader")
    with active_session(session):
        rows = reader.changesToBatchDF(
            log, before + 1, after, session._jsparkSession, nothing, nothing, not recorded, nothing
        )
    frame = DataFrame(rows, session)
    columns = [quote_column(field["name"]) for field in _fields(metadata)]
    return frame.selectExpr(*columns, f"if({_REMOVED}, -1L, 1L) AS {WEIGHT}")


def _metadata_before(jvm: Any, log: Any, snapshot: Any, before: int, span: Span) -> Action:
    if span.metadata:
        nothing = jvm.scala.Option.empty()
        snapshot = log.getSnapshotAt(before, nothing, nothing, False)
    return metadata_of(snapshot)


def _fields(metadata: Action) -> Iterable[Action]:
    fields: Iterable[Action] = json.loads(metadata["schemaString"])["fields"]
    return fields


def _can_recreate(jvm: Any, log: Any, version: int) -> bool:
    try:
        log.history().checkVersionExists(version, jvm.scala.Option.empty(), True, False)
    except (PySparkException, Py4JJavaError):
        return False
    return True


def _files_exist(jvm: Any, log: Any, wanted: Iterable[Action]) -> bool:
    data = log.dataPath()
    files = data.getFileSystem(log.newDeltaHadoopConf())
    return all(files.exists(path) for file in wanted for path in _paths(jvm, data, file))


def _paths(jvm: Any, data: Any, file: Action) -> Iterator[Any]:
    """Yield the paths of a file and its deletion vector."""
    path = jvm.org.apache.hadoop.fs.Path
    yield path(data, path(jvm.java.net.URI(file["path"])))
    if stored_vector(file) is not None:
        parser = scala_object(jvm, "org.apache.spark.sql.delta.actions.Action")
        removed = parser.fromJson(json.dumps({"remove": file}))
        yield removed.deletionVector().absolutePath(data)
