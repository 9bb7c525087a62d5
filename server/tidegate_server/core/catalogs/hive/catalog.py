"""A catalog of the tables of a Hive Metastore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tidegate_server.core.catalogs.base import CatalogTable, TablePartition
from tidegate_server.core.catalogs.hive import tables


class Metastore(Protocol):
    """Asks a metastore; its methods raise CatalogError.

    Tables and partitions are the structures of its interface as JSON:
    https://github.com/apache/hive/blob/rel/release-2.3.10/metastore/if/hive_metastore.thrift
    """

    def databases(self) -> Sequence[str]:
        """Return the names of all databases."""
        ...

    def tables(self, database: str) -> Sequence[str]:
        """Return the names of the tables and views of a database; none if there is no database."""
        ...

    def table(self, database: str, name: str) -> Mapping[str, Any] | None:
        """Return a table; None if there is none."""
        ...

    def partitions(self, database: str, name: str) -> Sequence[Mapping[str, Any]]:
        """Return the partitions of a table; none if there is no table."""
        ...

    def close(self) -> None:
        """Close its connections."""
        ...


@dataclass(frozen=True, slots=True)
class HiveCatalog:
    """The tables of a metastore, which are only read."""

    metastore: Metastore

    def schemas(self) -> Sequence[str]:
        """Return the names of the databases."""
        return sorted(self.metastore.databases())

    def tables(self, schema: str) -> Sequence[str]:
        """Return the names of tables and views, also of those that cannot be read."""
        return sorted(self.metastore.tables(schema))

    def get_table(self, schema: str, name: str) -> CatalogTable | None:
        """Return how Spark reads a table; raises CatalogError for what it cannot read."""
        found = self.metastore.table(schema, name)
        return None if found is None else tables.read_table(found)

    def partitions(self, schema: str, name: str) -> Sequence[TablePartition]:
        """Return the partitions of a table that the metastore knows."""
        found = self.metastore.table(schema, name)
        if found is None:
            return ()
        return tables.read_partitions(found, self.metastore.partitions(schema, name))

    def close(self) -> None:
        """Close the connections to the metastore."""
        self.metastore.close()
