"""A cached picture of the metastore, so that metadata calls need no engine."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from datetime import datetime, timedelta

from tidegate_server.catalog.base import CatalogReader
from tidegate_server.command.derived import visible_schema
from tidegate_server.errors import ServerError
from tidegate_server.link.client import Engine
from tidegate_server.link.messages.answers import FunctionList, TableInfo, TableList
from tidegate_server.link.messages.requests import ListFunctions, ListTables, OpenSession
from tidegate_server.model.clock import Clock
from tidegate_server.model.names import DEFAULT_SCHEMA, STORAGE_PREFIX, TableName
from tidegate_server.model.table import MaterializedTable
from tidegate_server.session.metadata import (
    MATERIALIZED_TABLE,
    TABLE,
    VIEW,
    ListedTable,
    Listing,
)
from tidegate_server.session.patterns import compile_pattern

logger = logging.getLogger(__name__)

TABLES_LIFETIME = timedelta(seconds=10)
FUNCTIONS_LIFETIME = timedelta(seconds=60)
_NOTHING = TableList(schemas=(), tables=())


class Snapshot:
    """Merges the catalog's materialized tables with the metastore's other tables.

    The catalog is always asked; the metastore through the engine only when the kept answer is
    old, and never by waiting for an engine: without one the kept answer stands, whatever its age.
    """

    def __init__(self, catalog: CatalogReader, engine: Engine, clock: Clock) -> None:
        self._catalog = catalog
        self._engine = engine
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[tuple[str | None, bool], tuple[datetime, TableList]] = {}
        self._functions: tuple[datetime, FunctionList] | None = None
        self._valid_from: datetime | None = None

    def invalidate(self) -> None:
        """Ask the engine again next time; called after a statement that may have changed names."""
        self._valid_from = self._clock.now()

    def listing(self, *, with_columns: bool = False, schema: str | None = None) -> Listing:
        """Return schemas and tables; of one schema alone when ``schema`` is its exact name."""
        with self._lock:
            answer = self._tables(schema, with_columns)
        return merge(self._catalog.tables(schema=schema), answer)

    def columns_of(self, schema_pattern: str | None) -> Listing:
        """Return tables with their columns, reading no more schemas than the pattern needs."""
        wanted = compile_pattern(schema_pattern)
        schemas = [name for name in self.schemas() if wanted.fullmatch(name)]
        only = schemas[0] if len(schemas) == 1 else None
        return self.listing(with_columns=True, schema=only)

    def schemas(self) -> tuple[str, ...]:
        """Return the names of all schemas known."""
        return self.listing().schemas

    def knows_metastore(self) -> bool:
        """Whether an engine has ever told what there is."""
        return (None, False) in self._kept

    def functions(self, session_id: str) -> Listing:
        """Return the functions, empty until an engine has told them once."""
        with self._lock:
            if self._functions is None or self._is_old(self._functions[0], FUNCTIONS_LIFETIME):
                self._ask_functions(session_id)
            known = self._functions[1].names if self._functions else ()
        return Listing(functions=tuple(sorted(known)))

    def _tables(self, schema: str | None, with_columns: bool) -> TableList:
        key = (schema, with_columns)
        kept = self._kept.get(key)
        if kept is not None and not self._is_old(kept[0], TABLES_LIFETIME):
            return kept[1]
        asked_at = self._clock.now()
        try:
            answer = self._engine.call(ListTables(schema=schema, with_columns=with_columns), wait=0)
        except ServerError as problem:
            logger.debug("The metastore was not listed: %s", problem)
            return kept[1] if kept else self._next_best(schema)
        if not isinstance(answer, TableList):
            raise TypeError(f"ListTables was answered by {type(answer).__name__}")
        self._kept[key] = (asked_at, answer)
        return answer

    def _next_best(self, schema: str | None) -> TableList:
        kept = self._kept.get((None, True)) or self._kept.get((None, False))
        if kept is None:
            return _NOTHING
        everything = kept[1]
        tables = tuple(t for t in everything.tables if schema in (None, t.name.schema))
        return TableList(schemas=everything.schemas, tables=tables)

    def _ask_functions(self, session_id: str) -> None:
        asked_at = self._clock.now()
        try:
            self._engine.call(OpenSession(session_id=session_id), wait=0)
            answer = self._engine.call(ListFunctions(session_id=session_id), wait=0)
        except ServerError as problem:
            logger.debug("The functions were not listed: %s", problem)
            return
        if not isinstance(answer, FunctionList):
            raise TypeError(f"ListFunctions was answered by {type(answer).__name__}")
        self._functions = (asked_at, answer)

    def _is_old(self, asked_at: datetime, lifetime: timedelta) -> bool:
        overtaken = self._valid_from is not None and asked_at <= self._valid_from
        return overtaken or self._clock.now() - asked_at > lifetime


def merge(materialized: Iterable[MaterializedTable], metastore: TableList) -> Listing:
    """Lay the materialized tables over the metastore's; each table appears once."""
    listed: dict[TableName, ListedTable] = {
        info.name.folded(): _from_metastore(info)
        for info in metastore.tables
        if not info.name.table.startswith(STORAGE_PREFIX)
    }
    listed.update({table.name.folded(): _from_catalog(table) for table in materialized})
    schemas = {DEFAULT_SCHEMA, *metastore.schemas, *(t.name.schema for t in listed.values())}
    return Listing(
        schemas=tuple(sorted(schemas)), tables=tuple(listed[name] for name in sorted(listed))
    )


def _from_metastore(info: TableInfo) -> ListedTable:
    kind = VIEW if "VIEW" in info.type.upper() else TABLE
    return ListedTable(name=info.name, type=kind, comment=info.comment, columns=info.columns)


def _from_catalog(table: MaterializedTable) -> ListedTable:
    return ListedTable(
        name=table.name,
        type=MATERIALIZED_TABLE,
        comment=table.comment,
        columns=visible_schema(table.visible).columns,
        primary_key=table.primary_key,
    )
