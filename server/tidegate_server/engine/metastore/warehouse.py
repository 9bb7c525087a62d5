"""Finds Delta tables of the warehouse that the metastore does not know, and registers them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.answers import FoundTable, TablesFound
from tidegate_server.core.messages.requests import RegisterTable
from tidegate_server.core.model.names import (
    DEFAULT_CATALOG,
    DEFAULT_SCHEMA,
    TableName,
    quote_identifier,
    quote_pairs,
)
from tidegate_server.core.model.privileges import UNOWNED, SecuredKind
from tidegate_server.engine.metastore.owners import Owners
from tidegate_server.engine.storage.delta.sql import register_sql
from tidegate_server.engine.storage.delta.table_files import TableFiles
from tidegate_server.engine.storage.jvm import items, java
from tidegate_server.engine.storage.table_locations import PROPERTY_PLACE
from tidegate_server.engine.storage.table_properties import PROPERTY_DEFINITION, PROPERTY_ID

logger = logging.getLogger(__name__)

_LOG = "_delta_log"
_SCHEMA_SUFFIX = ".db"


def find_tables(spark: SparkSession, locations: Sequence[str]) -> TablesFound:
    """Search the warehouse, and some other locations, for tables without an entry.

    A table is a directory with a Delta log in the directory of a schema or of the warehouse.
    Tables with an unreadable log are logged and skipped.
    """
    warehouse = _Warehouse(spark)
    entries, known = warehouse.entries()
    found: dict[str, FoundTable] = {}
    directories = [*warehouse.directories(), *((warehouse.path(each), None) for each in locations)]
    for path, named in directories:
        place = warehouse.qualify(path)
        if place not in known and place not in found and warehouse.is_delta(path):
            table = warehouse.read(path, named)
            if table is not None:
                found[place] = table
    return TablesFound(found=tuple(found.values()), entries=entries)


def register_table(spark: SparkSession, request: RegisterTable) -> None:
    """Register a Delta directory in the metastore; its files remain unchanged.

    The entry is external: DROP TABLE leaves the files of plain tables.

    :raises ServerError: MT_DATA_LOST if the directory does not contain the materialized table.
    """
    warehouse = _Warehouse(spark)
    path = warehouse.path(request.location)
    table = warehouse.read(path, request.name) if warehouse.is_delta(path) else None
    if table is None or table.table_id != request.table_id:
        reason = f"its Delta table is not at {request.location}"
        raise error(Code.MT_DATA_LOST, table=str(request.name), reason=reason)
    name = request.name
    schema = f"{quote_identifier(name.catalog)}.{quote_identifier(name.schema)}"
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    spark.sql(register_sql(name, request.location))
    if request.table_id and warehouse.contains(path):
        # Earlier versions did not set this property.
        made = quote_pairs({PROPERTY_PLACE: request.table_id})
        spark.sql(f"ALTER TABLE {name.quoted()} SET TBLPROPERTIES ({made})")
    # The entry would belong to the engine's own user.
    Owners(spark).set(SecuredKind.TABLE, name, UNOWNED)
    logger.info("registered %s at %s in the metastore again", name, request.location)


class _Warehouse:
    """The directories of the warehouse and the entries of the metastore."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm: Any = java(spark)
        self._session: Any = spark._jsparkSession
        self._catalog: Any = self._session.sharedState().externalCatalog()
        self._root = self.path(str(spark.conf.get("spark.sql.warehouse.dir")))

    def path(self, location: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(location)

    def qualify(self, path: Any) -> str:
        """Return a path in a canonical form for comparison."""
        return str(self._files(path).makeQualified(path).toString())

    def entries(self) -> tuple[tuple[TableName, ...], set[str]]:
        """Return the tables and views in the metastore, and the locations of the tables."""
        names, places = [], set()
        for schema in items(self._catalog.listDatabases()):
            for entry in items(
                self._catalog.getTablesByName(schema, self._catalog.listTables(schema))
            ):
                table = str(entry.identifier().table())
                names.append(TableName(DEFAULT_CATALOG, str(schema), table))
                location = entry.storage().locationUri()
                if location.isDefined():
                    place = self._jvm.org.apache.hadoop.fs.Path(location.get())
                    places.add(self.qualify(place))
        return tuple(names), places

    def directories(self) -> Iterator[tuple[Any, TableName]]:
        """Yield the directories of tables with the table names that they imply."""
        for path in self._children(self._root):
            directory = str(path.getName())
            if not directory.endswith(_SCHEMA_SUFFIX):
                yield path, TableName(DEFAULT_CATALOG, DEFAULT_SCHEMA, directory)
                continue
            schema = directory.removesuffix(_SCHEMA_SUFFIX)
            for table in self._children(path):
                yield table, TableName(DEFAULT_CATALOG, schema, str(table.getName()))

    def contains(self, path: Any) -> bool:
        """Say whether a directory is below the warehouse."""
        return self.qualify(path).startswith(f"{self.qualify(self._root)}/")

    def is_delta(self, path: Any) -> bool:
        return bool(self._files(path).exists(self._jvm.org.apache.hadoop.fs.Path(path, _LOG)))

    def read(self, path: Any, name: TableName | None) -> FoundTable | None:
        """Return a table as described by its log; None if that cannot be read."""
        location = str(path.toString())
        files = TableFiles(self._spark, location)
        if not files.have_table():
            return None
        made = files.owner_id()
        if name is not None and made is not None:
            name = replace(name, table=name.table.partition(f"-{made}")[0])
        return FoundTable(
            directory=name,
            location=location,
            table_id=files.property(PROPERTY_ID) or "",
            definition=files.property(PROPERTY_DEFINITION),
        )

    def _children(self, path: Any) -> list[Any]:
        files = self._files(path)
        if not files.exists(path):
            return []
        found = (status for status in files.listStatus(path) if status.isDirectory())
        return sorted((status.getPath() for status in found), key=lambda each: str(each.getName()))

    def _files(self, path: Any) -> Any:
        return path.getFileSystem(self._session.sessionState().newHadoopConf())
