"""Keeps DROP TABLE, DROP SCHEMA and RENAME from deleting or moving files of other tables.

Hive deletes or moves everything in the directory that its entry has for a managed table, and with a
schema everything in the schema's directory. That directory may contain external tables, tables of
other schemas, and files that belong to no table.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.model.names import (
    DEFAULT_CATALOG,
    DEFAULT_SCHEMA,
    TableName,
    qualify,
    quote_identifier,
)
from tidegate_server.engine.gate.gate import suspended
from tidegate_server.engine.query.references import parse_statement
from tidegate_server.engine.query.resolution import current_place, is_temporary_view
from tidegate_server.engine.statement.targets import SchemaTarget, TableTarget, Target
from tidegate_server.engine.storage.delta.table_files import TableFiles
from tidegate_server.engine.storage.delta.tables import PROVIDER
from tidegate_server.engine.storage.entries import entry_of, provider_of
from tidegate_server.engine.storage.jvm import (
    analyze_only,
    compiled_instance,
    items,
    java,
    with_fields,
)
from tidegate_server.engine.storage.table_locations import TableLocations

logger = logging.getLogger(__name__)

_DROPPED = "_tidegate_dropped"
"""The empty directory to which a schema points while it is dropped."""
_LOCATION = 2
"""The position of the location in Spark's CatalogDatabase."""
_CLASS = "tidegate.Schemas"
_SOURCE = """
package tidegate;

public class Schemas {
  public void dropSchema(Object lock, Object hive, String name) throws Exception {
    Class[] types = {String.class, boolean.class, boolean.class, boolean.class};
    // The lock under which Spark uses its client of Hive, which is not safe for several threads.
    synchronized (lock) {
      hive.getClass().getMethod("dropDatabase", types)
          .invoke(hive, new Object[] {name, Boolean.FALSE, Boolean.TRUE, Boolean.FALSE});
    }
  }
}
"""
"""Drops a schema without deleting files, for which Spark has no method."""
_schema_lock = threading.Lock()


@contextmanager
def protect_other_files(spark: SparkSession, targets: Iterable[Target]) -> Iterator[None]:
    """Have a statement delete the files of the tables it drops, and no others.

    This includes the files of a former materialized table, wherever Tidegate put them.
    """
    drops = _Drops(spark)
    with ExitStack() as stack:
        for target in targets:
            match target:
                case TableTarget(action="DROP TABLE", name=parts):
                    stack.enter_context(drops.table(parts))
                case TableTarget(action="ALTER TABLE", form="RENAME TO", name=parts):
                    drops.detach(parts)
                case SchemaTarget():
                    stack.enter_context(drops.schema(target))
        yield


