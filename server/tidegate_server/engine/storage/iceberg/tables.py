"""Loads Iceberg tables of catalogs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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
from tidegate_server.engine.storage.catalogs import catalog_of, identifier_of, namespace_of
from tidegate_server.engine.storage.iceberg.columns import Columns, parse_columns
from tidegate_server.engine.storage.iceberg.snapshots import Snapshot, parse_snapshots
from tidegate_server.engine.storage.jvm import (
    active_session,
    compiled_instance,
    java,
    java_source,
    scala_object,
)

_PACKAGE: Final = "org.apache.iceberg."
_UNAVAILABLE: Final = "tidegate.Catalogs$Unavailable"
_RELATION: Final = "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation"
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
    partition_keys: tuple[str, ...]
    """The columns whose values are those of the partitions."""
    properties: Mapping[str, str]
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


def relation_of(spark: SparkSession, table: Any) -> Any:
    """Return the relation of a table of Spark that no catalog knows."""
    nothing = java(spark).scala.Option.empty()
    return scala_object(java(spark), _RELATION).create(table, nothing, nothing)


def live_table(spark: SparkSession, name: TableName) -> Any:
    """Return the Iceberg table of a catalog, with which it is changed.

    :return: None if there is none of this name.
    """
    with active_session(spark):
        catalog = _catalog(spark, name)
        if catalog is None:
            return None
        try:
            found = catalog.loadTable(identifier_of(spark, name))
        except AnalysisException:
            return None  # there is no such table, or schema
        if not str(found.getClass().getName()).startswith(_PACKAGE):
            return None
        return found.table()


def list_tables(spark: SparkSession, catalog: str, schema: str) -> list[TableName]:
    """Return the tables of a schema; none if there is no such schema in a catalog of Iceberg's."""
    with active_session(spark):
        found = _catalog(spark, TableName(catalog, schema, ""))
        namespace = namespace_of(spark, schema)
        if found is None or not found.namespaceExists(namespace):
            return []
        listed = [str(each.name()) for each in found.listTables(namespace)]
    return [TableName(catalog, schema, table) for table in listed]


def _catalog(spark: SparkSession, name: TableName) -> Any:
    """Return the catalog of a table; None if it is none of Iceberg's.

    Instead of a catalog that cannot be loaded, one is returned whose methods say why.
    """
    catalog = catalog_of(spark, name) if is_foreign(name) else None
    if catalog is None:
        return None
    ours = str(catalog.getClass().getName()).startswith((_PACKAGE, _UNAVAILABLE))
    return catalog if ours else None


def _load(spark: SparkSession, name: TableName) -> LoadedTable | None:
    found = live_table(spark, name)
    return None if found is None else _read(spark, found)


def _read(spark: SparkSession, found: Any) -> LoadedTable | None:
    source = java_source(__package__, "Snapshots")
    reader = compiled_instance(spark, "tidegate.Snapshots", source)
    table = reader.freeze(found)
    if table is None:
        return None
    facts = str(reader.facts(table)).split("\n")
    uuid, format_version, location, columns, fields, keys, properties = facts
    return LoadedTable(
        reader=reader,
        table=table,
        uuid=uuid,
        format_version=int(format_version),
        location=location,
        columns=parse_columns(columns),
        fields=T.StructType.fromJson(json.loads(fields)),
        partition_keys=tuple(json.loads(keys)),
        properties=json.loads(properties),
        recent=parse_snapshots(str(reader.history(table, _FIRST))),
    )
