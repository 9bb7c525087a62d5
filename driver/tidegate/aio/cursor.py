"""A cursor whose calls are awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from tidegate import cursor as blocking
from tidegate.aio.worker import Worker, run_aside
from tidegate.batches import insert_batches
from tidegate.errors import DatabaseError, InterfaceError
from tidegate.operation import OperationStatus
from tidegate.parameters import Parameters
from tidegate.result import Pause, concatenated
from tidegate.rows import Row

if TYPE_CHECKING:
    from tidegate.aio.connection import Connection

T = TypeVar("T")


class Cursor(Generic[Row]):
    """Runs statements and hands out their rows, of the type that the row factory makes.

    Made by ``Connection.cursor``; one task uses it at a time, ``cancel`` alone may be called from
    another. If a task is canceled, or its time is up, while it awaits ``execute``, ``wait``,
    ``logs``, a fetch or a list of metadata, the statement is canceled on the server before the
    task goes on; the cursor can then run another one.
    """

    def __init__(
        self, connection: Connection[Any], driven: blocking.Cursor[Row], worker: Worker
    ) -> None:
        """Wrap a cursor, whose blocking calls ``worker`` makes."""
        self.connection = connection
        self._blocking = driven
        self._worker = worker

    def __repr__(self) -> str:
        return repr(self._blocking).replace("tidegate.", "tidegate.aio.")

    @property
    def closed(self) -> bool:
        """Whether it, or its connection, was closed."""
        return self._blocking.closed or self.connection.closed

    # Attributes of PEP 249.

    @property
    def arraysize(self) -> int:
        """Default number of rows for ``fetchmany``."""
        return self._blocking.arraysize

    @arraysize.setter
    def arraysize(self, rows: int) -> None:
        self._blocking.arraysize = rows

    @property
    def description(self) -> blocking.Description | None:
        """One tuple per column, as ``tidegate.Cursor.description``."""
        return self._blocking.description

    @property
    def rowcount(self) -> int:
        """Rows changed by the last DML where the server counts them, otherwise -1."""
        return self._blocking.rowcount

    @property
    def messages(self) -> list[blocking.Message]:
        """Warnings and notes of the server about the last statement, as PEP 249 has them."""
        return self._blocking.messages

    @property
    def operation_handle(self) -> str | None:
        """The argument for ``Connection.cancel_operation``, None before the first statement."""
        return self._blocking.operation_handle

    async def query_id(self) -> str | None:
        """Return the server's id of the last statement, None before the first one."""
        return await self._worker.run(lambda: self._blocking.query_id)

    # Running statements.

    async def execute(
        self,
        operation: str,
        parameters: Parameters | None = None,
        *,
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Run a statement until it is done; ``tidegate.Cursor.execute`` explains the arguments.

        :raises Error: of the class that matches the server's SQLSTATE.
        """
        await self.execute_async(operation, parameters, settings=settings)
        return await self.wait()

    async def execute_async(
        self,
        operation: str,
        parameters: Parameters | None = None,
        *,
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Start a statement and return; ``poll`` and ``wait`` follow it."""
        await self._run(
            partial(self._blocking.execute_async, operation, parameters, settings=settings)
        )
        return self

    async def executemany(
        self,
        operation: str,
        seq_of_parameters: Iterable[Parameters],
        *,
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Run a statement once per set of parameters.

        An ``INSERT … VALUES (…)`` runs with many rows at a time. ``rowcount`` is the sum.
        """
        limit = await self._run(self.connection.blocking.max_batch_bytes)
        batches = insert_batches(operation, seq_of_parameters, limit)
        sums = blocking.Sums()
        while (statement := await self._run(partial(next, batches, None))) is not None:
            await self.execute(statement, settings=settings)
            sums.add(self._blocking)
        self._blocking.conclude(sums)
        return self

    async def poll(self) -> OperationStatus:
        """Ask how far the statement is; the server may hold the answer for some seconds.

        :raises Error: if the statement failed.
        :raises ProgrammingError: if none was started.
        """
        return await self._worker.run(self._blocking.poll)

    async def wait(self) -> Self:
        """Wait until the statement is done.

        :raises Error: if the statement failed.
        :raises ProgrammingError: if none was started.
        """
        pause = Pause()
        async with self._interruptible():
            # Other cursors of the connection have their turn between two of these calls.
            while not self._blocking.settled:
                started = monotonic()
                status = await self._worker.run(self._blocking.poll)
                if not status.finished:
                    await asyncio.sleep(pause.seconds(started))
        return self

    async def cancel(self) -> None:
        """Cancel the statement on the server, if there is one; any task may do so."""
        await run_aside(self._blocking.cancel)

    async def fetch_logs(self) -> list[str]:
        """Return the lines of the statement's log that were not returned yet."""
        return await self._worker.run(self._blocking.fetch_logs)

    async def logs(self) -> AsyncIterator[str]:
        """Yield the lines of the statement's log as they come, until it is done.

        :raises Error: at the end, if the statement failed.
        """
        pause, failure = Pause(), None
        while not self._blocking.settled and failure is None:
            for line in await self._run(self._blocking.fetch_logs):
                yield line
            started = monotonic()
            try:
                if not (await self._run(self._blocking.poll)).finished:
                    await asyncio.sleep(pause.seconds(started))
            except DatabaseError as error:
                failure = error
        while lines := await self._run(self._blocking.fetch_logs):
            for line in lines:
                yield line
        if failure is not None:
            raise failure

    async def callproc(self, procname: str, parameters: Sequence[Any] | None = None) -> None:
        """Refuse: there are no stored procedures.

        :raises NotSupportedError: always.
        """
        self._blocking.callproc(procname, parameters)

    # Metadata.

    async def catalogs(self) -> Self:
        """List the catalogs."""
        return await self._list(self._blocking.catalogs)

    async def schemas(self, pattern: str | None = None, *, catalog: str | None = None) -> Self:
        """List the schemas whose name matches ``pattern``."""
        return await self._list(partial(self._blocking.schemas, pattern, catalog=catalog))

    async def tables(
        self,
        schema: str | None = None,
        pattern: str | None = None,
        types: Sequence[str] | None = None,
        *,
        catalog: str | None = None,
    ) -> Self:
        """List tables and views; ``types`` as ``tidegate.Cursor.tables`` takes them."""
        return await self._list(
            partial(self._blocking.tables, schema, pattern, types, catalog=catalog)
        )

    async def columns(
        self,
        schema: str | None = None,
        table: str | None = None,
        pattern: str | None = None,
        *,
        catalog: str | None = None,
    ) -> Self:
        """List the columns that match the patterns of schema, table and column."""
        return await self._list(
            partial(self._blocking.columns, schema, table, pattern, catalog=catalog)
        )

    async def primary_keys(
        self, schema: str | None, table: str | None, *, catalog: str | None = None
    ) -> Self:
        """List the columns of a table's primary key."""
        return await self._list(
            partial(self._blocking.primary_keys, schema, table, catalog=catalog)
        )

    async def table_types(self) -> Self:
        """List the kinds of tables."""
        return await self._list(self._blocking.table_types)

    async def type_info(self) -> Self:
        """List the data types."""
        return await self._list(self._blocking.type_info)

    async def functions(
        self, pattern: str = "%", schema: str | None = None, *, catalog: str | None = None
    ) -> Self:
        """List the functions whose name matches ``pattern``."""
        return await self._list(partial(self._blocking.functions, pattern, schema, catalog=catalog))

    # Fetching.

    async def fetchone(self) -> Row | None:
        """Return the next row, None at the end."""
        if self._blocking.row_ready:
            return self._blocking.fetchone()
        return await self._fetch(self._blocking.fetchone)

    async def fetchmany(self, size: int | None = None) -> list[Row]:
        """Return the next ``size`` rows, or ``arraysize``; fewer at the end."""
        found: list[Row] = []
        wanted = self.arraysize if size is None else size
        while len(found) < wanted:
            part = await self._page(wanted - len(found))
            if not part:
                break
            found += part
        return found

    async def fetchall(self) -> list[Row]:
        """Return all rows that are left."""
        found: list[Row] = []
        while part := await self._page(self._blocking.connection.fetch_size):
            found += part
        return found

    async def fetch_arrow_table(self) -> Any:
        """Return all rows that are left as a ``pyarrow.Table``.

        Nested values are strings of JSON; a timestamp keeps its zone.

        :raises NotSupportedError: without pyarrow.
        """
        pieces = []
        while (part := await self.fetchmany_arrow(self._blocking.connection.fetch_size)).num_rows:
            pieces.append(part)
        # The last one is empty: it gives the types if there is no other.
        return await self._worker.run(partial(concatenated, [*pieces, part]))

    async def fetchmany_arrow(self, size: int) -> Any:
        """Return the next ``size`` rows as a ``pyarrow.Table``, fewer at the end."""
        return await self._fetch(partial(self._blocking.fetchmany_arrow, size))

    async def fetch_record_batches(self) -> AsyncIterator[Any]:
        """Yield the rows that are left as ``pyarrow.RecordBatch`` with one page in memory.

        :raises NotSupportedError: without pyarrow.
        """
        reader = await self._fetch(self._blocking.fetch_record_batches)
        while (batch := await self._run(partial(next, reader, None))) is not None:
            yield batch

    async def fetch_polars(self) -> Any:
        """Return all rows that are left as a ``polars.DataFrame``, by way of Arrow."""
        return await self._fetch(self._blocking.fetch_polars)

    async def fetch_pandas(self) -> Any:
        """Return all rows that are left as a ``pandas.DataFrame``, by way of Arrow."""
        return await self._worker.run((await self.fetch_arrow_table()).to_pandas)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Row:
        row = await self.fetchone()
        if row is None:
            raise StopAsyncIteration
        return row

    async def nextset(self) -> None:
        """Return None: a statement has one result."""

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Do nothing, as PEP 249 allows."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing, as PEP 249 allows."""

    async def close(self) -> None:
        """Cancel a running statement and free the result; later calls do nothing."""
        try:
            await self._worker.run(self._blocking.close)
        except InterfaceError:
            # The connection was closed before, and the statement with it.
            self._blocking.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _list(self, call: Callable[[], object]) -> Self:
        await self._run(call)
        return self

    async def _page(self, most: int) -> list[Row]:
        """Return some of the rows that are left; between two pages other cursors have a turn."""
        size = min(most, self._blocking.connection.fetch_size)
        return await self._fetch(partial(self._blocking.fetchmany, size))

    async def _fetch(self, call: Callable[[], T]) -> T:
        if not self._blocking.settled:
            await self.wait()
        return await self._run(call)

    async def _run(self, call: Callable[[], T]) -> T:
        async with self._interruptible():
            return await self._worker.run(call)

    @asynccontextmanager
    async def _interruptible(self) -> AsyncIterator[None]:
        """End the statement on the server before a canceled task goes on."""
        try:
            yield
        except asyncio.CancelledError:
            driven = self._blocking
            await self._worker.settle(driven.cancel, driven.discard, self.connection.abort)
            raise

    async def read(self, call: Callable[[blocking.Cursor[Row]], T]) -> T:
        """Run a function of the blocking cursor in the connection's thread."""
        return await self._fetch(partial(call, self._blocking))
