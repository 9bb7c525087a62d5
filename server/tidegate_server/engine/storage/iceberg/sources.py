"""Iceberg tables of catalogs as versioned sources.

The version of a table is the sequence number of the last snapshot that changed its rows: unlike the
ids of snapshots, sequence numbers are ordered. The commit of a version is the snapshot's id with
that of the columns, which change without a snapshot.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.model.names import TableName, quote_identifier
from tidegate_server.core.model.runs import ChangeMethod
from tidegate_server.engine.storage.base import (
    FoundChange,
    ReadVersion,
    TableState,
    VersionGoneError,
    table_sql,
)
from tidegate_server.engine.storage.catalogs import pinned_table
from tidegate_server.engine.storage.exact import WEIGHT, quote_column
from tidegate_server.engine.storage.iceberg.columns import same_columns, select_list
from tidegate_server.engine.storage.iceberg.snapshots import (
    APPEND,
    EMPTY,
    Snapshot,
    changes_between,
    last_change,
)
from tidegate_server.engine.storage.iceberg.tables import LoadedTable, load_table, relation_of
from tidegate_server.engine.storage.jvm import active_session, frame_of
from tidegate_server.engine.storage.table_properties import PROPERTY_ID

_NUMBERED: Final = 2
"""The first version of the format with sequence numbers."""
_BEFORE_ALL: Final = -1
"""The id of a snapshot for the empty table, in ``Snapshots.java``."""
_MOST_FILES: Final = 200_000
"""With more in two snapshots, comparing them takes too long and too much memory."""
_TABLE: Final = "org.apache.iceberg.spark.source.SparkTable"


class IcebergSources:
    """Iceberg tables with format version 2 and later; others have no sequence numbers."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def find(self, name: TableName) -> TableState | None:
        found = load_table(self._spark, name)
        if found is None or found.format_version < _NUMBERED:
            return None
        if found.current is None:
            version = newest = EMPTY
        else:
            version, newest = last_change(found.history).number, found.current.number
            if version == EMPTY or _selected(found, found.current) is None:
                return None  # no snapshot since the upgrade of the format, or other fields
        return TableState(
            table_id=found.uuid,
            version=version,
            newest=newest,
            columns=found.columns.names,
            materialized_id=found.properties.get(PROPERTY_ID),
            commit=self.commit_id(name, version),
        )

    def commit_id(self, name: TableName, version: int) -> str | None:
        found = load_table(self._spark, name)
        if found is None:
            return None
        snapshot = found.numbered(version)
        if snapshot is None and version != EMPTY:
            return None
        shown = "" if snapshot is None else snapshot.id
        return f"{shown}@{found.columns.schema_id}"

    def snapshot_id(self, name: TableName, commit: str) -> str | None:
        return commit.partition("@")[0] or None

    def difference(self, name: TableName, read: str, now: str) -> str:
        if self.snapshot_id(name, read) == self.snapshot_id(name, now):
            return "has other columns than when it was read last"
        return "has another history than when it was read last"

    def location(self, name: TableName) -> str:
        """Return the location with the newest snapshot: catalogs may share a location."""
        found = load_table(self._spark, name)
        if found is None:
            return str(name)
        return f"{found.location}@{'' if found.current is None else found.current.id}"

    def version_sql(self, name: TableName, version: int) -> str:
        found = self._loaded(name, version)
        if version == EMPTY:
            listed = ", ".join(map(quote_identifier, found.columns.names))
            return f"(SELECT {listed} FROM {table_sql(name)} WHERE false)"
        snapshot = _numbered(found, name, version)
        pinned = f"{table_sql(name)} VERSION AS OF {snapshot.id}"
        selected = _selected(found, snapshot)
        if selected is None:
            raise VersionGoneError(name, f"its columns are others than in version {version}")
        return f"(SELECT {', '.join(selected)} FROM {pinned})" if selected else pinned

    def rows(self, session: SparkSession, name: TableName, version: int) -> DataFrame:
        return session.sql(f"SELECT * FROM {self.version_sql(name, version)}")

    def read_version(self, leaf: Any) -> ReadVersion | None:
        table = pinned_table(leaf, _TABLE)
        if table is None:
            return None
        chosen = table.snapshotId()
        snapshot = None if chosen is None else table.table().snapshot(chosen)
        if snapshot is None:
            return None
        return ReadVersion(
            table_id=str(table.table().uuid()),
            version=int(snapshot.sequenceNumber()),
            columns=frozenset(str(column.name()) for column in table.columns()),
        )

    def change(
        self, session: SparkSession, name: TableName, table_id: str, before: int, after: int
    ) -> FoundChange:
        if before == after:
            return FoundChange(method=ChangeMethod.UNCHANGED, rows=0)
        found = load_table(self._spark, name)
        if found is None or found.uuid != table_id:
            return _unknown_change("TABLE_REPLACED")
        old, new = found.numbered(before), found.numbered(after)
        if new is None or (old is None and before != EMPTY):
            return _unknown_change("VERSION_GONE")
        if any(_selected(found, s) is None for s in (old, new) if s is not None):
            return _unknown_change("SCHEMA_CHANGED")
        if any(column.lower() == WEIGHT for column in found.columns.names):
            return _unknown_change("COLUMN_NAMED_WEIGHT")
        changed = changes_between(found.history, old, new)
        if changed == ():
            return FoundChange(method=ChangeMethod.UNCHANGED, rows=0)
        start = _BEFORE_ALL if old is None else old.id
        if changed is not None and all(s.operation == APPEND for s in changed):
            difference = found.reader.appended(found.table, start, new.id)
        elif sum(s.files or 0 for s in (old, new) if s is not None) > _MOST_FILES:
            return _unknown_change("TOO_MANY_FILES")
        else:
            difference = found.reader.difference(found.table, start, new.id)
        return _changed_files(session, found, difference, before)

    def _loaded(self, name: TableName, version: int) -> LoadedTable:
        found = load_table(self._spark, name)
        if found is None:
            raise VersionGoneError(name, f"it has no version {version} any more")
        return found


