"""Where the tables of the metastore lie, below Spark's SQL, which cannot move a managed table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.model.names import TableName
from tidegate_server.storage.jvm import java

_KIND, _STORAGE, _LOCATION = 1, 2, 0
"""Positions of fields in Spark's CatalogTable and CatalogStorageFormat."""


class Places:
    """Reads and changes the locations in entries of the metastore; files stay where they are.

    Every change is one change of one entry: a reader finds the table of before or of after.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = java(spark)
        self._session: Any = spark._jsparkSession

    def of(self, name: TableName) -> str:
        """Return where a table of the metastore lies."""
        return self._text(self._entry(name).location())

    def usual(self, name: TableName) -> str:
        """Return where a managed table of that name lies unless it was told otherwise."""
        catalog = self._session.sessionState().catalog()
        identifier = self._jvm.org.apache.spark.sql.catalyst.TableIdentifier(
            name.table.lower(), self._jvm.scala.Option.apply(name.schema.lower())
        )
        return self._text(catalog.defaultTablePath(identifier))

    def occupied(self, location: str) -> bool:
        """Say whether there are files at a place."""
        path = self._jvm.org.apache.hadoop.fs.Path(location)
        system = path.getFileSystem(self._session.sessionState().newHadoopConf())
        return bool(system.exists(path)) and len(system.listStatus(path)) > 0

    def point(self, name: TableName, location: str) -> None:
        """Let the table of a name be the one that lies at a place."""
        entry = self._entry(name)
        place = self._jvm.org.apache.hadoop.fs.Path(location).toUri()
        storage = _copied(entry.storage(), {_LOCATION: self._jvm.scala.Option.apply(place)})
        self._catalog().alterTable(_copied(entry, {_STORAGE: storage}))

    def own(self, name: TableName) -> None:
        """Let the metastore remove a table's files with the table, wherever they lie.

        Nobody may know of the table yet: for a moment there is none.
        """
        entry = self._entry(name)
        kinds = self._jvm.org.apache.spark.sql.catalyst.catalog.CatalogTableType
        self._catalog().dropTable(name.schema.lower(), name.table.lower(), False, False)
        self._catalog().createTable(_copied(entry, {_KIND: kinds.MANAGED()}), False)

    def _entry(self, name: TableName) -> Any:
        return self._catalog().getTable(name.schema.lower(), name.table.lower())

    def _catalog(self) -> Any:
        return self._session.sharedState().externalCatalog()

    def _text(self, place: Any) -> str:
        return str(self._jvm.org.apache.hadoop.fs.Path(place).toString())


def _copied(record: Any, changes: Mapping[int, Any]) -> Any:
    """Copy a case class of Scala with some fields, by position, changed."""
    fields = [record.productElement(n) for n in range(record.productArity())]
    return record.copy(*(changes.get(n, field) for n, field in enumerate(fields)))
