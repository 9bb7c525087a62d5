"""The place beside a Delta table where a version waits to be published.

It is a Delta table of its own in a directory within the table's, which the table itself does not
look at: whatever moves or removes the table takes it along. Its one commit says of it what the
commit that publishes it will say. Each has a new directory, by the refresh that made it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.refresh.request import CommittedRefresh, RefreshOrder
from tidegate_server.engine.storage.delta.commits import commits, newest_snapshot
from tidegate_server.engine.storage.delta.write import last_refresh
from tidegate_server.engine.storage.jvm import java

logger = logging.getLogger(__name__)

# Delta's VACUUM leaves alone what begins with an underscore.
_DIRECTORY = "_tidegate_held"
_LOG = "_delta_log"


class HeldPlace:
    """Where the versions of the table at ``location`` wait."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark = spark
        self._jvm: Any = java(spark)
        self._root = self._jvm.org.apache.hadoop.fs.Path(location, _DIRECTORY)
        session: Any = spark._jsparkSession
        self._files = self._root.getFileSystem(session.sessionState().newHadoopConf())

    def put(self, rows: DataFrame, order: RefreshOrder, metadata: str) -> None:
        """Write a version in the place of earlier ones.

        :param metadata: what its commit says, as that of a refresh does.
        """
        place = self._place(order.refresh_id)
        # Made first, or Delta would take the place for a part of the table around it.
        self._files.mkdirs(self._path(place, _LOG))
        pause_at(Point.BEFORE_COMMIT)
        writer = rows.write.format("delta").mode("overwrite").option("userMetadata", metadata)
        writer.save(place)
        pause_at(Point.AFTER_COMMIT)
        # Never a later one: this may be a refresh that outlived its lease.
        earlier = (each for each in self._found(order.table_id) if each.epoch < order.epoch)
        self._remove(each.refresh_id for each in earlier)

    def find(self, materialized_id: str, refresh_id: str | None = None) -> CommittedRefresh | None:
        """Return what a version's commit says: of the given one, or of the newest."""
        if refresh_id is not None:
            return self._commit(refresh_id, materialized_id)
        return max(self._found(materialized_id), key=lambda commit: commit.epoch, default=None)

    def rows(self, session: SparkSession, refresh_id: str) -> DataFrame:
        """Return a version's rows."""
        return session.read.format("delta").load(self._place(refresh_id))

    def clear(self) -> None:
        """Throw away what waits here; what cannot be removed is in nobody's way."""
        self._remove(self._refreshes())

    def _commit(self, refresh_id: str, materialized_id: str) -> CommittedRefresh | None:
        place = self._place(refresh_id)
        if not self._files.exists(self._path(place, _LOG)):
            return None
        session: Any = self._spark._jsparkSession
        log = self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session, self._path(place))
        snapshot = newest_snapshot(self._jvm, log)
        if int(snapshot.version()) < 0:
            return None
        return last_refresh(commits(self._jvm, snapshot), materialized_id)

    def _found(self, materialized_id: str) -> Iterator[CommittedRefresh]:
        said = (self._commit(each, materialized_id) for each in self._refreshes())
        return (commit for commit in said if commit is not None)

    def _refreshes(self) -> Iterator[str]:
        if self._files.exists(self._root):
            for status in self._files.listStatus(self._root):
                yield str(status.getPath().getName())

    def _remove(self, refreshes: Iterator[str]) -> None:
        try:
            for place in map(self._place, refreshes):
                # Without its log it is no version any more, however far this comes.
                self._files.delete(self._path(place, _LOG), True)
                self._files.delete(self._path(place), True)
        except (PySparkException, Py4JJavaError):
            logger.warning("what is in %s cannot be removed", self._root, exc_info=True)

    def _place(self, refresh_id: str) -> str:
        return f"{self._root.toString()}/{refresh_id}"

    def _path(self, *parts: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path("/".join(parts))
