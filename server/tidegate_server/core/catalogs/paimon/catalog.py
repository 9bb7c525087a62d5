"""A catalog of Paimon tables.

pypaimon, which is an extra, is imported where it is used.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final

from tidegate_server.core.catalogs.base import CatalogError, CatalogTable, TableColumn
from tidegate_server.core.catalogs.paimon import scans, types, versions, writes
from tidegate_server.core.catalogs.rows import (
    ROWS,
    Overwrite,
    RowReader,
    RowScan,
    RowWriter,
    TableVersion,
)

PRIMARY_KEY: Final = "primary-key"
_PROVIDERS: Final = ("", "paimon", ROWS)
_NAME: Final = re.compile(r"\w[\w-]*")
"""Names become directories."""
_SETTABLE: Final = frozenset(
    {
        *("bucket", "bucket-key", "changelog-producer", "commit.max-retries", "commit.timeout"),
        *("compaction.max.file-num", "compaction.min.file-num", "deletion-vectors.enabled"),
        *("dynamic-bucket.max-buckets", "dynamic-bucket.target-row-num", "file.block-size"),
        *("file.compression", "file.compression.zstd-level", "file.format", "ignore-delete"),
        *("manifest.compression", "manifest.target-file-size", "merge-engine"),
        *("metadata.stats-mode", "num-sorted-run.compaction-trigger", "partition.default-name"),
        *("read.batch-size", "sequence.field", "sequence.field.sort-order"),
        *("snapshot.num-retained.max", "snapshot.num-retained.min", "snapshot.time-retained"),
        *("source.split.open-file-cost", "source.split.target-size", "target-file-size"),
        *("target-file-row-num", "write-only"),
    }
)
"""Options of tables that users may set. Others name paths, branches and services."""
_FAMILIES: Final = ("fields.", "user.")
"""Begin the names of further ones: options of columns, and what users note for themselves."""


@dataclass(frozen=True, slots=True)
class PaimonCatalog:
    """The tables of a warehouse."""

    found: Any
    """pypaimon's catalog."""
    defaults: Mapping[str, str]
    """Options of new tables."""

    def schemas(self) -> Sequence[str]:
        """Return the names of the databases."""
        return sorted(self.found.list_databases())

    def tables(self, schema: str) -> Sequence[str]:
        """Return the names of the tables of a database."""
        from pypaimon.catalog.catalog_exception import (
            DatabaseNotExistException,
        )

        if not _NAME.fullmatch(schema):
            return ()
        try:
            return sorted(self.found.list_tables(schema))
        except DatabaseNotExistException:
            return ()

    def get_table(self, schema: str, name: str) -> CatalogTable | None:
        """Return a table."""
        table = self._table(schema, name)
        return None if table is None else _described(table)

    def version(self, schema: str, name: str) -> str | None:
        """Return what identifies the newest rows of a table."""
        table = self._table(schema, name)
        if table is None:
            return None
        state = versions.version_of(table, None, None)
        return f"{state.table_id} {state.commit}"

    # ---- schemas and tables ----------------------------------------------------------------------

    def create_schema(self, name: str, properties: Mapping[str, str]) -> None:
        """Create a database; one in a file system has no properties."""
        given = {key: value for key, value in properties.items() if key != "comment"}
        if given:
            raise CatalogError(f"its schemas have no properties, such as {min(given)}")
        self.found.create_database(_named(name), False)

    def drop_schema(self, name: str) -> None:
        """Drop a database without tables."""
        self.found.drop_database(_named(name), False, False)

    def create_table(self, schema: str, name: str, table: CatalogTable) -> CatalogTable:
        """Create a table; the property ``primary-key`` lists the columns of its key."""
        from pypaimon import Schema

        if table.format.lower() not in _PROVIDERS:
            raise CatalogError(f"its tables are those of Paimon, not USING {table.format}")
        if table.location is not None:
            raise CatalogError("it chooses the LOCATION of its tables")
        if table.options:
            raise CatalogError("options of its tables are TBLPROPERTIES")
        given = {**self.defaults, **table.properties}
        key = _names(given.pop(PRIMARY_KEY, ""))
        _require_settable(given)
        columns = [_in_key(each, key) for each in table.columns]
        missing = set(key) - {each.name for each in columns}
        if missing:
            raise CatalogError(f"there is no column {min(missing)} for the primary key")
        self.found.create_table(
            _identifier(_named(schema), _named(name)),
            Schema(types.fields_of(columns), list(table.partition_keys), key, given, table.comment),
            False,
        )
        return _described(self._require(schema, name))

    def alter_table(self, schema: str, name: str, table: CatalogTable) -> None:
        """Add columns, and change comments and options."""
        from pypaimon.schema.schema_change import SchemaChange

        before = _described(self._require(schema, name))
        changes: list[Any] = []
        known = {each.name: each for each in before.columns}
        for column in table.columns:
            old = known.get(column.name)
            if old is None:
                changes.append(
                    SchemaChange.add_column(column.name, types.type_of(column), column.comment)
                )
            elif old.comment != column.comment:
                text = column.comment or ""
                changes.append(SchemaChange.update_column_comment(column.name, text))
        if before.comment != table.comment:
            changes.append(SchemaChange.update_comment(table.comment))
        if before.properties.get(PRIMARY_KEY) != table.properties.get(PRIMARY_KEY):
            raise CatalogError("the primary key of a table cannot be changed")
        changed = {k: v for k, v in table.properties.items() if before.properties.get(k) != v}
        _require_settable(changed)
        changes += [SchemaChange.set_option(key, value) for key, value in changed.items()]
        gone = before.properties.keys() - table.properties.keys()
        _require_settable(gone)
        changes += [SchemaChange.remove_option(key) for key in sorted(gone)]
        if changes:
            self.found.alter_table(_identifier(schema, name), changes)

    def drop_table(self, schema: str, name: str) -> bool:
        """Drop a table with its files; False if there is none."""
        if self._table(schema, name) is None:
            return False
        self.found.drop_table(_identifier(schema, name))
        return True

    def rename_table(self, schema: str, name: str, new_schema: str, new_name: str) -> None:
        """Rename a table, whose directory moves."""
        self._require(schema, name)
        self.found.rename_table(
            _identifier(schema, name), _identifier(_named(new_schema), _named(new_name))
        )

    # ---- rows ------------------------------------------------------------------------------------

    def table_version(
        self, schema: str, name: str, version: str | None, millis: int | None
    ) -> TableVersion | None:
        """Return the state of a table: a snapshot, by its id, a tag or a time."""
        table = self._table(schema, name)
        return None if table is None else versions.version_of(table, version, millis)

    def read_rows(self, schema: str, name: str, scan: RowScan) -> RowReader:
        """Plan a scan of a snapshot, or of the files that two of them do not share."""
        return scans.plan_scan(self._require(schema, name), scan)

    def write_rows(self, schema: str, name: str, overwrite: Overwrite) -> RowWriter:
        """Return how rows are written."""
        return writes.plan_write(self._require(schema, name), overwrite)

    def commit_rows(
        self, schema: str, name: str, overwrite: Overwrite, written: Sequence[bytes]
    ) -> None:
        """Commit what the tasks wrote as one snapshot."""
        writes.commit(self._require(schema, name), overwrite, written)

    def discard_rows(self, schema: str, name: str, written: Sequence[bytes]) -> None:
        """Delete the files that tasks wrote."""
        writes.discard(self._require(schema, name), written)

    def _table(self, schema: str, name: str) -> Any:
        """Return pypaimon's table; None if there is none, or the name is one of its views on it."""
        from pypaimon.catalog.catalog_exception import (
            DatabaseNotExistException,
            TableNotExistException,
        )

        if not _NAME.fullmatch(schema) or not _NAME.fullmatch(name):
            return None
        try:
            return self.found.get_table(_identifier(schema, name))
        except (DatabaseNotExistException, TableNotExistException):
            return None

    def _require(self, schema: str, name: str) -> Any:
        table = self._table(schema, name)
        if table is None:
            raise CatalogError(f"the table {schema}.{name} was dropped meanwhile")
        return table


def _described(table: Any) -> CatalogTable:
    found = table.table_schema
    key = {PRIMARY_KEY: ",".join(found.primary_keys)} if found.primary_keys else {}
    return CatalogTable(
        format=ROWS,
        columns=types.columns_of(found.fields),
        partition_keys=tuple(found.partition_keys),
        location=str(table.table_path),
        comment=found.comment or None,
        properties={**found.options, **key},
    )


def _identifier(schema: str, name: str) -> Any:
    from pypaimon.common.identifier import Identifier

    return Identifier.create(schema, name)


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise CatalogError(f"{name} is no name for it: use letters, digits, underscores and dashes")
    return name


def _names(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _in_key(column: TableColumn, key: Sequence[str]) -> TableColumn:
    return replace(column, nullable=False) if column.name in key else column


def _require_settable(keys: Collection[str]) -> None:
    for key in keys:
        if key not in _SETTABLE and not key.startswith(_FAMILIES):
            near = get_close_matches(key, (*_SETTABLE, PRIMARY_KEY), n=1)
            meant = f"; did you mean {near[0]}" if near else ""
            raise CatalogError(f"the property {key} of its tables cannot be set{meant}")
