"""Versions of an Iceberg table that are held back until they are published.

A held version is a branch of the table, named after its refresh, with one snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.model.names import TableName
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.commit_metadata import last_refresh
from tidegate_server.engine.storage.commit_record import RecordedRefresh
from tidegate_server.engine.storage.iceberg.commits import IcebergWriter, StoredCommit
from tidegate_server.engine.storage.iceberg.snapshots import parse_snapshots
from tidegate_server.engine.storage.iceberg.tables import LoadedTable

_PREFIX: Final = "tidegate_held_"


class HeldVersions:
    """The held versions of an Iceberg table."""

    def __init__(self, writer: IcebergWriter, name: TableName) -> None:
        self._writer = writer
        self._name = name

    def write(self, rows: DataFrame, order: RefreshOrder, metadata: str) -> None:
        """Write a version, and remove those of earlier epochs.

        :param metadata: the metadata of its commit, as for a refresh.
        """
        found = self._writer.loaded(self._name)
        added = self._writer.stage(rows, found)
        pause_at(Point.BEFORE_COMMIT)
        branch = _PREFIX + order.refresh_id
        self._writer.java.hold(self._writer.live(self._name), branch, added, metadata)
        pause_at(Point.AFTER_COMMIT)
        # Keep later ones: this refresh may have outlived its lease.
        self._remove(each for each in self._all(order.table_id) if each.epoch < order.epoch)

    def find(self, materialized_id: str, refresh_id: str | None = None) -> RecordedRefresh | None:
        """Return the commit of the given refresh's version, or of the newest version."""
        found = self._all(materialized_id)
        if refresh_id is not None:
            found = [each for each in found if each.refresh_id == refresh_id]
        return max(found, key=lambda commit: commit.epoch, default=None)

    def rows(self, session: SparkSession, refresh_id: str) -> DataFrame:
        """Return a version's rows."""
        branch = f"{_PREFIX}{refresh_id}"
        return session.sql(f"SELECT * FROM {self._name.quoted()} VERSION AS OF '{branch}'")

    def clear(self, materialized_id: str) -> None:
        """Remove all held versions."""
        self._remove(self._all(materialized_id))

    def _all(self, materialized_id: str) -> list[RecordedRefresh]:
        found: LoadedTable = self._writer.loaded(self._name)
        snapshots = parse_snapshots(str(found.reader.branches(found.table, _PREFIX)))
        commits = (
            last_refresh([StoredCommit(s.number, s.metadata, keeps_rows=False)], materialized_id)
            for s in snapshots
        )
        return [commit for commit in commits if commit is not None]

    def _remove(self, held: Iterable[RecordedRefresh]) -> None:
        for each in held:
            self._writer.java.removeBranch(self._writer.live(self._name), _PREFIX + each.refresh_id)
