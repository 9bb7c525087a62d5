"""Locations of tables: which directory belongs to which table, and its metastore entry.

A materialized table has its own directory, named after the table and its ``tidegate.id``, in the
directory of its schema. Two names never share a directory, and a name can be given to another table
without moving files. Its metastore entry is EXTERNAL, so that neither Hive nor Spark moves or
deletes files: only :class:`~.table_files.TableFiles` does, after checking whose they are.

Earlier versions used MANAGED entries and Spark's default directory for the name, which other tables
may use too. Those still work; an entry becomes EXTERNAL before its table is renamed, swapped or
dropped, since Hive would otherwise move or delete the directory.
"""

from __future__ import annotations

import uuid
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.model.names import TableName, visible_name
from tidegate_server.engine.storage.jvm import java, with_fields

PROPERTY_PLACE = "tidegate.place"
"""Property of a Delta table: the ``tidegate.id`` for which Tidegate made the directory."""
_KIND, _STORAGE, _LOCATION = 1, 2, 0
"""Positions of fields in Spark's CatalogTable and CatalogStorageFormat."""


class TableLocations:
    """Reads and changes the locations of metastore entries; files stay where they are.

    Each change alters one entry at once: readers see the old or the new table.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = java(spark)
        self._session: Any = spark._jsparkSession

    def location(self, name: TableName) -> str:
        """Return the location of a table in the metastore."""
        return self._text(self._entry(name).location())

    def default_location(self, name: TableName) -> str:
        """Return where Spark would put a managed table of this name."""
        catalog = self._session.sessionState().catalog()
        return self._text(catalog.defaultTablePath(self._identifier(name)))

    def own_location(self, name: TableName, table_id: str) -> str:
        """Return the directory in which a materialized table is created."""
        return f"{self.default_location(visible_name(name))}-{table_id}"

    def known_locations(self, name: TableName, table_id: str, location: str) -> list[str]:
        """Return where a materialized table may be: its last location and :meth:`own_location`.

        :param location: the last known location, or empty; the only one if the schema is gone.
        """
        own = (
            [self.own_location(name, table_id)]
            if self._catalog().databaseExists(name.schema.lower())
            else []
        )
        return [place for place in dict.fromkeys((location, *own)) if place]

    def unoccupied_location(self, name: TableName, table_id: str) -> str:
        """Return :meth:`own_location`, or a new directory beside it if that is not empty."""
        place = self.own_location(name, table_id)
        return f"{place}-{uuid.uuid4().hex[:8]}" if self.is_occupied(place) else place

    def is_occupied(self, location: str) -> bool:
        """Say whether a directory exists and is not empty."""
        path = self._jvm.org.apache.hadoop.fs.Path(location)
        system = path.getFileSystem(self._session.sessionState().newHadoopConf())
        return bool(system.exists(path)) and len(system.listStatus(path)) > 0

    def is_managed(self, name: TableName) -> bool:
        """Say whether dropping a table's metastore entry would delete its files."""
        return str(self._entry(name).tableType().name()) == "MANAGED"

    def detach(self, name: TableName) -> None:
        """Keep the metastore from moving or deleting the files of a table."""
        entry = self._entry(name)
        if entry.tableType().name() == "MANAGED":
            self._catalog().alterTable(with_fields(entry, {_KIND: self._external()}))

    def point(self, name: TableName, location: str) -> None:
        """Make a name refer to the table at a location."""
        entry = self._entry(name)
        place = self._jvm.org.apache.hadoop.fs.Path(location).toUri()
        storage = with_fields(entry.storage(), {_LOCATION: self._jvm.scala.Option.apply(place)})
        changed = with_fields(entry, {_KIND: self._external(), _STORAGE: storage})
        self._catalog().alterTable(changed)

    def forget(self, name: TableName) -> None:
        """Remove the entry of a name without reading or changing its location."""
        self.detach(name)
        identifier = self._identifier(name)
        self._session.sessionState().catalog().dropTable(identifier, True, False)

    def _external(self) -> Any:
        return self._jvm.org.apache.spark.sql.catalyst.catalog.CatalogTableType.EXTERNAL()

    def _identifier(self, name: TableName) -> Any:
        return self._jvm.org.apache.spark.sql.catalyst.TableIdentifier(
            name.table.lower(), self._jvm.scala.Option.apply(name.schema.lower())
        )

    def _entry(self, name: TableName) -> Any:
        return self._catalog().getTable(name.schema.lower(), name.table.lower())

    def _catalog(self) -> Any:
        return self._session.sharedState().externalCatalog()

    def _text(self, place: Any) -> str:
        return str(self._jvm.org.apache.hadoop.fs.Path(place).toString())


def is_made_for(location: str, table_id: str) -> bool:
    """Say whether the name of a directory is one that Tidegate chose for a table."""
    name = location.rstrip("/").rpartition("/")[2]
    return f"-{table_id}" in name
