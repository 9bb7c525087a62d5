"""Rejects statements that would change a materialized table directly."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.connectors.sinks import mark_of
from tidegate_server.core.connectors.tables import connector_of, refused_insert, unsupported_error
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.names import (
    DEFAULT_CATALOG,
    TableName,
    qualify,
    quote_identifier,
    quote_literal,
    visible_name,
)
from tidegate_server.core.sql.cursor import position
from tidegate_server.engine.gate.gate import catalogs
from tidegate_server.engine.query.connector_views import view_text
from tidegate_server.engine.query.resolution import current_place, is_temporary_view
from tidegate_server.engine.statement.targets import (
    CopyTarget,
    NewSchemaTarget,
    NewTarget,
    PathTarget,
    SchemaTarget,
    TableTarget,
    Target,
    is_path,
    targets,
)
from tidegate_server.engine.storage.delta.commits import newest_snapshot
from tidegate_server.engine.storage.entries import entry_of, provider_of
from tidegate_server.engine.storage.iceberg.tables import list_tables, load_table
from tidegate_server.engine.storage.jvm import FILES, is_instance, items, java, kind
from tidegate_server.engine.storage.table_locations import PROPERTY_PLACE
from tidegate_server.engine.storage.table_properties import (
    PROPERTY_DEFINITION,
    PROPERTY_ID,
    PROPERTY_QUARANTINE_OF,
)

_PROPERTIES = (PROPERTY_ID, PROPERTY_DEFINITION, PROPERTY_QUARANTINE_OF, PROPERTY_PLACE)

_BY_REFRESH = (
    "Its query defines its content: use ALTER MATERIALIZED TABLE {table} REFRESH, or AS query."
)
_BY_SERVER = "The server maintains the files of a materialized table."
_COMPACTED = (
    f"{_BY_SERVER[:-1]}: the option materialized-table.upkeep.small-files says when they are "
    "compacted."
)
_REMOVED = (
    f"{_BY_SERVER[:-1]}: the option materialized-table.upkeep.retention says how long files of "
    "earlier versions are kept."
)
_ELSEWHERE = (
    "Choose another name or location, or release this one with DROP MATERIALIZED TABLE {table}."
)
_BY_QUERY = (
    "Its query defines its columns: use ALTER MATERIALIZED TABLE {table} AS query to add columns."
)
_HINTS: Mapping[str, str] = {
    "DROP TABLE": "Use DROP MATERIALIZED TABLE {table}.",
    "DROP VIEW": "Use DROP MATERIALIZED TABLE {table}.",
    "ALTER TABLE": "Use ALTER MATERIALIZED TABLE {table}.",
    "ALTER TABLE ADD COLUMN": _BY_QUERY,
    "ALTER TABLE ADD COLUMNS": _BY_QUERY,
    "ALTER TABLE REPLACE COLUMNS": _BY_QUERY,
    "ALTER TABLE RENAME COLUMN": _BY_QUERY,
    "ALTER TABLE DROP COLUMNS": "Its query defines its columns; use ALTER MATERIALIZED TABLE "
    "{table} DROP column for columns that are evaluated on read.",
    "ALTER TABLE ALTER COLUMN": "Use ALTER MATERIALIZED TABLE {table} MODIFY column type.",
    "ALTER TABLE CHANGE COLUMN": "Use ALTER MATERIALIZED TABLE {table} MODIFY column type.",
    "ALTER TABLE SET TBLPROPERTIES": "Use ALTER MATERIALIZED TABLE {table} SET ('key' = 'value').",
    "ALTER TABLE UNSET TBLPROPERTIES": "Use ALTER MATERIALIZED TABLE {table} RESET ('key').",
    "ALTER TABLE ADD CONSTRAINT": "Declare CONSTRAINT name EXPECT (condition) in CREATE OR ALTER "
    "MATERIALIZED TABLE {table}.",
    "ALTER TABLE DROP CONSTRAINT": "Use ALTER MATERIALIZED TABLE {table} DROP CONSTRAINT name.",
    "ALTER TABLE CLUSTER BY": "Use ALTER MATERIALIZED TABLE {table} ADD DISTRIBUTION BY (column).",
    "ALTER TABLE RENAME TO": "Use ALTER MATERIALIZED TABLE {table} RENAME TO name.",
    "ALTER VIEW": "Use ALTER MATERIALIZED TABLE {table}.",
    "COMMENT ON TABLE": "Use CREATE OR ALTER MATERIALIZED TABLE {table} with the COMMENT.",
    "RESTORE": "Use ALTER MATERIALIZED TABLE {table} ROLLBACK TO VERSION n.",
    "SHOW CREATE TABLE": "Use SHOW CREATE MATERIALIZED TABLE {table}.",
    "ANALYZE TABLE": "Refreshes maintain the statistics of a materialized table.",
    "CREATE TABLE": _ELSEWHERE,
    "CREATE OR REPLACE TABLE": _ELSEWHERE,
    "CREATE OR REPLACE VIEW": _ELSEWHERE,
    "CONVERT TO DELTA": _ELSEWHERE,
    "OPTIMIZE": _COMPACTED,
    "VACUUM": _REMOVED,
    "REORG": _COMPACTED,
    "GENERATE": _BY_SERVER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """What an accepted statement changes."""

    targets: tuple[Target, ...]
    copies: tuple[tuple[str, ...], ...]
    """Tables that it creates as copies of materialized ones. They inherit the properties that mark
    those, and must be disowned afterwards (:func:`disown`)."""


def guard(spark: SparkSession, text: str) -> Guarded:
    """Reject a statement that changes the storage of a materialized table.

    :raises ServerError: MT_WRONG_KIND, with a hint to the statement to use; NOT_SUPPORTED for an
        EXECUTE IMMEDIATE whose text is only known at run time.
    :raises pyspark.errors.ParseException: if Spark cannot parse the statement.
    """
    owners = _Owners(spark)
    copies = []
    found = tuple(targets(spark, text))
    for target in found:
        if isinstance(target, NewSchemaTarget):
            _check_schema(spark, target.name)
        if isinstance(target, NewTarget | NewSchemaTarget):
            continue
        if isinstance(target, CopyTarget):
            copied = owners.owner_of_table(target.source, through_views=False) is not None
            # IF NOT EXISTS leaves an existing table unchanged.
            if copied and owners.owner_of_table(target.name, through_views=False) is None:
                copies.append(target.name)
            continue
        try:
            if (written := _as_written(spark, target)) is not None:
                owners.check(written)
        except ServerError as caught:
            if target.at is not None:
                caught.line, caught.column = position(text, target.at)
            raise
    return Guarded(targets=found, copies=tuple(copies))


def _as_written(
    spark: SparkSession, target: TableTarget | PathTarget | SchemaTarget
) -> TableTarget | PathTarget | SchemaTarget | None:
    """Return what of the storage a statement changes, seen through the tables of connectors.

    :return: for an INSERT into one of those, the directory that it writes to; None without one.
    :raises ServerError: NOT_SUPPORTED for a change that the connector does not have.
    """
    if not isinstance(target, TableTarget) or not target.rows:
        return target
    found = view_text(spark, target.name)
    if found is None or (connector := connector_of(*found)) is None:
        return target
    reason = f"a table of the connector {connector} has no {target.action}"
    if target.action == "INSERT":
        reason = refused_insert(*found) or ""
    if reason:
        raise unsupported_error(target.action, target.name, connector, reason)
    mark = mark_of(found[0])
    if mark is None or not mark.path:
        return None
    deletes = target.form == "OVERWRITE"
    return PathTarget(action=target.action, path=mark.path, below=deletes, at=target.at)


def _check_schema(spark: SparkSession, name: tuple[str, ...]) -> None:
    """Reject a schema that a catalog would hide; raises NOT_SUPPORTED."""
    *catalog, schema = name
    place = catalog or [current_place(spark).catalog]
    if [each.lower() for each in place] == [DEFAULT_CATALOG] and catalogs(spark).has(schema):
        hint = "Choose another name: that of the catalog or connection would hide the schema."
        raise error(Code.NOT_SUPPORTED, what=f"A schema named {schema}", hint=hint)


def disown(spark: SparkSession, copies: Iterable[tuple[str, ...]]) -> None:
    """Turn copies of materialized tables into plain ones, by removing Tidegate's properties."""
    keys = ", ".join(map(quote_literal, _PROPERTIES))
    for name in copies:
        table = ".".join(map(quote_identifier, name))
        if is_path(name) or spark.catalog.tableExists(table):
            kind = "VIEW" if _is_view(spark, name) else "TABLE"
            spark.sql(f"ALTER {kind} {table} UNSET TBLPROPERTIES IF EXISTS ({keys})")


