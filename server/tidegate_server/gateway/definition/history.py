"""Versions of a table's definition: content, author and changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec
import pyarrow as pa

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.model.table import Definition, MaterializedTable
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.sql.render import render_create
from tidegate_server.gateway.catalog.base import CatalogReader
from tidegate_server.gateway.definition.evolution import evolution
from tidegate_server.gateway.definition.statement import creating
from tidegate_server.gateway.scheduler.base import Ledger

DATA_VERSIONS = 10_000
"""Maximum number of data versions to search, newest first."""
_TIME = pa.timestamp("us", tz="UTC")
_COLUMNS: tuple[tuple[str, str, pa.DataType], ...] = (
    ("definition_version", "bigint", pa.int64()),
    ("defined_at", "timestamp", _TIME),
    ("defined_by", "string", pa.string()),
    ("restored_from", "bigint", pa.int64()),
    ("changes", "string", pa.string()),
    ("query", "string", pa.string()),
    ("definition", "string", pa.string()),
)
ARROW = pa.schema([(name, kind) for name, _, kind in _COLUMNS])
"""The columns that describe a definition version."""
_SCHEMA = Schema(tuple(Column(name=name, type=kind) for name, kind, _ in _COLUMNS))


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionVersion:
    """The last state of a definition version; ``changes`` is JSON, None for the oldest."""

    definition_version: int
    defined_at: datetime | None
    defined_by: str | None
    restored_from: int | None
    changes: str | None
    query: str
    definition: str

    def row(self) -> tuple[object, ...]:
        """Return the values in the order of the columns."""
        return tuple(getattr(self, name) for name in ARROW.names)


def versions(table: MaterializedTable, catalog: CatalogReader) -> tuple[MaterializedTable, ...]:
    """Return all known definitions of a table, the current one last."""
    return (*catalog.replaced_definitions(table.id), table)


def find(
    table: MaterializedTable, version: int | None, catalog: CatalogReader
) -> MaterializedTable:
    """Return a definition by version; None means the previous one.

    :raises ServerError: MT_DEFINITION_NOT_FOUND with the available versions.
    """
    known = {entry.definition.version: entry for entry in versions(table, catalog)}
    number = version_to_restore(version, table.definition)
    if number not in known:
        available = ", ".join(str(entry) for entry in known)
        raise error(
            Code.MT_DEFINITION_NOT_FOUND, table=table.name, version=number, available=available
        )
    return known[number]


def of_data(table: MaterializedTable, version: int, ledger: Ledger) -> int | None:
    """Return the definition version that produced a data version; None if no such refresh is
    in the history."""
    runs = ledger.commits(table.id, DATA_VERSIONS)
    return next((run.definition_version for run in runs if run.to_version == version), None)


def version_to_restore(version: int | None, definition: Definition) -> int:
    """Return the target version of a rollback; by default the previous one."""
    return definition.version - 1 if version is None else version


def describe_versions(known: Sequence[MaterializedTable]) -> list[DefinitionVersion]:
    """Describe a table's definitions in version order, each with its changes.

    Statements use the current table name.
    """
    before: Sequence[MaterializedTable | None] = (None, *known)
    return [
        _describe(definition, last, known[-1].name)
        for last, definition in zip(before, known, strict=False)
    ]


def show(table: MaterializedTable, catalog: CatalogReader) -> Result:
    """List a table's definition versions, newest first."""
    rows = [version.row() for version in reversed(describe_versions(versions(table, catalog)))]
    return RowsResult(_SCHEMA, rows, types=tuple(ARROW.types))


def _describe(
    table: MaterializedTable, before: MaterializedTable | None, name: TableName
) -> DefinitionVersion:
    definition = table.definition
    first = definition.version == 1
    return DefinitionVersion(
        definition_version=definition.version,
        defined_at=table.created_at if first else definition.defined_at,
        defined_by=table.owner if first else definition.defined_by,
        restored_from=definition.restored_from,
        changes=None if before is None else _changes(before, table),
        query=definition.original_query,
        definition=render_create(creating(replace(table, name=name), or_alter=True)),
    )


def _changes(before: MaterializedTable, after: MaterializedTable) -> str:
    changes = (
        {"object": change.object, "before": change.before, "after": change.after}
        for change in evolution(before, after).changes
    )
    return msgspec.json.encode(list(changes)).decode()
