"""Maintains the files of an Iceberg table: compacts small ones, deletes unneeded ones.

Both are Iceberg's own operations. Neither changes rows, so refreshes do not consider them foreign.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pyspark.sql import SparkSession

from tidegate_server.core.refresh.maintenance import (
    LARGE_FILE,
    LEAST_AGE,
    FilesRemoved,
    FilesRewritten,
    FileStatistics,
    NeededVersion,
)
from tidegate_server.engine.storage.iceberg.snapshots import Snapshot
from tidegate_server.engine.storage.iceberg.tables import LoadedTable
from tidegate_server.engine.storage.jvm import active_session, java

_RETENTION: Final = "history.expire.max-snapshot-age-ms"
_DEFAULT_RETENTION: Final = timedelta(days=5)
"""Iceberg's default of that property."""
_OPTIONS: Final = {
    "target-file-size-bytes": LARGE_FILE,
    "min-file-size-bytes": LARGE_FILE // 4,
    "min-input-files": 2,
}


def inspect_files(found: LoadedTable, versions: Sequence[int], back: int) -> FileStatistics:
    """Return statistics of a table's files; starts no Spark job."""
    current, history = found.current, found.history
    milliseconds = found.properties.get(_RETENTION)
    retention = (
        _DEFAULT_RETENTION if milliseconds is None else timedelta(milliseconds=int(milliseconds))
    )
    needed = (_needed_version(history, version) for version in versions)
    return FileStatistics(
        version=0 if current is None else current.number,
        files=0 if current is None else current.files or 0,
        size=0 if current is None else current.size or 0,
        retention=retention,
        log_retention=retention,
        needed=tuple(version for version in needed if version is not None),
        oldest_wanted=history[back].made if 0 < back < len(history) else None,
    )


def rewrite_files(session: SparkSession, table: Any) -> FilesRewritten:
    """Compact small files within their partitions.

    :param table: as the catalog has it.
    """
    with active_session(session):
        actions = java(session).org.apache.iceberg.spark.actions.SparkActions
        action = actions.get(session._jsparkSession).rewriteDataFiles(table)
        for key, value in _OPTIONS.items():
            action = action.option(key, str(value))
        done = action.execute()
    return FilesRewritten(
        added=int(done.addedDataFilesCount()), removed=int(done.rewrittenDataFilesCount())
    )


def remove_files(
    commits: Any, table: Any, found: LoadedTable, before: datetime, kept: Collection[int]
) -> FilesRemoved:
    """Delete the files that no version since ``before`` needs.

    :param commits: the instance of ``IcebergCommits.java``.
    :param table: as the catalog has it.
    :param kept: versions that stay in any case.
    """
    expired = _expired(found.history, before, kept)
    if not expired:
        return FilesRemoved()
    files, size = commits.expire(table, expired)
    return FilesRemoved(files=int(files), size=int(size))


def _expired(history: Sequence[Snapshot], before: datetime, kept: Collection[int]) -> list[int]:
    """Return the ids of the snapshots that were replaced before a moment, but those kept."""
    return [
        snapshot.id
        for later, snapshot in zip(history, history[1:], strict=False)
        if later.made <= before and snapshot.number not in kept
    ]


def _needed_version(history: Sequence[Snapshot], version: int) -> NeededVersion | None:
    for later, snapshot in zip(history, history[1:], strict=False):
        if snapshot.number == version:
            # The writer of the next version had started some time before it committed.
            left = max(snapshot.made, later.made - LEAST_AGE)
            return NeededVersion(made=snapshot.made, left=left)
    return None
