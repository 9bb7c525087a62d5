"""The names that the session knows, loaded when the shell first completes one of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import tidegate
from tidegate.cli.script import Workbench
from tidegate.cursor import Cursor
from tidegate.lexical import escape_pattern

logger = logging.getLogger(__name__)

_SCHEMA, _NAME, _COLUMN = 1, 2, 3
"""Places in the rows of Hive's metadata calls."""


class SessionNames:
    """Names of the current connection; they are kept until ``forget``."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._known: dict[str, tuple[str, ...]] = {}

    def forget(self) -> None:
        """Load the names again next time, because a statement may have changed them."""
        self._known.clear()

    def objects(self) -> tuple[str, ...]:
        """Return catalogs, schemas, and tables, the latter bare and with their schemas.

        Only tables of the session catalog: others may have to wait for another system.
        """
        return self._load("objects", _objects)

    def functions(self) -> tuple[str, ...]:
        """Return the names of functions."""
        return self._load(
            "functions", lambda cursor: sorted(row[_NAME] for row in cursor.functions().fetchall())
        )

    def settings(self) -> tuple[str, ...]:
        """Return the keys of session settings and of options of materialized tables."""
        return self._load(
            "settings", lambda cursor: sorted(row[0] for row in cursor.execute("SET -v").fetchall())
        )

    def columns(self, table: str) -> tuple[str, ...]:
        """Return the columns of a table, in their order; its name may have a schema."""
        schema, _, name = table.rpartition(".")

        def columns(cursor: Cursor) -> Iterable[object]:
            pattern = escape_pattern(schema) or None, escape_pattern(name)
            rows = cursor.columns(*pattern).fetchall()
            return [row[_COLUMN] for row in rows]

        return self._load(f"columns of {table.lower()}", columns)

    def _load(self, what: str, ask: Callable[[Cursor], Iterable[object]]) -> tuple[str, ...]:
        connection = self._bench.connection
        if connection is None:
            return ()
        if what not in self._known:
            try:
                with connection.cursor() as cursor:
                    self._known[what] = tuple(dict.fromkeys(map(str, ask(cursor))))
            except tidegate.Error as error:
                logger.debug("Cannot list %s for completion: %s", what, error)
                return ()
        return self._known[what]


def _objects(cursor: Cursor) -> Iterable[object]:
    tables = cursor.tables(None, "%").fetchall()
    catalogs = {row[0] for row in cursor.catalogs().fetchall()}
    bare = {name for row in tables for name in (row[_NAME], row[_SCHEMA])}
    return sorted(catalogs | bare | {f"{row[_SCHEMA]}.{row[_NAME]}" for row in tables})
