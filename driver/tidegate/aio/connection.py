"""A connection whose calls are awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload

from tidegate import connection as blocking
from tidegate.aio.cursor import Cursor
from tidegate.aio.materialized import MaterializedTables
from tidegate.aio.worker import Worker
from tidegate.cursor import Message
from tidegate.rows import Row, RowFactory

T = TypeVar("T")
OtherRow = TypeVar("OtherRow")


class Connection(Generic[Row]):
    """A session on the server; made by ``tidegate.aio.connect``.

    Tasks may share it, each with a cursor of its own: their calls run one at a time. There are no
    transactions: every statement is committed by itself.
    """

    def __init__(self, opened: blocking.Connection[Row], worker: Worker) -> None:
        """Wrap an open connection with the thread that makes its calls."""
        self._blocking = opened
        self._worker = worker
        self._closing = False

    @classmethod
    async def open(cls, connect: Callable[[], blocking.Connection[Row]]) -> Self:
        """Open a session by a blocking function, in the thread that will serve it.

        :raises OperationalError: if the server cannot be reached or refuses.
        """
        worker = Worker()
        return cls(await worker.open(connect), worker)

    def __repr__(self) -> str:
        return repr(self._blocking).replace("tidegate.", "tidegate.aio.", 1)

    @property
    def closed(self) -> bool:
        """Whether it was closed or the connection to the server is lost."""
        return self._closing or self._blocking.closed

    @property
    def row_factory(self) -> RowFactory[Row]:
        """Makes the rows of cursors that have no row factory of their own."""
        return self._blocking.row_factory

    @property
    def messages(self) -> list[Message]:
        """The server's warnings about the settings of the session, as PEP 249 has them."""
        return self._blocking.messages

    @property
    def server_settings(self) -> Mapping[str, str]:
        """The server's messages about the opening of the session."""
        return self._blocking.server_settings

    @property
    def blocking(self) -> blocking.Connection[Row]:
        """The connection that this one drives; its calls block the event loop."""
        return self._blocking

    @property
    def materialized_tables(self) -> MaterializedTables:
        """The materialized tables of the server, as typed records."""
        return MaterializedTables(self)

    @overload
    def cursor(self, row_factory: None = None) -> Cursor[Row]: ...
    @overload
    def cursor(self, row_factory: RowFactory[OtherRow]) -> Cursor[OtherRow]: ...
    def cursor(self, row_factory: RowFactory[Any] | None = None) -> Cursor[Any]:
        """Return a new cursor; ``row_factory`` overrides the connection's.

        :raises InterfaceError: if the connection was closed.
        """
        return Cursor(self, self._blocking.cursor(row_factory or self.row_factory), self._worker)

    async def ping(self) -> None:
        """Ask the server for its name, which also keeps an idle session alive.

        :raises OperationalError: if it does not answer or does not know the session.
        """
        await self._worker.run(self._blocking.ping)

    async def is_alive(self) -> bool:
        """Return whether the session can still be used."""
        return not self.closed and await self._worker.run(self._blocking.is_alive)

    async def cancel_operation(self, handle: str) -> None:
        """Cancel a statement, also of another connection, by its ``Cursor.operation_handle``.

        :raises ProgrammingError: if the text is not a handle.
        :raises Error: if the server does not know the operation, or refuses.
        """
        await self._worker.run(partial(self._blocking.cancel_operation, handle))

    async def delegation_token(self, *, renewer: str = "", owner: str | None = None) -> str:
        """Return a token with which a program can log in for a while with ``auth="TOKEN"``.

        :raises Error: if the server gives none out, or not for this owner.
        """
        get = partial(self._blocking.delegation_token, renewer=renewer, owner=owner)
        return await self._worker.run(get)

    async def renew_delegation_token(self, token: str) -> None:
        """Extend the lifetime of a token; only its renewer can.

        :raises Error: if the server refuses.
        """
        await self._worker.run(partial(self._blocking.renew_delegation_token, token))

    async def cancel_delegation_token(self, token: str) -> None:
        """Revoke a token.

        :raises Error: if the server refuses.
        """
        await self._worker.run(partial(self._blocking.cancel_delegation_token, token))

    async def commit(self) -> None:
        """Do nothing: every statement is committed by itself."""
        self._blocking.commit()

    async def rollback(self) -> None:
        """Refuse: there is no transaction to undo.

        :raises NotSupportedError: always.
        """
        self._blocking.rollback()

    async def close(self) -> None:
        """Close the session on the server and end the thread; later calls do nothing.

        Statements that still run are canceled. If the task is canceled meanwhile, the connection
        is dropped, and the server ends the session by itself.
        """
        if self._closing:
            return
        self._closing = True
        try:
            await self._worker.run(self._blocking.close)
        except asyncio.CancelledError:
            self._blocking.abort()
            self._worker.end(wait=False)
            raise
        self._worker.end()

    def abort(self) -> None:
        """Hang up without a word to the server, which ends the session by itself."""
        self._closing = True
        self._blocking.abort()
        self._worker.end(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
