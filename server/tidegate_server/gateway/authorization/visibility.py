"""Catalog, history and results without the tables that a user may not see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate_server.core.messages.answers import Mention, Surveyed
from tidegate_server.core.model.names import (
    DEFAULT_CATALOG,
    SYSTEM_SCHEMA,
    TableName,
    quote_identifier,
    quote_literal,
)
from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.authorization.rights import Action, Rights, secured_table
from tidegate_server.gateway.catalog.base import CatalogReader
from tidegate_server.gateway.scheduler.base import Ledger

_PAGE = 1000


class VisibleCatalog:
    """A catalog whose lists omit hidden tables; everything else is delegated."""

    def __init__(self, catalog: CatalogReader, rights: Rights) -> None:
        self._catalog = catalog
        self._rights = rights

    def tables(
        self, catalog: str | None = None, schema: str | None = None
    ) -> tuple[MaterializedTable, ...]:
        return self._rights.visible(self._catalog.tables(catalog, schema))

    def consumers(self, name: TableName) -> tuple[MaterializedTable, ...]:
        return self._rights.visible(self._catalog.consumers(name))

    def can_see(self, table_id: str) -> bool:
        """Return whether a table may be seen; only administrators see a dropped one."""
        table = self._catalog.by_id(table_id)
        return table is not None and self._rights.may(Action.SEE, secured_table(table))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)


class VisibleLedger:
    """A ledger that omits the runs of hidden tables; everything else is delegated."""

    def __init__(self, ledger: Ledger, catalog: VisibleCatalog) -> None:
        self._ledger = ledger
        self._catalog = catalog

    def runs(self, table_id: str | None = None, limit: int = _PAGE) -> tuple[RefreshRun, ...]:
        if table_id is not None:
            return self._ledger.runs(table_id, limit)
        known: dict[str, bool] = {}
        size = limit
        while True:
            page = self._ledger.runs(None, size)
            for run in page:
                if run.table_id not in known:
                    known[run.table_id] = self._catalog.can_see(run.table_id)
            found = tuple(run for run in page if known[run.table_id])
            if len(found) >= limit or len(page) < size:
                return found[:limit]
            size *= 4

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


def narrow_query(sql: str, surveyed: Surveyed, visible: Sequence[MaterializedTable]) -> str | None:
    """Return a query that sees only the rows of visible tables in information_schema.

    None if it reads information_schema in a way that cannot be narrowed.
    """
    read = [r for r in surveyed.readings if r.name is not None and _is_system(r.name)]
    mentions = sorted((m for m in surveyed.mentions if _is_system(m.name)), key=lambda m: m.start)
    if len(mentions) != len(read):
        return None  # a view or a function reads it
    ids = ", ".join(quote_literal(table.id) for table in visible)
    condition = f"table_id IN ({ids})" if ids else "false"
    pieces, end = [], 0
    for mention in mentions:
        pieces += [sql[end : mention.start], _replacement(mention, condition)]
        end = mention.end
    return "".join([*pieces, sql[end:]])


def reads_system(surveyed: Surveyed) -> bool:
    """Return whether a statement reads information_schema."""
    return any(r.name is not None and _is_system(r.name) for r in surveyed.readings)


def _is_system(name: TableName) -> bool:
    return (name.catalog, name.schema.lower()) == (DEFAULT_CATALOG, SYSTEM_SCHEMA)


def _replacement(mention: Mention, condition: str) -> str:
    inner = f"(SELECT * FROM {mention.name.quoted()} WHERE {condition})"
    if mention.statement:
        return f"SELECT * FROM {inner}"
    return inner if mention.aliased else f"{inner} AS {quote_identifier(mention.name.table)}"
