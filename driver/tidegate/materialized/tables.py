"""The materialized tables of a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.materialized import records, requests
from tidegate.materialized.requests import Request
from tidegate.materialized.rows import aware_rows, aware_table_rows
from tidegate.materialized.statements import Cascade, RefreshKind
from tidegate.rows import tuple_row

if TYPE_CHECKING:
    from tidegate.connection import Connection
    from tidegate.cursor import Cursor

T = TypeVar("T")


class MaterializedTables:
    """Each method issues one statement in the session and returns its typed answer.

    A ``name`` is ``[[catalog.]schema.]table``; parts with dots or spaces are in backticks.
    All methods raise ``Error`` as ``Cursor.execute`` does, with the code ``MT_NOT_FOUND`` for an
    unknown table.
    """

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    def list(
        self, schema: str | None = None, *, like: str | None = None
    ) -> tuple[records.MaterializedTableSummary, ...]:
        """Return the tables of a schema, by default the current one, sorted by name.

        :param like: a pattern for names: ``%`` stands for any text, ``_`` for one character.
        """
        return self._run(requests.list_tables(schema, like))

    def get(self, name: str) -> records.MaterializedTable:
        """Return all that is known about one table."""
        return self._run(requests.get(name))

    def definition(self, name: str) -> str:
        """Return the statement that creates an equal table."""
        return self._run(requests.definition(name))

    def refresh(
        self,
        name: str,
        *,
        kind: RefreshKind | None = None,
        partition: Mapping[str, str] | None = None,
        where: str | None = None,
        cascade: Cascade | None = None,
        wait: bool = True,
    ) -> tuple[records.Refreshed, ...]:
        """Refresh a table, and return what was done to it and to those of the cascade.

        :param kind: FULL computes all rows again, INCREMENTAL only changes where that is exact.
        :param partition: the partition to replace, by column.
        :param where: a condition in SQL; only the rows that satisfy it are replaced.
        :param cascade: whether the tables that it reads, or those that read it, follow.
        :param wait: False returns at once; ``history`` shows how it goes on.
        """
        return self._run(
            requests.refresh(
                name, kind=kind, partition=partition, where=where, cascade=cascade, wait=wait
            )
        )

    def cancel_refresh(self, name: str) -> tuple[records.CanceledRefresh, ...]:
        """Stop every refresh of a table that runs, and return them."""
        return self._run(requests.cancel_refresh(name))

    def suspend(self, name: str, *, cascade: bool = False) -> None:
        """Stop the refreshes of a table; with ``cascade`` also of those that read it."""
        self._run(requests.suspend(name, cascade=cascade))

    def resume(self, name: str, *, cascade: bool = False) -> None:
        """Continue the refreshes of a table; with ``cascade`` also of those that read it."""
        self._run(requests.resume(name, cascade=cascade))

    def drop(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a table with its rows."""
        self._run(requests.drop(name, if_exists=if_exists))

    def history(
        self, name: str | None = None, *, limit: int | None = None, errors: bool = False
    ) -> tuple[records.Refresh, ...]:
        """Return refreshes of a table, or of all, newest first.

        :param limit: at most so many; the server's limit is 1,000 by default.
        :param errors: only those that failed.
        """
        return self._run(requests.history(name, limit=limit, errors=errors))

    def lineage(self, name: str) -> tuple[records.LineageEdge, ...]:
        """Return what a table reads, and what reads it."""
        return self._run(requests.lineage(name))

    def column_lineage(self, name: str) -> tuple[records.ColumnLineageEdge, ...]:
        """Return the columns on which those of a table, and of its readers, depend."""
        return self._run(requests.column_lineage(name))

    def verify(self, name: str, *, version: int | None = None) -> records.Verification:
        """Compare a version of a table, by default the newest, with its query."""
        return self._run(requests.verify(name, version=version))

    def lag(self) -> tuple[records.Lag, ...]:
        """Return how far each table is behind its sources."""
        return self._run(requests.lag())

    def _run(self, request: Request[T]) -> T:
        with self._connection.cursor(tuple_row) as cursor:
            return read_answer(cursor.execute(request.statement), request)


def read_answer(cursor: Cursor[Any], request: Request[T]) -> T:
    """Fetch the rows of a request whose statement is done, and return what they say."""
    if cursor.description is None:
        return request.read([])
    if cursor.connection.sends_arrow:
        return request.read(aware_table_rows(cursor.fetch_arrow_table()))
    return request.read(aware_rows(cursor.columns_info, cursor.fetchall()))
