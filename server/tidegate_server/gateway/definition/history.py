"""The versions of a table's definition: what each one was, who made it, what it changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec
import pyarrow as pa

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.sql.render import render_create
from tidegate_server.gateway.catalog.base import CatalogReader
from tidegate_server.gateway.definition.evolution import evolution
from tidegate_server.gateway.definition.statement import creating
from tidegate_server.gateway.scheduler.base import Ledger

DATA_VERSIONS = 10_000
"""So many versions of a table's data, the newest ones, are looked through."""
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
    """One version of a definition, as it last was; ``changes`` is JSON, None for the first kept."""

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
    """Return every definition of a table that is known, the one in force last."""
    return (*catalog.replaced_definitions(table.id), table)


def find(
    table: MaterializedTable, version: int | None, catalog: CatalogReader
) -> MaterializedTable:
    """Return a definition by its version, by None the one before that in force.

    :raises ServerError: MT_DEFINITION_NOT_FOUND listing those there are.
    """
    known = {entry.definition_version: entry for entry in versions(table, catalog)}
    number = version_to_restore(version, table)
    if number not in known:
        available = ", ".join(str(entry) for entry in known)
        raise error(
            Code.MT_DEFINITION_NOT_FOUND, table=table.name, version=number, available=available
        )
    return known[number]


def of_data(table: MaterializedTable, version: int, ledger: Ledger) -> int | None:
    """Return by which version of the definition a version of the data was made; None if the
    history knows no refresh that made it."""
    runs = ledger.commits(table.id, DATA_VERSIONS)
    return next((run.definition_version for run in runs if run.to_version == version), None)


def version_to_restore(version: int | None, table: MaterializedTable) -> int:
    """Return which version a rollback names; without a number the one before that in force."""
    return table.definition_version - 1 if version is None else version


def describe_versions(known: Sequence[MaterializedTable]) -> list[DefinitionVersion]:
    """Describe a table's definitions, given by version; each is compared with the one before.

    Statements are written with the name that the table has now.
    """
    before: Sequence[MaterializedTable | None] = (None, *known)
    return [
        _describe(definition, last, known[-1].name)
        for last, definition in zip(before, known, strict=False)
    ]


def show(table: MaterializedTable, catalog: CatalogReader) -> Result:
    """List the versions of a table's definition, newest first."""
    rows = [version.row() for version in reversed(describe_versions(versions(table, catalog)))]
    return RowsResult(_SCHEMA, rows, types=tuple(ARROW.types))


def _describe(
    table: MaterializedTable, before: MaterializedTable | None, name: TableName
) -> DefinitionVersion:
    first = table.definition_version == 1
    return DefinitionVersion(
        definition_version=table.definition_version,
        defined_at=table.created_at if first else table.defined_at,
        defined_by=table.owner if first else table.defined_by,
        restored_from=table.restored_from,
        changes=None if before is None else _changes(before, table),
        query=table.original_query,
        definition=render_create(creating(replace(table, name=name), or_alter=True)),
    )


def _changes(before: MaterializedTable, after: MaterializedTable) -> str:
    changes = (
        {"object": change.object, "before": change.before, "after": change.after}
        for change in evolution(before, after).changes
    )
    return msgspec.json.encode(list(changes)).decode()
