"""The materialized tables of a server, with methods to be awaited."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.materialized import records, requests
from tidegate.materialized.requests import Request
from tidegate.materialized.statements import Cascade, RefreshKind
from tidegate.materialized.tables import read_answer
from tidegate.rows import tuple_row

if TYPE_CHECKING:
    from tidegate.aio.connection import Connection

T = TypeVar("T")


class MaterializedTables:
    """As ``tidegate.materialized.MaterializedTables``, whose methods explain their arguments."""

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    async def list(
        self, schema: str | None = None, *, like: str | None = None
    ) -> tuple[records.MaterializedTableSummary, ...]:
        """Return the tables of a schema, by default the current one, sorted by name."""
        return await self._run(requests.list_tables(schema, like))

    async def get(self, name: str) -> records.MaterializedTable:
        """Return all that is known about one table."""
        return await self._run(requests.get(name))

    async def definition(self, name: str) -> str:
        """Return the statement that creates an equal table."""
        return await self._run(requests.definition(name))

    async def refresh(
        self,
        name: str,
        *,
        kind: RefreshKind | None = None,
        partition: Mapping[str, str] | None = None,
        where: str | None = None,
        cascade: Cascade | None = None,
        wait: bool = True,
    ) -> tuple[records.Refreshed, ...]:
        """Refresh a table, and return what was done to it and to those of the cascade."""
        return await self._run(
            requests.refresh(
                name, kind=kind, partition=partition, where=where, cascade=cascade, wait=wait
            )
        )

    async def cancel_refresh(self, name: str) -> tuple[records.CanceledRefresh, ...]:
        """Stop every refresh of a table that runs, and return them."""
        return await self._run(requests.cancel_refresh(name))

    async def suspend(self, name: str, *, cascade: bool = False) -> None:
        """Stop the refreshes of a table; with ``cascade`` also of those that read it."""
        await self._run(requests.suspend(name, cascade=cascade))

    async def resume(self, name: str, *, cascade: bool = False) -> None:
        """Continue the refreshes of a table; with ``cascade`` also of those that read it."""
        await self._run(requests.resume(name, cascade=cascade))

    async def drop(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a table with its rows."""
        await self._run(requests.drop(name, if_exists=if_exists))

    async def history(
        self, name: str | None = None, *, limit: int | None = None, errors: bool = False
    ) -> tuple[records.Refresh, ...]:
        """Return refreshes of a table, or of all, newest first."""
        return await self._run(requests.history(name, limit=limit, errors=errors))

    async def lineage(self, name: str) -> tuple[records.LineageEdge, ...]:
        """Return what a table reads, and what reads it."""
        return await self._run(requests.lineage(name))

    async def column_lineage(self, name: str) -> tuple[records.ColumnLineageEdge, ...]:
        """Return the columns on which those of a table, and of its readers, depend."""
        return await self._run(requests.column_lineage(name))

    async def verify(self, name: str, *, version: int | None = None) -> records.Verification:
        """Compare a version of a table, by default the newest, with its query."""
        return await self._run(requests.verify(name, version=version))

    async def lag(self) -> tuple[records.Lag, ...]:
        """Return how far each table is behind its sources."""
        return await self._run(requests.lag())

    async def _run(self, request: Request[T]) -> T:
        async with self._connection.cursor(tuple_row) as cursor:
            await cursor.execute(request.statement)
            return await cursor.read(partial(read_answer, request=request))
