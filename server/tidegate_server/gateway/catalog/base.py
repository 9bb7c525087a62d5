"""The contract of a catalog of materialized tables.

Guarantees: a definition is written whole or not at all; reads see only whole definitions; names
are unique regardless of case; a status only changes along ``model.states.REFRESH_MOVES``.
Not guaranteed: that the storage of a definition exists; the caller orders those effects.
Recovery: every definition is also stored in its table's properties, from which
``recovery.catalog.rebuild`` restores a lost catalog.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.states import REFRESH_MOVES, RefreshStatus, allowed
from tidegate_server.core.model.table import HeldVersion, MaterializedTable
from tidegate_server.core.model.versions import Source


class CatalogReader(Protocol):
    """The reading side, which is all that planners and listings get."""

    def find(self, name: TableName) -> MaterializedTable | None:
        """Return the materialized table of that name, or None."""
        ...

    def by_id(self, table_id: str) -> MaterializedTable | None:
        """Return the materialized table of that id, or None."""
        ...

    def tables(
        self, catalog: str | None = None, schema: str | None = None
    ) -> tuple[MaterializedTable, ...]:
        """Return the materialized tables of a catalog and schema (None: of all), by name."""
        ...

    def tables_at(
        self, names: Iterable[TableName], locations: Iterable[str]
    ) -> tuple[MaterializedTable, ...]:
        """Return the tables whose rows can be read under one of these names or locations."""
        ...

    def watched(self) -> tuple[MaterializedTable, ...]:
        """Return the tables that changes of sources refresh, by name."""
        ...

    def downstream(self) -> tuple[MaterializedTable, ...]:
        """Return the tables with FRESHNESS = DOWNSTREAM, by name."""
        ...

    def consumers(self, name: TableName) -> tuple[MaterializedTable, ...]:
        """Return the materialized tables whose query reads ``name`` directly, by name."""
        ...

    def replaced_definitions(self, table_id: str | None = None) -> tuple[MaterializedTable, ...]:
        """Return the replaced definitions of a table (None: of all), ordered by version.

        Each is as it last was before a newer version replaced it, without a pending operation.
        """
        ...


class Catalog(CatalogReader, Protocol):
    """The writing side."""

    def create(self, table: MaterializedTable) -> None:
        """Add a definition.

        :raises ServerError: MT_ALREADY_EXISTS if the name is taken.
        """
        ...

    def replace(self, *tables: MaterializedTable) -> None:
        """Replace the definitions with the same ids, all of them or none.

        Tables in one call may exchange their names.
        A higher definition version archives the one it replaces; a lower one deletes those it
        undoes. The stored refresh status, its reason and the held version do not change here, but
        by :meth:`move` and :meth:`hold`.

        :raises ServerError: MT_NOT_FOUND if an id does not exist, MT_ALREADY_EXISTS if a new name
            is taken.
        """
        ...

    def move(
        self, table_id: str, start: RefreshStatus, end: RefreshStatus, reason: str | None = None
    ) -> bool:
        """Change the refresh status; False if it is no longer ``start``."""
        ...

    def record_held_version(self, table_id: str, held: HeldVersion | None) -> None:
        """Record which version of a table is held (None: none); ignores an unknown id."""
        ...

    def note_sources(self, table_id: str, sources: tuple[Source, ...]) -> None:
        """Record which sources a table's query reads; ignores an unknown id."""
        ...

    def drop(self, table_id: str) -> None:
        """Remove a definition and those it replaced; ignores an unknown id."""
        ...


def check_move(start: RefreshStatus, end: RefreshStatus) -> None:
    """Reject a change of status that the life cycle does not allow.

    :raises ServerError: INTERNAL, since only a bug in the server can request one.
    """
    if not allowed(REFRESH_MOVES, start, end):
        reason = f"a refresh status cannot move from {start.value} to {end.value}"
        raise error(Code.INTERNAL, reason=reason)


def is_under(
    table: MaterializedTable, names: Iterable[TableName], locations: Iterable[str]
) -> bool:
    """Return whether a table's rows can be read under one of these names or locations."""
    return any(table.is_at(name, None) for name in names) or any(
        table.is_at(None, location) for location in locations
    )