def _numbered(found: LoadedTable, name: TableName, version: int) -> Snapshot:
    snapshot = found.numbered(version)
    if snapshot is None:
        raise VersionGoneError(name, f"the snapshot of version {version} has expired")
    return snapshot


def _selected(found: LoadedTable, snapshot: Snapshot) -> tuple[str, ...] | None:
    """Return the expressions for today's columns, none if those of the snapshot are the same.

    :return: None if there are no such expressions.
    """
    then = found.columns_of(snapshot)
    if same_columns(then, found.columns):
        return ()
    return select_list(then, found.columns, _types(found))


def _types(found: LoadedTable) -> Mapping[str, str]:
    return {field.name: field.dataType.simpleString() for field in found.fields}


def _unknown_change(reason: str) -> FoundChange:
    return FoundChange(method=ChangeMethod.WHOLE, reason=reason)


def _changed_files(
    session: SparkSession, found: LoadedTable, difference: Any, before: int
) -> FoundChange:
    """Return the change whose rows are in some files of two snapshots."""
    removed, added = int(difference.removedFiles()), int(difference.addedFiles())
    if not removed and not added:
        return FoundChange(method=ChangeMethod.UNCHANGED, rows=0)
    name = uuid.uuid4().hex
    staged = {
        f"{name}-removed": (-1, difference.removed, removed),
        f"{name}-added": (1, difference.added, added),
    }
    columns = [quote_column(column) for column in found.columns.names]

    def read() -> DataFrame:
        frames = [
            _frame(session, stage(key)).selectExpr(*columns, f"{weight}L AS {WEIGHT}")
            for key, (weight, stage, files) in staged.items()
            if files
        ]
        return frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])

    def release() -> None:
        for key in staged:
            difference.release(key)

    return FoundChange(
        method=ChangeMethod.DIFFERENCE if removed else ChangeMethod.APPENDED,
        base=before,
        rows=int(difference.rows()),
        read=read,
        release=release,
    )


def _frame(session: SparkSession, table: Any) -> DataFrame:
    with active_session(session):
        return frame_of(session, relation_of(session, table))
