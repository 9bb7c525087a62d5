"""Lists schemas, tables and functions of Spark's metastore."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812  Spark's own convention

from tidegate_server.core.messages.answers import (
    FunctionList,
    NameList,
    SchemaNames,
    TableInfo,
    TableList,
)
from tidegate_server.core.model.names import (
    DEFAULT_CATALOG,
    FunctionName,
    TableName,
    quote_identifier,
)
from tidegate_server.core.model.types import Column
from tidegate_server.engine.metastore.bulk import Listing
from tidegate_server.engine.metastore.direct import StoredTables
from tidegate_server.engine.metastore.owners import schema_owner
from tidegate_server.engine.results.projection import type_text
from tidegate_server.engine.session.sessions import Child

logger = logging.getLogger(__name__)

_BATCH: Final = 500
"""Number of tables per request to Hive's client, which puts their names into one query."""


class Metastore:
    """Reads Spark's external catalog without a Spark job."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._session: Any = spark._jsparkSession
        self._catalog: Any = self._session.sharedState().externalCatalog()
        self._listing = Listing(spark)
        self._stored = StoredTables(self._session, self._listing)

    def names(self, *, with_owners: bool = False) -> NameList:
        """Return the names of all schemas, tables and views, on request with their owners."""
        found = sorted(self._listing.names(self._catalog))
        owners = self._owners(found) if with_owners else {}
        return NameList(
            schemas=tuple(
                SchemaNames(
                    schema=schema,
                    tables=tuple(sorted(set(tables) - set(views))),
                    views=tuple(sorted(views)),
                    owner=owners.get((schema, ""), ""),
                    owners={
                        name: owners[schema, name] for name in tables if (schema, name) in owners
                    },
                )
                for schema, tables, views in found
            )
        )

    def _owners(
        self, found: Sequence[tuple[str, list[str], list[str]]]
    ) -> Mapping[tuple[str, str], str]:
        """Return owners by schema and name; those of schemas by an empty name."""
        rows = self._stored.owners()
        if rows is None:
            rows = [(schema, "", schema_owner(self._catalog, schema)) for schema, _, _ in found]
            for schema, tables, _ in found:
                for start in range(0, len(tables), _BATCH):
                    batch = tables[start : start + _BATCH]
                    rows += self._listing.owners_in(self._catalog, schema, batch)
        return {(schema, name): owner for schema, name, owner in rows if owner}

    def tables(
        self, schema: str | None, *, with_columns: bool, names: Sequence[str] | None = None
    ) -> TableList:
        """Return existing schemas and tables, sorted by name."""
        if schema is not None and names is not None:
            folded = schema.lower()
            there = self._catalog.databaseExists(folded)
            wanted = sorted({name.lower() for name in names}) if there else []
            infos = tuple(self._tables_of(folded, wanted, with_columns))
            return TableList(schemas=(folded,) if there else (), tables=infos)
        found = self.names().schemas
        all_infos: list[TableInfo] = []
        for known in found:
            if schema is None or known.schema == schema.lower():
                wanted = sorted({*known.tables, *known.views})
                all_infos += self._tables_of(known.schema, wanted, with_columns)
        return TableList(schemas=tuple(known.schema for known in found), tables=tuple(all_infos))

    def temporary_views(self, child: Child) -> TableList:
        """Return a session's temporary views, without a schema, and the global ones."""
        session: Any = child.spark._jsparkSession
        shared = session.sharedState().globalTempDB()
        found = self._listing.temporary_views(session.sessionState().catalog(), shared)
        views = (
            TableInfo(
                name=TableName(DEFAULT_CATALOG, schema, name),
                type="VIEW",
                columns=self._read_columns(session, _quoted_path(schema, name)),
            )
            for schema, name in found
        )
        return TableList(schemas=(shared,), tables=tuple(views))

    def functions(self) -> FunctionList:
        """Return Spark's built-in functions and those of every schema."""
        rows = self._spark.sql("SHOW FUNCTIONS").collect()
        # Functions of the current schema are shown as schema.name; the loop below finds them too.
        names = {str(row[0]) for row in rows if "." not in str(row[0])}
        found = [FunctionName(name) for name in sorted(names)]
        for schema in sorted(_texts(self._catalog.listDatabases())):
            found += [FunctionName(name, schema) for name in self._functions_of(schema)]
        return FunctionList(functions=tuple(found))

    def temporary_functions(self, child: Child) -> FunctionList:
        """Return the temporary functions of a session."""
        session: Any = child.spark._jsparkSession
        listed = session.sessionState().catalog().listTemporaryFunctions()
        names = {str(listed.apply(i).funcName()) for i in range(listed.size())}
        return FunctionList(functions=tuple(FunctionName(name) for name in sorted(names)))

    def _functions_of(self, schema: str) -> list[str]:
        try:
            return sorted(_texts(self._catalog.listFunctions(schema, "*")))
        except (PySparkException, Py4JError) as error:
            # The schema may have been dropped meanwhile.
            logger.warning("cannot read the functions of %s: %s", schema, error)
            return []

    def _tables_of(
        self, schema: str, names: Sequence[str], with_columns: bool
    ) -> Iterator[TableInfo]:
        stored = self._stored.read(schema, names)
        rows: list[tuple[str, str, str | None, str | None]] = [
            (table.name, "TABLE", table.comment, table.columns) for table in stored
        ]
        others = sorted(set(names) - {table.name for table in stored})
        for start in range(0, len(others), _BATCH):
            batch = others[start : start + _BATCH]
            rows += self._listing.tables(self._catalog, schema, batch, columns=with_columns)
        for table, kind, comment, columns in sorted(rows):
            name = TableName(DEFAULT_CATALOG, schema, table)
            yield TableInfo(
                name=name,
                type="VIEW" if kind == "VIEW" else "TABLE",
                comment=comment,
                columns=self._columns(name, columns if with_columns else None),
            )

    def _columns(self, name: TableName, stored: str | None) -> tuple[Column, ...]:
        """Return the columns; those of a Delta table are not in the metastore."""
        columns = _columns(stored) if stored is not None else ()
        return columns or (self._read_columns(self._session, name.quoted()) if stored else ())

    def _read_columns(self, session: Any, name: str) -> tuple[Column, ...]:
        try:
            return _columns(session.table(name).schema().json())
        except (PySparkException, Py4JError) as error:
            # One broken table must not hide all the others.
            logger.warning("cannot read the columns of %s: %s", name, error)
            return ()


def _columns(schema: str) -> tuple[Column, ...]:
    fields = T.StructType.fromJson(json.loads(schema)).fields
    return tuple(
        Column(
            name=field.name,
            type=type_text(field.dataType, field.metadata),
            nullable=field.nullable,
            comment=field.metadata.get("comment"),
        )
        for field in fields
    )


def _texts(found: Any) -> list[str]:
    """Return a Scala sequence of strings as a list."""
    return [str(found.apply(i)) for i in range(found.size())]


def _quoted_path(*parts: str) -> str:
    return ".".join(quote_identifier(part) for part in parts if part)
