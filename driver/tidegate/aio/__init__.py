"""The driver for asyncio: the same calls as in ``tidegate``, awaited."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import partial
from ssl import SSLContext
from types import TracebackType
from typing import Generic, TypedDict, Unpack

import tidegate
from tidegate.aio.connection import Connection
from tidegate.aio.cursor import Cursor
from tidegate.network.channel import TransportFactory
from tidegate.rows import Row, RowFactory, tuple_row

__all__ = ["connect", "Connection", "Cursor"]


class ConnectArguments(TypedDict, total=False):
    """The arguments of ``tidegate.connect``, which explains them."""

    port: int | None
    user: str | None
    password: str | None
    auth: str | None
    schema: str | None
    settings: Mapping[str, str] | None
    socket: str | None
    connect_timeout: float | None
    timeout: float | None
    query_timeout: int | None
    retries: int | None
    retry_timeout: float | None
    fetch_size: int | None
    ssl: bool | SSLContext | None
    ca: str | None
    cert: str | None
    key: str | None
    verify: bool | None
    http_path: str | None
    token: str | None
    principal: str | None
    transport: str | TransportFactory | None


class _Connecting(Generic[Row]):
    """A connection to be opened by ``await`` or ``async with``."""

    def __init__(self, call: partial[tidegate.Connection[Row]]) -> None:
        self._call = call
        self._opened: Connection[Row] | None = None

    def __await__(self) -> Generator[None, None, Connection[Row]]:
        return Connection.open(self._call).__await__()

    async def __aenter__(self) -> Connection[Row]:
        self._opened = await self
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.close()


def connect(
    host: str | None = None,
    *,
    # Without the argument, the type is its default; mypy cannot express that.
    row_factory: RowFactory[Row] = tuple_row,  # type: ignore[assignment]
    **arguments: Unpack[ConnectArguments],
) -> _Connecting[Row]:
    """Open a session on a HiveServer2, as ``tidegate.connect`` does with the same arguments.

    Use it as ``async with connect(…) as connection`` or ``connection = await connect(…)``.

    :raises OperationalError: when awaited, if the server cannot be reached or refuses.
    """
    call = partial(tidegate.connect, host, row_factory=row_factory, **arguments)
    return _Connecting(call)
