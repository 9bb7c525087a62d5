"""Loads Iceberg tables of catalogs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812  Spark's own convention

from tidegate_server.core.model.names import TableName
from tidegate_server.engine.storage.base import is_foreign
from tidegate_server.engine.storage.catalogs import catalog_of, identifier_of
from tidegate_server.engine.storage.iceberg.columns import Columns, parse_columns
from tidegate_server.engine.storage.iceberg.snapshots import Snapshot, parse_snapshots
from tidegate_server.engine.storage.jvm import (
    active_session,
    compiled_instance,
    java_source,
)

_PACKAGE: Final = "org.apache.iceberg."
_HISTORY: Final = 1000
"""How many snapshots are looked back at most."""
_FIRST: Final = 20
"""How many of them are enough in most cases."""

_loaded: ContextVar[dict[TableName, LoadedTable | None] | None] = ContextVar("loaded", default=None)


@dataclass(frozen=True)
class LoadedTable:
    """The metadata of an Iceberg table at one moment."""

    reader: Any
    """The instance of ``Snapshots.java``."""
    table: Any
    uuid: str
    format_version: int
    location: str
    columns: Columns
    fields: T.StructType
    """The same columns with the types of Spark."""
    recent: tuple[Snapshot, ...]
    """The current snapshot and the ones before it, newest first; empty for an empty table."""

    @property
    def current(self) -> Snapshot | None:
        """The current snapshot; None if nothing was ever written."""
        return self.recent[0] if self.recent else None

    @cached_property
    def history(self) -> tuple[Snapshot, ...]:
        """All known snapshots up to the current one, newest first."""
        if len(self.recent) < _FIRST:
            return self.recent
        return parse_snapshots(str(self.reader.history(self.table, _HISTORY)))

    def numbered(self, number: int) -> Snapshot | None:
        """Return the snapshot with a sequence number; None if there is none any more."""
        for snapshot in self.recent:
            if snapshot.number == number:
                return snapshot
        found = parse_snapshots(str(self.reader.numbered(self.table, number)))
        return found[0] if len(found) == 1 else None

    def columns_of(self, snapshot: Snapshot) -> Columns:
        """Return the columns with which Spark reads a snapshot."""
        if snapshot.schema_id in (None, self.columns.schema_id):
            return self.columns
        text = self.reader.schema(self.table, snapshot.schema_id)
        return self.columns if text is None else parse_columns(str(text))

    @property
    def state(self) -> tuple[str, ...]:
        """Texts that identify the newest snapshot and the columns."""
        newest = "" if self.current is None else str(self.current.id)
        return (self.uuid, newest, str(self.columns.schema_id))


@contextmanager
def loading_once() -> Iterator[None]:
    """Load each Iceberg table once in this thread until the block ends.

    What is read of a table then comes from one state of its metadata. A block inside of another one
    loads the tables again.
    """
    token = _loaded.set({})
    try:
        yield
    finally:
        _loaded.reset(token)


def load_table(spark: SparkSession, name: TableName) -> LoadedTable | None:
    """Return the Iceberg table of a catalog as it is now; None if there is none of this name.

    :raises py4j.protocol.Py4JError: or an error of Spark if the catalog cannot be used.
    """
    known = _loaded.get()
    if known is None:
        return _load(spark, name)
    if name not in known:
        known[name] = _load(spark, name)
    return known[name]


def _load(spark: SparkSession, name: TableName) -> LoadedTable | None:
    if not is_foreign(name):
        return None
    with active_session(spark):
        catalog = catalog_of(spark, name)
        if catalog is None or not str(catalog.getClass().getName()).startswith(_PACKAGE):
            return None
        try:
            found = catalog.loadTable(identifier_of(spark, name))
        except AnalysisException:
            return None  # there is no such table, or schema
        if not str(found.getClass().getName()).startswith(_PACKAGE):
            return None
        return _read(spark, found.table())


def _read(spark: SparkSession, found: Any) -> LoadedTable | None:
    source = java_source(__package__, "Snapshots")
    reader = compiled_instance(spark, "tidegate.Snapshots", source)
    table = reader.freeze(found)
    if table is None:
        return None
    uuid, format_version, location, columns, fields = str(reader.facts(table)).split("\n")
    return LoadedTable(
        reader=reader,
        table=table,
        uuid=uuid,
        format_version=int(format_version),
        location=location,
        columns=parse_columns(columns),
        fields=T.StructType.fromJson(json.loads(fields)),
        recent=parse_snapshots(str(reader.history(table, _FIRST))),
    )
