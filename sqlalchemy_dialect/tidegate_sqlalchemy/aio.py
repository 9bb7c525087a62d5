"""The dialect behind ``tidegate+aio://`` URLs, for engines of ``create_async_engine``.

SQLAlchemy runs the dialect in a greenlet, which waits for each call of ``tidegate.aio``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any

from sqlalchemy import pool
from sqlalchemy.connectors.asyncio import (
    AsyncAdapt_dbapi_connection,
    AsyncAdapt_dbapi_cursor,
    AsyncAdapt_dbapi_ss_cursor,
    AsyncAdapt_terminate,
)
from sqlalchemy.engine import default
from sqlalchemy.util import await_only

from tidegate_sqlalchemy.dialect import TidegateDialect

_METADATA = frozenset({"catalogs", "columns", "primary_keys", "schemas", "tables"})


class _Cursor(AsyncAdapt_dbapi_cursor):
    """Reads all rows of a result at once, since its users do not await them."""

    __slots__ = ()

    @property
    def messages(self) -> list[Any]:
        """The server's warnings about the last statement, as PEP 249 has them."""
        messages: list[Any] = self._cursor.messages  # type: ignore[attr-defined]
        return messages

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return one of the driver's calls for metadata, which reflection makes."""
        if name not in _METADATA:
            raise AttributeError(name)

        async def call(*arguments: Any, **named: Any) -> None:
            async with self._adapt_connection._execute_mutex:
                await getattr(self._cursor, name)(*arguments, **named)
                self._rows = deque(await self._cursor.fetchall())

        return lambda *arguments, **named: await_only(call(*arguments, **named))


class _StreamingCursor(AsyncAdapt_dbapi_ss_cursor):
    """Reads rows page by page, for ``AsyncConnection.stream``."""

    __slots__ = ()


class _Connection(AsyncAdapt_terminate, AsyncAdapt_dbapi_connection):
    __slots__ = ()

    _cursor_cls = _Cursor
    _ss_cursor_cls = _StreamingCursor

    def ping(self) -> None:
        """Ask the server whether it knows the session."""
        await_only(self._connection.ping())

    async def _terminate_graceful_close(self) -> None:
        await self._connection.close()

    def _terminate_force_close(self) -> None:
        self._connection.abort()


class _Driver:
    """The module ``tidegate`` with the ``connect`` of ``tidegate.aio``."""

    def __init__(self, driver: ModuleType, connect: Callable[..., Any]) -> None:
        self._driver = driver
        self._connect = connect

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    @property
    def exceptions_module(self) -> ModuleType:
        """The module with the exceptions of PEP 249."""
        return self._driver

    def connect(self, *arguments: Any, **named: Any) -> _Connection:
        """Open a session; ``async_creator_fn`` replaces the driver's function."""
        connect = named.pop("async_creator_fn", self._connect)

        async def opened() -> Any:
            return await connect(*arguments, **named)

        return _Connection(self, await_only(opened()))


class _ExecutionContext(default.DefaultExecutionContext):
    def create_server_side_cursor(self) -> Any:
        """Return the cursor of ``AsyncConnection.stream``."""
        connection: Any = self._dbapi_connection
        return connection.cursor(server_side=True)


class TidegateAsyncDialect(TidegateDialect):
    """The dialect of Tidegate on asyncio; needs SQLAlchemy 2."""

    driver = "aio"
    is_async = True
    has_terminate = True
    supports_statement_cache = True
    supports_server_side_cursors = True
    execution_ctx_cls = _ExecutionContext

    @classmethod
    def import_dbapi(cls) -> Any:
        """Return the driver, whose connections await."""
        import tidegate
        import tidegate.aio

        return _Driver(tidegate, tidegate.aio.connect)

    @classmethod
    def get_pool_class(cls, url: Any) -> type[pool.Pool]:
        """Return the pool whose waiting is awaited."""
        return pool.AsyncAdaptedQueuePool

    def get_driver_connection(self, connection: Any) -> Any:
        """Return the connection of ``tidegate.aio``."""
        return connection._connection
