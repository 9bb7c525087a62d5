"""Keeps DROP TABLE, DROP SCHEMA and RENAME from deleting or moving files of other tables.

Hive deletes or moves whatever lies in the directory that its own entry has for a managed table,
and with a schema everything in that schema's directory. That directory may hold external tables,
tables of other schemas, and files that belong to no table.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.model.names import DEFAULT_CATALOG, DEFAULT_SCHEMA, TableName, qualify
from tidegate_server.engine.query.resolution import current_place, is_temporary_view
from tidegate_server.engine.statement.targets import SchemaTarget, TableTarget, Target
from tidegate_server.engine.storage.delta.table_files import TableFiles
from tidegate_server.engine.storage.delta.tables import PROVIDER
from tidegate_server.engine.storage.entries import entry_of, provider_of
from tidegate_server.engine.storage.jvm import compiled_instance, items, java, with_fields
from tidegate_server.engine.storage.table_locations import TableLocations

logger = logging.getLogger(__name__)

_DROPPED = "_tidegate_dropped"
"""The empty directory that a schema has while it is dropped."""
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
"""Drops an entry without deleting files, which Spark has no call for."""
_schema_lock = threading.Lock()


@contextmanager
def only_own_files(spark: SparkSession, targets: Iterable[Target]) -> Iterator[None]:
    """Run a statement so that it deletes the files of the tables it drops, and no others.

    A converted materialized table's files go with it, wherever Tidegate put them.
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
        """Delete a table's own files after its entry is gone, if the metastore would not.

        Delta forgets it then: otherwise the state of a table stays in the heap for an hour.
        """
        name = self._name(parts)
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
        """Keep the files of a managed table where they are, if that is not its usual place."""
        name = self._name(parts)
        if name is not None:
            self._own_place(name)

    @contextmanager
    def schema(self, target: SchemaTarget) -> Iterator[None]:
        """Give a schema an empty directory for the time of its drop; remove its own if empty."""
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
                self._drop_tables(schema)
                self._drop_functions(schema)
            # One that is not empty is refused by Spark, which then touches no files.
            yield from self._without_directory(schema) if self._is_empty(schema) else iter((None,))

    def _drop_tables(self, schema: str) -> None:
        """Drop tables and views as statements do: Hive would act on its own entries alone."""
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
        logger.warning("%s was not deleted with its schema: it has %s", home.toString(), shown)

    def _relocate(self, database: Any, location: Any) -> None:
        """Give an empty schema another directory, which Hive can only do by creating it again."""
        client = self._catalog.unwrapped().client()
        name = str(database.name())
        schemas = compiled_instance(self._spark, _CLASS, _SOURCE)
        schemas.dropSchema(client.clientLoader(), client.client(), name)
        self._catalog.createDatabase(with_fields(database, {_LOCATION: location}), False)

    def _name(self, parts: tuple[str, ...]) -> TableName | None:
        """Return the name of a Delta table of the session catalog; None for anything else."""
        if len(parts) > 3 or is_temporary_view(self._spark, parts):
            return None
        current = current_place(self._spark)
        name = qualify(parts, current.catalog, current.schema)
        entry = entry_of(self._spark, name)
        return name if entry is not None and provider_of(entry) == PROVIDER else None

    def _own_place(self, name: TableName) -> str | None:
        """Return where a table's files are if the metastore does not delete them; else None.

        A managed table elsewhere than at its usual place is detached: Hive knows only that one.
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
