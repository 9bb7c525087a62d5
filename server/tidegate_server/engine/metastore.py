"""Listings of Spark's metastore, and the tables of system schemas."""

from __future__ import annotations

import json
import logging
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812  Spark's own convention

from tidegate_server.engine.projection import type_text
from tidegate_server.link.messages.answers import FunctionList, TableInfo, TableList
from tidegate_server.model.names import (
    DEFAULT_CATALOG,
    TableName,
    quote_identifier,
    quote_literal,
)
from tidegate_server.model.types import Column

logger = logging.getLogger(__name__)

_HIDDEN = ("spark.", "view.")


class Metastore:
    """Reads Spark's external catalog without a Spark job."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._session: Any = spark._jsparkSession
        self._jvm: Any = spark._jvm

    def tables(self, schema: str | None, *, with_columns: bool) -> TableList:
        """Return schemas and tables by name; a schema that does not exist is empty."""
        catalog = self._session.sharedState().externalCatalog()
        schemas = tuple(sorted(str(name) for name in self._strings(catalog.listDatabases())))
        wanted = [name for name in schemas if schema is None or name == schema.lower()]
        tables = tuple(
            info for name in wanted for info in self._tables_of(catalog, name, with_columns)
        )
        return TableList(schemas=schemas, tables=tables)

    def functions(self, spark: SparkSession) -> FunctionList:
        """Return the names of all functions a session knows."""
        rows = spark.sql("SHOW FUNCTIONS").collect()
        return FunctionList(names=tuple(sorted({str(row[0]) for row in rows})))

    def register(self, name: TableName, location: str, comment: str) -> None:
        """Make a Delta directory a table of a schema; doing it again is harmless."""
        schema = quote_identifier(name.schema)
        self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(name.catalog)}.{schema}")
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {name.quoted()} USING delta "
            f"COMMENT {quote_literal(comment)} LOCATION {quote_literal(location)}"
        )

    def _tables_of(self, catalog: Any, schema: str, with_columns: bool) -> list[TableInfo]:
        names = catalog.listTables(schema)
        entries = catalog.getTablesByName(schema, names)
        listed = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(entries)
        infos = [self._info(schema, entry, with_columns) for entry in listed]
        return sorted(infos, key=lambda info: info.name)

    def _info(self, schema: str, entry: Any, with_columns: bool) -> TableInfo:
        comment = entry.comment()
        name = TableName(DEFAULT_CATALOG, schema, str(entry.identifier().table()))
        properties = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(entry.properties())
        return TableInfo(
            name=name,
            type="VIEW" if entry.tableType().name() == "VIEW" else "TABLE",
            comment=str(comment.get()) if comment.isDefined() else None,
            columns=self._columns(name, entry) if with_columns else (),
            properties={
                str(key): str(value)
                for key, value in dict(properties).items()
                if not str(key).startswith(_HIDDEN)
            },
        )

    def _columns(self, name: TableName, entry: Any) -> tuple[Column, ...]:
        """Return the columns; the metastore has none of those of a Delta table."""
        schema = entry.schema()
        if schema.size() == 0:
            try:
                schema = self._session.table(name.quoted()).schema()
            except (PySparkException, Py4JError) as failed:
                # One broken table must not hide all the others.
                logger.warning("columns of %s cannot be read: %s", name, failed)
                return ()
        fields = T.StructType.fromJson(json.loads(schema.json())).fields
        return tuple(
            Column(
                name=field.name,
                type=type_text(field.dataType, field.metadata),
                nullable=field.nullable,
                comment=field.metadata.get("comment"),
            )
            for field in fields
        )

    def _strings(self, sequence: Any) -> list[str]:
        return list(self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(sequence))
