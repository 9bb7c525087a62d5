"""A catalog in a dictionary: the reference implementation and a test double."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import HeldVersion, MaterializedTable
from tidegate_server.core.model.versions import Source
from tidegate_server.gateway.catalog.base import check_move, is_under


class MemoryCatalog:
    """Keeps definitions for the life of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[str, MaterializedTable] = {}
        self._replaced: dict[tuple[str, int], MaterializedTable] = {}

    def find(self, name: TableName) -> MaterializedTable | None:
        return next((t for t in self._all() if t.name.folded() == name.folded()), None)

    def by_id(self, table_id: str) -> MaterializedTable | None:
        with self._lock:
            return self._tables.get(table_id)

    def tables(
        self, catalog: str | None = None, schema: str | None = None
    ) -> tuple[MaterializedTable, ...]:
        return _by_name(
            table
            for table in self._all()
            if (catalog is None or table.name.catalog.lower() == catalog.lower())
            and (schema is None or table.name.schema.lower() == schema.lower())
        )

    def tables_at(
        self, names: Iterable[TableName], locations: Iterable[str]
    ) -> tuple[MaterializedTable, ...]:
        names, locations = set(names), set(locations)
        return _by_name(each for each in self._all() if is_under(each, names, locations))

    def watched(self) -> tuple[MaterializedTable, ...]:
        return _by_name(each for each in self._all() if each.definition.watched)

    def downstream(self) -> tuple[MaterializedTable, ...]:
        return _by_name(each for each in self._all() if each.definition.downstream)

    def consumers(self, name: TableName) -> tuple[MaterializedTable, ...]:
        wanted = name.folded()
        return _by_name(
            table
            for table in self._all()
            if any(source.name.folded() == wanted for source in table.definition.sources)
        )

    def replaced_definitions(self, table_id: str | None = None) -> tuple[MaterializedTable, ...]:
        with self._lock:
            kept = sorted(self._replaced.items())
        return tuple(table for (owner, _), table in kept if table_id in (None, owner))

    def create(self, table: MaterializedTable) -> None:
        with self._lock:
            if table.id in self._tables:
                raise _already_exists(table.name)
            self._check_name(table)
            self._tables[table.id] = table

    def replace(self, *tables: MaterializedTable) -> None:
        with self._lock:
            before, kept = dict(self._tables), dict(self._replaced)
            try:
                for table in tables:
                    self._replace(table)
                for table in tables:
                    self._check_name(table)
            except ServerError:
                self._tables, self._replaced = before, kept
                raise

    def move(
        self, table_id: str, start: RefreshStatus, end: RefreshStatus, reason: str | None = None
    ) -> bool:
        check_move(start, end)
        with self._lock:
            stored = self._tables.get(table_id)
            if stored is None or stored.state.status is not start:
                return False
            self._tables[table_id] = replace(
                stored, state=replace(stored.state, status=end, status_reason=reason)
            )
            return True

    def record_held_version(self, table_id: str, held: HeldVersion | None) -> None:
        with self._lock:
            if table_id in self._tables:
                stored = self._tables[table_id]
                self._tables[table_id] = replace(stored, state=replace(stored.state, held=held))

    def note_sources(self, table_id: str, sources: tuple[Source, ...]) -> None:
        with self._lock:
            if table_id in self._tables:
                stored = self._tables[table_id]
                definition = replace(stored.definition, sources=sources)
                self._tables[table_id] = replace(stored, definition=definition)

    def drop(self, table_id: str) -> None:
        with self._lock:
            self._tables.pop(table_id, None)
            self._replaced = {k: v for k, v in self._replaced.items() if k[0] != table_id}

    def _replace(self, table: MaterializedTable) -> None:
        stored = self._tables.get(table.id)
        if stored is None:
            raise error(Code.MT_NOT_FOUND, table=table.name)
        self._archive_definition(stored, table.definition.version)
        state = stored.state.with_options_of(table.state)
        self._tables[table.id] = replace(table, state=state)

    def _archive_definition(self, stored: MaterializedTable, version: int) -> None:
        if version > stored.definition.version:
            self._replaced[stored.id, stored.definition.version] = replace(stored, pending=None)
            return
        for later in [key for key in self._replaced if key[0] == stored.id and key[1] >= version]:
            del self._replaced[later]

    def _all(self) -> tuple[MaterializedTable, ...]:
        with self._lock:
            return tuple(self._tables.values())

    def _check_name(self, table: MaterializedTable) -> None:
        folded = table.name.folded()
        for other in self._tables.values():
            if other.id != table.id and other.name.folded() == folded:
                raise _already_exists(table.name)


def _by_name(tables: Iterable[MaterializedTable]) -> tuple[MaterializedTable, ...]:
    return tuple(sorted(tables, key=lambda table: table.name.folded()))


def _already_exists(name: TableName) -> ServerError:
    return error(Code.MT_ALREADY_EXISTS, kind="Materialized table", table=name)
