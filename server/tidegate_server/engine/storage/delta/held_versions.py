"""Versions of a Delta table that are held back until they are published.

A held version is a separate Delta table in a subdirectory of the table's, which the table itself
ignores: it is moved and deleted together with the table. Its only commit already contains the
metadata it will be published with. Each one has a directory named after its refresh.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.commit_metadata import last_refresh
from tidegate_server.engine.storage.commit_record import RecordedRefresh
from tidegate_server.engine.storage.delta.commits import commits, newest_snapshot
from tidegate_server.engine.storage.jvm import java

logger = logging.getLogger(__name__)

# Delta's VACUUM spares names that begin with an underscore.
_DIRECTORY = "_tidegate_held"
_LOG = "_delta_log"


class HeldVersions:
    """The held versions of the table at ``location``."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark = spark
        self._jvm: Any = java(spark)
        self._root = self._jvm.org.apache.hadoop.fs.Path(location, _DIRECTORY)
        session: Any = spark._jsparkSession
        self._files = self._root.getFileSystem(session.sessionState().newHadoopConf())

    def write(self, rows: DataFrame, order: RefreshOrder, metadata: str) -> None:
        """Write a version, and delete those of earlier epochs.

        :param metadata: the metadata of its commit, as for a refresh.
        """
        directory = self._directory(order.refresh_id)
        # Created first: otherwise Delta would consider it part of the enclosing table.
        self._files.mkdirs(self._path(directory, _LOG))
        pause_at(Point.BEFORE_COMMIT)
        writer = rows.write.format("delta").mode("overwrite").option("userMetadata", metadata)
        writer.save(directory)
        pause_at(Point.AFTER_COMMIT)
        # Keep later ones: this refresh may have outlived its lease.
        earlier = (each for each in self._find_all(order.table_id) if each.epoch < order.epoch)
        self._remove(each.refresh_id for each in earlier)

    def find(self, materialized_id: str, refresh_id: str | None = None) -> RecordedRefresh | None:
        """Return the commit of the given refresh's version, or of the newest version."""
        if refresh_id is not None:
            return self._commit(refresh_id, materialized_id)
        return max(self._find_all(materialized_id), key=lambda commit: commit.epoch, default=None)

    def rows(self, session: SparkSession, refresh_id: str) -> DataFrame:
        """Return a version's rows."""
        return session.read.format("delta").load(self._directory(refresh_id))

    def clear(self) -> None:
        """Delete all held versions; failures are only logged, as leftovers do no harm."""
        self._remove(self._refreshes())

    def _commit(self, refresh_id: str, materialized_id: str) -> RecordedRefresh | None:
        directory = self._directory(refresh_id)
        if not self._files.exists(self._path(directory, _LOG)):
            return None
        session: Any = self._spark._jsparkSession
        log = self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session, self._path(directory))
        snapshot = newest_snapshot(self._jvm, log)
        if int(snapshot.version()) < 0:
            return None
        return last_refresh(commits(self._jvm, snapshot), materialized_id)

    def _find_all(self, materialized_id: str) -> Iterator[RecordedRefresh]:
        found = (self._commit(each, materialized_id) for each in self._refreshes())
        return (commit for commit in found if commit is not None)

    def _refreshes(self) -> Iterator[str]:
        if self._files.exists(self._root):
            for status in self._files.listStatus(self._root):
                yield str(status.getPath().getName())

    def _remove(self, refreshes: Iterator[str]) -> None:
        try:
            for directory in map(self._directory, refreshes):
                # The log first: without it, nothing is a version, even if the next step fails.
                self._files.delete(self._path(directory, _LOG), True)
                self._files.delete(self._path(directory), True)
        except (PySparkException, Py4JJavaError):
            logger.warning("held versions in %s cannot be removed", self._root, exc_info=True)

    def _directory(self, refresh_id: str) -> str:
        return f"{self._root.toString()}/{refresh_id}"

    def _path(self, *parts: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path("/".join(parts))
