"""A binary connection's messages, with or without SASL's frames around them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine, Iterable
from typing import Any, Final, Protocol, TypeVar

from tidegate.wire import sasl
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.protocol.scan import FrameError, Message, MessageScanner

T = TypeVar("T")

BEFORE_LOGIN_BYTES: Final = 64 << 10
"""The longest request taken on a connection that has no session yet."""
READ_SIZE: Final = 64 << 10
LINGER: Final = 2.0
"""Seconds that a refused client gets to read why."""
_LOST_CHECK: Final = 1.0


class ConnectionLostError(Exception):
    """The client went away in the middle of something."""


class Channel(Protocol):
    """A connection's messages, whatever stands around them."""

    async def receive(self, limit: int) -> Message:
        """Return the next request.

        :raises ConnectionLostError: at the end of the stream.
        :raises FrameError: if what came is no request of at most ``limit`` bytes.
        """
        ...

    async def send(self, payload: bytes) -> None:
        """Send one whole message."""
        ...

    def header(self, length: int) -> bytes | None:
        """Return what stands before a message of so many bytes.

        None if a message that is sent twice does not look the same, or if the next bytes go on
        with one that has begun.
        """
        ...


class BareChannel:
    """TBinaryProtocol without any framing (NOSASL)."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes = b""
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._scanner = MessageScanner(BEFORE_LOGIN_BYTES)
        self._scanner.feed(first)

    async def receive(self, limit: int) -> Message:
        self._scanner.max_bytes = limit
        while (message := self._scanner.next_message()) is None:
            self._scanner.feed(await self._more(limit))
        return message

    async def send(self, payload: bytes) -> None:
        self._writer.write(payload)
        await self._writer.drain()

    def header(self, length: int) -> bytes | None:
        return None if self._scanner.waiting else b""

    async def _more(self, limit: int) -> bytes:
        data = await self._reader.read(READ_SIZE)
        if not data:
            raise ConnectionLostError
        return data


class Layer(Protocol):
    """Protects the frames of a connection."""

    def wrap(self, payload: bytes) -> Iterable[bytes]:
        """Return a message's frames."""
        ...

    def unwrap(self, frame: bytes) -> bytes:
        """Return what a frame holds.

        :raises ServerError: if it was tampered with.
        """
        ...


class SaslChannel(BareChannel):
    """TBinaryProtocol in SASL's data frames; a message may span several of them."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        layer: Layer | None = None,
    ) -> None:
        super().__init__(reader, writer)
        self._layer = layer

    async def send(self, payload: bytes) -> None:
        for frame in (payload,) if self._layer is None else self._layer.wrap(payload):
            self._writer.writelines((struct.pack(">i", len(frame)), frame))
        await self._writer.drain()

    def header(self, length: int) -> bytes | None:
        changing = self._layer is not None or self._scanner.waiting
        return None if changing else struct.pack(">i", length)

    async def _more(self, limit: int) -> bytes:
        try:
            header = await self._reader.readexactly(sasl.DATA_HEADER)
            length = sasl.parse_data_header(header, limit=limit)
            frame = await self._reader.readexactly(length)
            return frame if self._layer is None else self._layer.unwrap(frame)
        except asyncio.IncompleteReadError:
            raise ConnectionLostError from None
        except (sasl.SaslError, ServerError) as problem:
            raise FrameError(str(problem)) from None


async def unless_lost(work: Coroutine[Any, Any, T], reader: asyncio.StreamReader) -> T:
    """Await ``work``, but give it up when the client goes away meanwhile.

    :raises ConnectionLostError: if it does.
    """
    task = asyncio.ensure_future(work)
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=_LOST_CHECK)
            if done:
                return task.result()
            if reader.at_eof():
                raise ConnectionLostError
    finally:
        task.cancel()