def _is_view(spark: SparkSession, parts: tuple[str, ...]) -> bool:
    place = current_place(spark)
    entry = None if is_path(parts) else entry_of(spark, qualify(parts, place.catalog, place.schema))
    return entry is not None and entry.tableType().name() == "VIEW"


# ---- owners of storage -------------------------------------------------------------------------


class _Owners:
    """Finds the materialized table to which a table, view or path belongs."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._session: Any = spark._jsparkSession
        self._jvm: Any = java(spark)

    def check(self, target: TableTarget | PathTarget | SchemaTarget) -> None:
        """Reject a target that belongs to a materialized table.

        :raises ServerError: MT_WRONG_KIND, or NOT_SUPPORTED for DROP SCHEMA in a script.
        """
        if isinstance(target, SchemaTarget):
            if target.script:
                hint = "Run it as a separate statement."
                raise error(Code.NOT_SUPPORTED, what="DROP SCHEMA inside a script", hint=hint)
            self.check_schema(target.name)
        elif (owner := self.owner_of(target)) is not None:
            form = target.form if isinstance(target, TableTarget) else ""
            raise _wrong_kind(owner, target.action, form)

    def owner_of(self, target: TableTarget | PathTarget) -> str | None:
        """Return the name of the materialized table to which a target belongs, or None."""
        if isinstance(target, TableTarget):
            return self.owner_of_table(target.name, through_views=target.rows)
        return self.owner_of_path(target.path, below=target.below)

    def owner_of_table(self, parts: tuple[str, ...], *, through_views: bool) -> str | None:
        """Return the materialized table's name, or None."""
        if is_path(parts):
            return self.owner_of_path(parts[-1], below=False)
        if is_temporary_view(self._spark, parts):
            return self._owner_behind_view(parts) if through_views else None
        if len(parts) > 3:
            return None
        place = current_place(self._spark)
        name = qualify(parts, place.catalog, place.schema)
        if name.is_foreign:
            return self._owner_in_catalog(name)
        entry = entry_of(self._spark, name)
        if entry is None:
            return None
        if entry.tableType().name() == "VIEW":
            owned = _owner_in_properties(entry.properties(), name)
            return owned or (self._owner_behind_view(parts) if through_views else None)
        if not _is_delta(entry):
            return None
        return self._owner_at(self._path(str(entry.location().toString())), name)

    def owner_of_path(self, path: str, *, below: bool) -> str | None:
        """Return the materialized table whose directory contains ``path``, or None.

        :param below: whether to include tables with directories below ``path``.
        """
        place = self._path(path)
        utilities = self._jvm.org.apache.spark.sql.delta.DeltaTableUtils
        found = utilities.findDeltaTableRoot(self._session, place, _no_options(self._jvm))
        if found.isDefined():
            return self._owner_at(found.get(), None)
        return self._owner_below(place) if below else None

    def check_schema(self, parts: tuple[str, ...]) -> None:
        """Reject the drop of a schema that has materialized tables.

        After SWAP WITH its directory may contain those of other schemas; it is then kept.

        :raises ServerError: MT_WRONG_KIND.
        """
        catalog = parts[0] if len(parts) == 2 else current_place(self._spark).catalog
        if len(parts) > 2:
            return
        if catalog.lower() == DEFAULT_CATALOG:
            found = [self._owner_of_entry(each) for each in self._entries(parts[-1].lower())]
        else:
            tables = list_tables(self._spark, catalog, parts[-1])
            found = [self._owner_in_catalog(each) for each in tables]
        inside = sorted({owner for owner in found if owner is not None})
        if inside:
            raise error(
                Code.MT_WRONG_KIND,
                table=f"{catalog}.{parts[-1]}",
                found="a schema with materialized tables",
                expected="one without for DROP SCHEMA",
                hint=f"Drop them first: {', '.join(inside)}.",
            )

    def _owner_in_catalog(self, name: TableName) -> str | None:
        found = load_table(self._spark, name)
        return str(name) if found is not None and PROPERTY_ID in found.properties else None

    def _owner_below(self, place: Any) -> str | None:
        files = place.getFileSystem(self._session.sessionState().newHadoopConf())
        prefix = str(files.makeQualified(place).toString()).rstrip("/") + "/"
        external = self._session.sharedState().externalCatalog()
        for schema in items(external.listDatabases()):
            for entry in self._entries(str(schema)):
                if entry.tableType().name() == "VIEW" or not _is_delta(entry):
                    continue
                location = self._path(str(entry.location().toString()))
                if str(files.makeQualified(location).toString()).startswith(prefix):
                    owner = self._owner_of_entry(entry)
                    if owner is not None:
                        return owner
        return None

    def _entries(self, schema: str) -> list[Any]:
        external = self._session.sharedState().externalCatalog()
        if not external.databaseExists(schema):
            return []
        return list(items(external.getTablesByName(schema, external.listTables(schema))))

    def _owner_of_entry(self, entry: Any) -> str | None:
        identifier = entry.identifier()
        name = TableName(DEFAULT_CATALOG, str(identifier.database().get()), str(identifier.table()))
        if entry.tableType().name() == "VIEW":
            return _owner_in_properties(entry.properties(), name)
        if not _is_delta(entry):
            return None
        return self._owner_at(self._path(str(entry.location().toString())), name)

    def _owner_behind_view(self, parts: tuple[str, ...]) -> str | None:
        """Return the materialized table that a view reads; for a broken view, Spark raises its own
        error when the statement runs."""
        try:
            frame: Any = self._spark.table(".".join(quote_identifier(part) for part in parts))
        except PySparkException:
            return None
        for leaf in items(frame._jdf.queryExecution().analyzed().collectLeaves()):
            for path in self._file_roots(leaf):
                owner = self.owner_of_path(path, below=False)
                if owner is not None:
                    return owner
        return None

    def _file_roots(self, leaf: Any) -> Iterator[str]:
        """Yield the root paths of a relation in an analyzed plan."""
        match kind(leaf):
            case "LogicalRelation" if is_instance(self._jvm, leaf.relation(), FILES):
                for path in items(leaf.relation().location().rootPaths()):
                    yield str(path.toString())
            case "DataSourceV2Relation" if kind(leaf.table()) == "DeltaTableV2":
                yield str(leaf.table().path().toString())

    def _owner_at(self, path: Any, name: TableName | None) -> str | None:
        log = self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._session, path)
        snapshot = newest_snapshot(self._jvm, log)
        if int(snapshot.version()) < 0:
            return None
        place = TableName(DEFAULT_CATALOG, "delta", str(path.toString()))
        return _owner_in_properties(snapshot.metadata().configuration(), name or place)

    def _path(self, text: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(text)


def _owner_in_properties(properties: Any, name: TableName) -> str | None:
    """Read the materialized table's name from table properties; None for a plain table."""
    if not properties.contains(PROPERTY_ID):
        return None
    if properties.contains(PROPERTY_QUARANTINE_OF):
        return str(properties.get(PROPERTY_QUARANTINE_OF).get())
    definition = properties.get(PROPERTY_DEFINITION)
    if definition.isDefined():
        recorded = json.loads(str(definition.get()))["name"]
        return str(TableName(recorded["catalog"], recorded["schema"], recorded["table"]))
    return str(visible_name(name))


def _is_delta(entry: Any) -> bool:
    return provider_of(entry) == "delta"


def _no_options(jvm: Any) -> Any:
    return jvm.PythonUtils.toScalaMap({})


def _wrong_kind(owner: str, action: str, form: str) -> ServerError:
    hint = _HINTS.get(f"{action} {form}") or _HINTS.get(action, _BY_REFRESH)
    return error(
        Code.MT_WRONG_KIND,
        table=owner,
        found="a materialized table",
        expected=f"a table for {action}",
        hint=hint.format(table=owner),
    )
