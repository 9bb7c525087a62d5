"""What a catalog of materialized tables promises.

Guarantees: a definition is written whole or not at all; reads see only whole definitions; names
are unique without regard to case; a status moves only along ``model.states.REFRESH_MOVES``.
Not guaranteed: that the storage behind a definition exists; the caller orders those effects.
Recovery: every definition also stands in its table's properties, from which ``command.rebuild``
makes a lost catalog anew.
"""

from __future__ import annotations

from typing import Protocol

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.states import REFRESH_MOVES, RefreshStatus, allowed
from tidegate_server.core.model.table import HeldVersion, MaterializedTable
from tidegate_server.core.model.versions import Source


class CatalogReader(Protocol):
    """The reading side; planners and listings get no more."""

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

    def consumers(self, name: TableName) -> tuple[MaterializedTable, ...]:
        """Return the materialized tables whose query reads ``name`` directly, by name."""
        ...

    def replaced_definitions(self, table_id: str | None = None) -> tuple[MaterializedTable, ...]:
        """Return the definitions of a table (None: of all) that a newer version replaced, by
        version, each as it last was."""
        ...


class Catalog(CatalogReader, Protocol):
    """The writing side."""

    def create(self, table: MaterializedTable) -> None:
        """Add a definition.

        :raises ServerError: MT_ALREADY_EXISTS if the name is taken.
        """
        ...

    def replace(self, *tables: MaterializedTable) -> None:
        """Write changed definitions over those of the same ids, all of them or none.

        Tables that are given together may exchange their names.
        What a higher definition version replaces is kept; a lower one forgets those it undoes.
        Their refresh status with its reason and their held version stay as stored; :meth:`move`
        and :meth:`hold` change them.

        :raises ServerError: MT_NOT_FOUND if an id is gone, MT_ALREADY_EXISTS if a new name is
            taken.
        """
        ...

    def move(
        self, table_id: str, start: RefreshStatus, end: RefreshStatus, reason: str | None = None
    ) -> bool:
        """Change the refresh status; False when it was not ``start`` any more."""
        ...

    def hold(self, table_id: str, held: HeldVersion | None) -> None:
        """Note which version of a table is held, None for none; a table that is gone is none."""
        ...

    def note_sources(self, table_id: str, sources: tuple[Source, ...]) -> None:
        """Note what a table's query was found to read; a table that is gone is none."""
        ...

    def drop(self, table_id: str) -> None:
        """Remove a definition and those it replaced; one that is gone already is harmless."""
        ...


def check_move(start: RefreshStatus, end: RefreshStatus) -> None:
    """Refuse a change of status that the life cycle does not have.

    :raises ServerError: INTERNAL, since only a mistake in the server asks for one.
    """
    if not allowed(REFRESH_MOVES, start, end):
        reason = f"a refresh status cannot move from {start.value} to {end.value}"
        raise error(Code.INTERNAL, reason=reason)
