"""Tables whose rows a catalog written in Python reads, as versioned sources.

``core/catalogs/rows.py`` describes what such a catalog says of versions; ``PythonCatalogs.java``
asks it.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.catalogs.rows import EMPTY
from tidegate_server.core.model.names import TableName, quote_identifier
from tidegate_server.core.model.runs import ChangeMethod
from tidegate_server.engine.storage.base import (
    FoundChange,
    ReadVersion,
    TableState,
    VersionGoneError,
    is_foreign,
    table_sql,
)
from tidegate_server.engine.storage.catalogs import catalog_of, identifier_of, pinned_table
from tidegate_server.engine.storage.exact import WEIGHT
from tidegate_server.engine.storage.iceberg.tables import relation_of
from tidegate_server.engine.storage.jvm import active_session, field_names, frame_of, known_instance

logger = logging.getLogger(__name__)

_CATALOG: Final = "tidegate.PythonCatalogs$Catalog"
_TABLE: Final = "tidegate.PythonRows$Rows"


class PythonSources:
    """Tables in the format ``rows``; others of such catalogs have no numbered versions."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def has_catalog(self, name: TableName) -> bool:
        """Say whether a table is one of a catalog that is written in Python."""
        gate = known_instance("tidegate.Gate") if is_foreign(name) else None
        return gate is not None and bool(gate.catalogs().isPython(name.catalog))

    def find(self, name: TableName) -> TableState | None:
        found = self._find(name)
        if found is None:
            return None
        return TableState(
            table_id=found["table_id"],
            version=found["version"],
            newest=found["newest"],
            columns=tuple(found["columns"]),
            commit=found["commit"],
        )

    def commit_id(self, name: TableName, version: int) -> str | None:
        with active_session(self._spark):
            catalog = self._catalog(name)
            if catalog is None:
                return None
            found = catalog.rowsCommit(identifier_of(self._spark, name), version)
        return None if found is None else str(found)

    def snapshot_id(self, name: TableName, commit: str) -> str | None:
        return _state_of(commit).partition("-")[0] or None

    def difference(self, name: TableName, read: str, now: str) -> str:
        if _state_of(read) == _state_of(now):
            return "has other columns than when it was read last"
        return "has another history than when it was read last"

    def location(self, name: TableName) -> str:
        found = self._find(name)
        return str(name) if found is None else f"{found['location']}@{found['newest']}"

    def version_sql(self, name: TableName, version: int) -> str:
        found = self._find(name)
        if found is None:
            raise VersionGoneError(name, f"it has no version {version} any more")
        if version == EMPTY:
            listed = ", ".join(map(quote_identifier, found["columns"]))
            return f"(SELECT {listed} FROM {table_sql(name)} WHERE false)"
        if version not in (found["version"], found["newest"]) and not self.commit_id(name, version):
            raise VersionGoneError(name, f"the snapshot of version {version} has expired")
        return f"{table_sql(name)} VERSION AS OF {version}"

    def rows(self, session: SparkSession, name: TableName, version: int) -> DataFrame:
        return session.sql(f"SELECT * FROM {self.version_sql(name, version)}")

    def read_version(self, leaf: Any) -> ReadVersion | None:
        table = pinned_table(leaf, _TABLE)
        if table is None:
            return None
        return ReadVersion(
            table_id=str(table.tableId()),
            version=int(table.versionNumber()),
            columns=frozenset(field_names(table.schema())),
        )

    def change(
        self, session: SparkSession, name: TableName, table_id: str, before: int, after: int
    ) -> FoundChange:
        if before == after:
            return FoundChange(method=ChangeMethod.UNCHANGED, rows=0)
        found = self._find(name)
        if found is None or found["table_id"] != table_id:
            return _unknown_change("TABLE_REPLACED")
        if any(column.lower() == WEIGHT for column in found["columns"]):
            return _unknown_change("COLUMN_NAMED_WEIGHT")
        try:
            with active_session(session):
                catalog = self._catalog(name)
                table = catalog.rowsChanged(identifier_of(self._spark, name), before, after)
                counts = json.loads(str(table.counts()))
        except (PySparkException, Py4JError) as problem:
            logger.debug("the change of %s cannot be read: %s", name, problem)
            return _unknown_change("VERSION_GONE")
        if not counts["rows"]:
            return FoundChange(method=ChangeMethod.UNCHANGED, rows=0)

        def read() -> DataFrame:
            with active_session(session):
                return frame_of(session, relation_of(session, table))

        return FoundChange(
            method=ChangeMethod.DIFFERENCE if counts["removed"] else ChangeMethod.APPENDED,
            base=before,
            rows=counts["rows"],
            read=read,
        )

    def _find(self, name: TableName) -> dict[str, Any] | None:
        with active_session(self._spark):
            catalog = self._catalog(name)
            if catalog is None:
                return None
            try:
                found = str(catalog.rowsVersion(identifier_of(self._spark, name)))
            except PySparkException:
                return None  # it was dropped meanwhile
        return json.loads(found) if found else None

    def _catalog(self, name: TableName) -> Any:
        """Return the catalog of a table; None unless it is written in Python, and can be used."""
        found = catalog_of(self._spark, name)
        if found is None or str(found.getClass().getName()) != _CATALOG:
            return None
        return found


def _state_of(commit: str) -> str:
    """Return the part of a commit that identifies a state; the rest is that of the columns."""
    return commit.rpartition("@")[0]


def _unknown_change(reason: str) -> FoundChange:
    return FoundChange(method=ChangeMethod.WHOLE, reason=reason)
