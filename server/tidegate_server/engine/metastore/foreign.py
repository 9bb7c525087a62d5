"""Lists the schemas and tables of catalogs other than the session catalog."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.answers import TableInfo, TableList
from tidegate_server.core.messages.requests import ListCatalog
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.types import Column
from tidegate_server.engine.gate.catalogs import load_catalog
from tidegate_server.engine.jvm.errors import to_server_error
from tidegate_server.engine.storage.jvm import active_session, is_instance, java, string_array

_TABLES: Final = "org.apache.spark.sql.connector.catalog.TableCatalog"
_NAMESPACES: Final = "org.apache.spark.sql.connector.catalog.SupportsNamespaces"
_DEPTH: Final = 3
"""Levels of namespaces within namespaces that are listed."""


def list_catalog(spark: SparkSession, request: ListCatalog) -> TableList:
    """Return what a catalog contains; it may wait for another system.

    :raises ServerError: OBJECT_NOT_FOUND.
    :raises py4j.protocol.Py4JJavaError: if the catalog cannot be used.
    """
    load_catalog(spark, request.name)
    manager: Any = spark._jsparkSession.sessionState().catalogManager()
    if not manager.isCatalogRegistered(request.name):
        raise error(Code.OBJECT_NOT_FOUND, kind="catalog", name=request.name)
    with active_session(spark):
        return _list(spark, manager.catalog(request.name), request)


def _list(spark: SparkSession, catalog: Any, request: ListCatalog) -> TableList:
    jvm, schemas = java(spark), []
    wanted = re.compile(request.schemas, re.IGNORECASE | re.DOTALL)
    if is_instance(jvm, catalog, _NAMESPACES):
        schemas = [each for each in _namespaces(spark, catalog) if wanted.fullmatch(".".join(each))]
    tables: list[TableInfo] = []
    if request.tables is not None and is_instance(jvm, catalog, _TABLES):
        named = re.compile(request.tables, re.IGNORECASE | re.DOTALL)
        for schema in schemas:
            tables += [
                _table(catalog, identifier, ".".join(schema), request)
                for identifier in catalog.listTables(string_array(spark, schema))
                if named.fullmatch(str(identifier.name()))
            ]
    return TableList(schemas=tuple(map(".".join, schemas)), tables=tuple(tables))


def _namespaces(spark: SparkSession, catalog: Any) -> Iterator[tuple[str, ...]]:
    """Yield all namespaces, outer ones first."""
    level = [tuple(map(str, each)) for each in catalog.listNamespaces()]
    yield from level
    for _ in range(_DEPTH - 1):
        inner = []
        for each in level:
            found = catalog.listNamespaces(string_array(spark, each))
            inner += [tuple(map(str, one)) for one in found]
        yield from inner
        level = inner


def _table(catalog: Any, identifier: Any, schema: str, request: ListCatalog) -> TableInfo:
    name = TableName(request.name, schema, str(identifier.name()))
    columns: tuple[Column, ...] = ()
    comment = None
    found = _loaded(catalog, identifier) if request.with_columns else None
    if found is not None:
        columns = tuple(_column(each) for each in found.columns())
        comment = found.properties().get("comment")
    return TableInfo(
        name=name, type="TABLE", comment=None if comment is None else str(comment), columns=columns
    )


def _loaded(catalog: Any, identifier: Any) -> Any | None:
    """Return a table; None if the catalog lists it, and refuses to read it."""
    try:
        return catalog.loadTable(identifier)
    except Py4JJavaError as failed:
        if to_server_error(failed).code == Code.CATALOG_REFUSED.name:
            return None
        raise


def _column(column: Any) -> Column:
    comment = column.comment()
    return Column(
        name=str(column.name()),
        type=str(column.dataType().catalogString()),
        nullable=bool(column.nullable()),
        comment=None if comment is None else str(comment),
    )
