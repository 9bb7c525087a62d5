"""Reads and changes the owners in metastore entries, through Spark's external catalog."""

from __future__ import annotations

import logging
from typing import Any, Final

from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.answers import ObjectFound
from tidegate_server.core.model.names import DEFAULT_SCHEMA, TableName
from tidegate_server.core.model.privileges import UNOWNED, SecuredKind
from tidegate_server.engine.storage.entries import (
    SCHEMA_OWNER,
    TABLE_OWNER,
    entry_of,
    set_schema_property,
)
from tidegate_server.engine.storage.jvm import items, with_fields

logger = logging.getLogger(__name__)

_RELEASED: Final = "tidegate.owners-recorded"
"""Property of the schema ``default`` after owners of earlier versions were released."""
_HIVES_OWNER: Final = "public"
"""Hive's owner of the schema ``default``."""


class Owners:
    """The owners of schemas, tables and views; the metastore has none for functions."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._catalog: Any = spark._jsparkSession.sharedState().externalCatalog()

    def find(self, kind: SecuredKind, name: TableName) -> ObjectFound:
        """Return what a name means, and its owner."""
        folded = name.folded()
        if not self._catalog.databaseExists(folded.schema):
            return ObjectFound()
        if kind is SecuredKind.SCHEMA:
            return ObjectFound(kind=kind, owner=schema_owner(self._catalog, folded.schema))
        if kind is SecuredKind.FUNCTION:
            exists = self._catalog.functionExists(folded.schema, folded.table)
            return ObjectFound(kind=kind if exists else None)
        entry = entry_of(self._spark, name)
        if entry is None:
            return ObjectFound()
        is_view = entry.tableType().name() == "VIEW"
        found = SecuredKind.VIEW if is_view else SecuredKind.TABLE
        return ObjectFound(kind=found, owner=str(entry.owner() or ""))

    def set(self, kind: SecuredKind, name: TableName, owner: str) -> None:
        """Record an owner.

        :raises ServerError: OBJECT_NOT_FOUND.
        """
        if self.find(kind, name).kind is None:
            raise error(Code.OBJECT_NOT_FOUND, kind=str(kind), name=str(name).removesuffix("."))
        if kind is SecuredKind.SCHEMA:
            set_schema_property(self._catalog, name.schema.lower(), SCHEMA_OWNER, owner)
        else:
            entry = entry_of(self._spark, name)
            self._catalog.alterTable(with_fields(entry, {TABLE_OWNER: owner}))
        logger.info("%s %s now belongs to %s", kind, name, owner)

    def release(self) -> None:
        """Record, once per metastore, that what belongs to the engine's own user has no owner."""
        if self._catalog.getDatabase(DEFAULT_SCHEMA).properties().contains(_RELEASED):
            return
        own = {"", _HIVES_OWNER, str(self._spark.sparkContext.sparkUser())}
        for schema in map(str, items(self._catalog.listDatabases())):
            if schema_owner(self._catalog, schema) in own:
                set_schema_property(self._catalog, schema, SCHEMA_OWNER, UNOWNED)
            names = self._catalog.listTables(schema)
            for entry in items(self._catalog.getTablesByName(schema, names)):
                if str(entry.owner() or "") in own:
                    self._catalog.alterTable(with_fields(entry, {TABLE_OWNER: UNOWNED}))
        set_schema_property(self._catalog, DEFAULT_SCHEMA, _RELEASED, "true")


def schema_owner(catalog: Any, schema: str) -> str:
    """Return the owner of an existing schema, empty if it has none."""
    found = catalog.getDatabase(schema).properties().get(SCHEMA_OWNER)
    return str(found.get()) if found.isDefined() else ""
