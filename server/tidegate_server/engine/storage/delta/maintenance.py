"""Maintains the files of a Delta table: compacts small ones, deletes unneeded ones.

Both are Delta's own commands, with Delta's own checks of what a snapshot needs. Neither changes
rows, so refreshes do not consider their commits foreign.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.model.names import TableName
from tidegate_server.core.refresh.maintenance import (
    LARGE_FILE,
    LEAST_AGE,
    FilesRemoved,
    FilesRewritten,
    FileStatistics,
    NeededVersion,
)
from tidegate_server.engine.storage.delta.commits import commits, newest_snapshot
from tidegate_server.engine.storage.delta.table_files import TableFiles
from tidegate_server.engine.storage.jvm import active_session, java, scala_object

_DELTA = "spark.databricks.delta."
_SMALL_FILE = LARGE_FILE // 4
"""Files of at least this size are not rewritten."""
_BATCH = LARGE_FILE
"""Bytes that one commit rewrites; earlier commits remain when the rest is canceled."""

_LOG_MARGIN = timedelta(days=1)


def inspect_files(jvm: Any, snapshot: Any, versions: Sequence[int], back: int) -> FileStatistics:
    """Return statistics of a table's files; starts a Spark job only if there is no checksum."""
    checksum = snapshot.checksumOpt()
    known = checksum.get() if checksum.isDefined() else None
    newest = int(snapshot.version())
    delta = scala_object(jvm, "org.apache.spark.sql.delta.DeltaLog")
    metadata = snapshot.metadata()
    retention = delta.tombstoneRetentionMillis(metadata)
    log_retention = snapshot.deltaLog().deltaRetentionMillis(metadata)
    needed = (_needed_version(jvm, snapshot, version) for version in versions if version < newest)
    return FileStatistics(
        version=newest,
        files=int(known.numFiles() if known else snapshot.numOfFiles()),
        size=int(known.tableSizeBytes() if known else snapshot.sizeInBytes()),
        retention=timedelta(milliseconds=int(retention)),
        log_retention=timedelta(milliseconds=int(log_retention)),
        needed=tuple(version for version in needed if version is not None),
        oldest_wanted=_commit_time(jvm, snapshot, newest - back) if back else None,
    )


def rewrite_files(session: SparkSession, name: TableName, run_id: str) -> FilesRewritten:
    """Compact small files within their partitions and clusters."""
    for key, value in {
        "optimize.minFileSize": _SMALL_FILE,
        "optimize.maxFileSize": LARGE_FILE,
        "optimize.batchSize": _BATCH,
        "commitInfo.userMetadata": _metadata(run_id),
    }.items():
        session.conf.set(_DELTA + key, str(value))
    done = session.sql(f"OPTIMIZE {name.quoted()}").first()
    metrics = done["metrics"] if done is not None else None
    if metrics is None:
        return FilesRewritten()
    return FilesRewritten(added=metrics["numFilesAdded"], removed=metrics["numFilesRemoved"])


def remove_files(
    session: SparkSession, snapshot: Any, before: datetime, run_id: str
) -> FilesRemoved:
    """Delete files that no version since ``before`` needs, including those of crashed writers.

    If the directory has foreign files, only files named in the log are deleted: Delta would take
    the foreign ones for files of crashed writers.
    """
    jvm: Any = java(session)
    # The caller knows which versions are needed; users' sessions keep Delta's check.
    session.conf.set(f"{_DELTA}retentionDurationCheck.enabled", "false")
    session.conf.set(f"{_DELTA}vacuum.logging.enabled", "true")
    session.conf.set(f"{_DELTA}commitInfo.userMetadata", _metadata(run_id))
    option, log = jvm.scala.Option, snapshot.deltaLog()
    tables = scala_object(jvm, "org.apache.spark.sql.delta.catalog.DeltaTableV2")
    nothing = jvm.PythonUtils.toScalaMap({})
    spark: Any = session._jsparkSession
    table = tables.apply(
        spark, log.dataPath(), option.empty(), option.empty(), nothing, option.empty()
    )
    # Delta takes a retention in whole hours: 0, with the clock set to the horizon.
    clock = jvm.org.apache.spark.util.ManualClock(int(before.timestamp() * 1000))
    shared = bool(TableFiles(session, str(log.dataPath().toString())).foreign_names())
    kind = option.apply("LITE") if shared else option.empty()
    with active_session(session):
        scala_object(jvm, "org.apache.spark.sql.delta.commands.VacuumCommand").gc(
            spark, table, False, option.apply(0.0), option.empty(), kind, nothing, clock
        )
    count = size = 0
    for commit in commits(jvm, newest_snapshot(jvm, log)):
        if commit.version <= int(snapshot.version()):
            break
        if commit.metadata.get("upkeep") == run_id:
            count += int(commit.metrics.get("numDeletedFiles", 0))
            size += int(commit.metrics.get("sizeOfDataToDelete", 0))
    return FilesRemoved(files=count, size=size)


def shorten_log(session: SparkSession, snapshot: Any, before: datetime) -> None:
    """Delete the log of versions made before a time, except what later versions need."""
    jvm: Any = java(session)
    empty, log = jvm.scala.Option.empty(), snapshot.deltaLog()
    # Keep some more, since a version is read starting from an earlier checkpoint.
    age = int((datetime.now(UTC) - before + _LOG_MARGIN).total_seconds() * 1000)
    minute = scala_object(jvm, "org.apache.spark.sql.delta.TruncationGranularity").MINUTE()
    with active_session(session):
        log.cleanUpExpiredLogs(snapshot, empty, _long(jvm, age), minute)


def _needed_version(jvm: Any, snapshot: Any, version: int) -> NeededVersion | None:
    made, later = (_commit_time(jvm, snapshot, each) for each in (version, version + 1))
    if made is None or later is None:
        return None
    # The writer of the next version had started some time before it committed.
    return NeededVersion(made=made, left=max(made, later - LEAST_AGE))


def _commit_time(jvm: Any, snapshot: Any, version: int) -> datetime | None:
    """Return the time of a version's commit; None if the log has expired."""
    if version < 0:
        return None
    found = next(commits(jvm, snapshot, version), None)
    return found.at if found is not None else None


def _long(jvm: Any, number: int) -> Any:
    """Return Some of a Long; py4j would pass a small number as an Integer."""
    converters = jvm.scala.jdk.javaapi.OptionConverters
    return converters.toScala(jvm.java.util.OptionalLong.of(number))


def _metadata(run_id: str) -> str:
    return json.dumps({"upkeep": run_id})