class _Drops:
    """Prepares drops in the session catalog of one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._session: Any = spark._jsparkSession
        self._jvm: Any = java(spark)
        self._places = TableLocations(spark)
        self._catalog: Any = self._session.sharedState().externalCatalog()

    @contextmanager
    def table(self, parts: tuple[str, ...]) -> Iterator[None]:
        """Delete a table's own files once its entry is dropped, if the metastore does not.

        Also removes the table from Delta's cache, where its state would stay for an hour.
        """
        name = self._delta_name(parts)
        if name is None:
            yield
            return
        place, kept = self._places.location(name), self._own_place(name) is not None
        yield
        if self._is_free(name, place):
            files = TableFiles(self._spark, place)
            files.invalidate_cache()
            if kept:
                files.delete()

    def detach(self, parts: tuple[str, ...]) -> None:
        """Keep the files of a managed table in place, if that is not its default location."""
        name = self._delta_name(parts)
        if name is not None:
            self._own_place(name)

    @contextmanager
    def schema(self, target: SchemaTarget) -> Iterator[None]:
        """Point a schema to an empty directory while it is dropped; delete its own if empty."""
        parts, schema = target.name, target.name[-1].lower()
        catalog = parts[0] if len(parts) == 2 else current_place(self._spark).catalog
        if len(parts) > 2 or catalog.lower() != DEFAULT_CATALOG or schema == DEFAULT_SCHEMA:
            yield
            return
        with _schema_lock:
            if not self._catalog.databaseExists(schema):
                yield
                return
            if target.cascade:
                self._require_ownership(schema)
                with suspended(self._spark):
                    self._drop_tables(schema)
                    self._drop_functions(schema)
            # Spark rejects the drop of a schema that is not empty, before it touches any files.
            yield from self._without_directory(schema) if self._is_empty(schema) else iter((None,))

    def _require_ownership(self, schema: str) -> None:
        """Have the gate check the drop of the schema before its objects, which need no right.

        The command itself is checked when the objects are gone.
        """
        text = f"DROP SCHEMA {quote_identifier(DEFAULT_CATALOG)}.{quote_identifier(schema)}"
        analyze_only(self._spark, parse_statement(self._spark, text))

    def _drop_tables(self, schema: str) -> None:
        """Drop tables and views one by one; Hive's CASCADE would delete what its entries say."""
        for entry in items(self._catalog.getTablesByName(schema, self._catalog.listTables(schema))):
            parts = (DEFAULT_CATALOG, schema, str(entry.identifier().table()))
            kind = "VIEW" if entry.tableType().name() == "VIEW" else "TABLE"
            with self.table(parts):
                self._spark.sql(f"DROP {kind} IF EXISTS {TableName(*parts).quoted()}")

    def _drop_functions(self, schema: str) -> None:
        for function in items(self._catalog.listFunctions(schema, "*")):
            name = TableName(DEFAULT_CATALOG, schema, str(function))
            self._spark.sql(f"DROP FUNCTION IF EXISTS {name.quoted()}")

    def _is_empty(self, schema: str) -> bool:
        tables, functions = self._catalog.listTables(schema), self._catalog.listFunctions
        return bool(tables.isEmpty()) and bool(functions(schema, "*").isEmpty())

    def _without_directory(self, schema: str) -> Iterator[None]:
        database = self._catalog.getDatabase(schema)
        home = self._jvm.org.apache.hadoop.fs.Path(database.locationUri())
        files = home.getFileSystem(self._session.sessionState().newHadoopConf())
        if not files.exists(home):
            yield
            return
        empty = self._jvm.org.apache.hadoop.fs.Path(home, _DROPPED)
        self._relocate(database, empty.toUri())
        try:
            yield
        finally:
            if self._catalog.databaseExists(schema):
                self._relocate(self._catalog.getDatabase(schema), home.toUri())
        self._remove_if_empty(files, home)

    def _remove_if_empty(self, files: Any, home: Any) -> None:
        left = [str(status.getPath().getName()) for status in files.listStatus(home)]
        if not left:
            files.delete(home, False)
            return
        shown = ", ".join(sorted(left)[:5])
        logger.warning("kept %s of a dropped schema: it contains %s", home.toString(), shown)

    def _relocate(self, database: Any, location: Any) -> None:
        """Move an empty schema to another directory, for which Hive has to recreate it."""
        client = self._catalog.unwrapped().client()
        name = str(database.name())
        schemas = compiled_instance(self._spark, _CLASS, _SOURCE)
        schemas.dropSchema(client.clientLoader(), client.client(), name)
        self._catalog.createDatabase(with_fields(database, {_LOCATION: location}), False)

    def _delta_name(self, parts: tuple[str, ...]) -> TableName | None:
        """Return the full name if it is a Delta table of the session catalog, or None."""
        if len(parts) > 3 or is_temporary_view(self._spark, parts):
            return None
        current = current_place(self._spark)
        name = qualify(parts, current.catalog, current.schema)
        entry = entry_of(self._spark, name)
        return name if entry is not None and provider_of(entry) == PROVIDER else None

    def _own_place(self, name: TableName) -> str | None:
        """Return the location of a table's files if the metastore will not delete them, or None.

        Detaches a managed table that is not at its default location, the only one Hive knows.
        """
        place = self._places.location(name)
        if self._places.is_managed(name):
            if place == self._places.default_location(name):
                return None
            self._places.detach(name)
            return place
        return place if TableFiles(self._spark, place).owner_id() is not None else None

    def _is_free(self, name: TableName, place: str) -> bool:
        return entry_of(self._spark, name) is None or self._places.location(name) != place
