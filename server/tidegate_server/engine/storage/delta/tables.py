"""Resolves the name of a Delta table to its newest snapshot, and reads that."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812  Spark's own convention

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.names import TableName, storage_name
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.base import ReadVersion, is_path
from tidegate_server.engine.storage.commit_metadata import last_refresh
from tidegate_server.engine.storage.commit_record import RecordedRefresh
from tidegate_server.engine.storage.delta.commits import Commit, commits, newest_snapshot
from tidegate_server.engine.storage.entries import entry_of, provider_of
from tidegate_server.engine.storage.jvm import field_names, java, kind

PROVIDER = "delta"

_snapshots: ContextVar[dict[TableName, Any] | None] = ContextVar("snapshots", default=None)


@contextmanager
def updating_once() -> Iterator[None]:
    """Look for newer commits of each Delta table once in this thread until the block ends.

    Each time, Delta lists the directory of the log. Nothing may be written based on the snapshots.
    """
    token = _snapshots.set({})
    try:
        yield
    finally:
        _snapshots.reset(token)


class DeltaTables:
    """Delta tables of the session catalog, and those known by their path."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm: Any = java(spark)

    def newest_snapshot(self, name: TableName) -> Any:
        """Return the newest snapshot, or None if there is no such Delta table."""
        known = _snapshots.get()
        if known is None:
            return self._update(name)
        key = name if is_path(name) else name.folded()
        if key not in known:
            known[key] = self._update(name)
        return known[key]

    def _update(self, name: TableName) -> Any:
        place: Any
        if is_path(name):
            place = self.identifier(name) if _is_delta_path(name) else None
        else:
            place = self._entry(name) or self._entry(storage_name(name))
        if place is None:
            return None
        snapshot = newest_snapshot(self._jvm, self.log(place))
        return snapshot if int(snapshot.version()) >= 0 else None

    def target_snapshot(self, order: RefreshOrder) -> Any:
        """Return the newest snapshot of the table that a refresh writes to.

        :raises ServerError: MT_DATA_LOST if there is none.
        """
        snapshot = self.newest_snapshot(order.name)
        if snapshot is None:
            raise error(
                Code.MT_DATA_LOST, table=str(order.name), reason="its Delta table does not exist"
            )
        return snapshot

    def commits(self, order: RefreshOrder) -> Iterator[Commit]:
        """Return the commits of the table that a refresh writes to, newest first."""
        return commits(self._jvm, self.target_snapshot(order))

    def last_commit(
        self, name: TableName, materialized_id: str, *, at: int | None = None
    ) -> RecordedRefresh | None:
        """Return what the newest commit of a refresh recorded; ``at``: up to that version."""
        snapshot = self.newest_snapshot(name)
        if snapshot is None:
            return None
        return last_refresh(commits(self._jvm, snapshot, at), materialized_id)

    def log(self, place: Any) -> Any:
        """Return the ``DeltaLog`` of a path, an identifier or a catalog entry."""
        session: Any = self._spark._jsparkSession
        return self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session, place)

    def identifier(self, name: TableName) -> Any:
        """Return Catalyst's identifier of a table or path."""
        option = self._jvm.scala.Option
        catalog = option.empty() if is_path(name) else option.apply(name.catalog)
        return self._jvm.org.apache.spark.sql.catalyst.TableIdentifier(
            name.table, option.apply(name.schema), catalog
        )

    def storage_table(self, name: TableName) -> TableName:
        """Return the table with the rows, which may be behind a materialized table's view."""
        behind = storage_name(name)
        if is_path(name) or self.exists(name) or not self.exists(behind):
            return name
        return behind

    def exists(self, name: TableName) -> bool:
        """Say whether the session catalog has a Delta table of exactly this name."""
        return self._entry(name) is not None

    def _entry(self, name: TableName) -> Any:
        """Return the catalog entry of a Delta table, or None."""
        entry = entry_of(self._spark, name)
        return entry if entry is not None and provider_of(entry) == PROVIDER else None


def metadata_of(snapshot: Any) -> dict[str, Any]:
    """Return a table's ``metaData`` action from the log, in one round trip to the JVM."""
    action: dict[str, Any] = json.loads(str(snapshot.metadata().json()))["metaData"]
    return action


def fields_of(metadata: Mapping[str, Any]) -> T.StructType:
    """Return the columns of a ``metaData`` action."""
    return T.StructType.fromJson(json.loads(metadata["schemaString"]))


def schema_of(snapshot: Any) -> T.StructType:
    """Return a table's columns."""
    return T.StructType.fromJson(json.loads(snapshot.metadata().schema().json()))


def version_of_leaf(leaf: Any) -> ReadVersion | None:
    """Return the version that a leaf of an analyzed plan reads; None if it reads no Delta table."""
    if kind(leaf) != "LogicalRelation":
        return None
    location = getattr(leaf.relation(), "location", lambda: None)()
    if location is None or kind(location) != "TahoeLogFileIndex":
        return None
    snapshot = location.getSnapshot()
    return ReadVersion(
        table_id=str(snapshot.metadata().id()),
        version=int(snapshot.version()),
        columns=frozenset(field_names(leaf.relation().schema())),
    )


def path_of(snapshot: Any) -> str:
    """Return the location of a table's files."""
    return str(snapshot.deltaLog().dataPath().toString())


def _is_delta_path(name: TableName) -> bool:
    return is_path(name) and name.schema.lower() == PROVIDER
