"""The messages of a binary connection, with or without SASL framing."""

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
"""Maximum size of a request on a connection without a session."""
READ_SIZE: Final = 64 << 10
LINGER: Final = 2.0
"""Seconds that a rejected client has to read the reason."""
_LOST_CHECK: Final = 1.0


class ConnectionLostError(Exception):
    """The client disconnected during a request."""


class Channel(Protocol):
    """The messages of a connection, with any framing."""

    async def receive(self, limit: int) -> Message:
        """Return the next request.

        :raises ConnectionLostError: at the end of the stream.
        :raises FrameError: if the bytes are not a request of at most ``limit`` bytes.
        """
        ...

    async def send(self, payload: bytes) -> None:
        """Send one message."""
        ...

    def header(self, length: int) -> bytes | None:
        """Return the bytes that precede a message of ``length`` bytes.

        None if the same message is not always sent as the same bytes, or if part of another
        message has been received.
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
            self._scanner.feed(await self._read_more(limit))
        return message

    async def send(self, payload: bytes) -> None:
        self._writer.write(payload)
        await self._writer.drain()

    def header(self, length: int) -> bytes | None:
        return None if self._scanner.waiting else b""

    async def _read_more(self, limit: int) -> bytes:
        data = await self._reader.read(READ_SIZE)
        if not data:
            raise ConnectionLostError
        return data


class Layer(Protocol):
    """A security layer for the frames of a connection."""

    def wrap(self, payload: bytes) -> Iterable[bytes]:
        """Return a message's frames."""
        ...

    def unwrap(self, frame: bytes) -> bytes:
        """Return the payload of a frame.

        :raises ServerError: if the frame was modified.
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

    async def _read_more(self, limit: int) -> bytes:
        try:
            header = await self._reader.readexactly(sasl.DATA_HEADER)
            length = sasl.parse_data_header(header, limit=limit)
            frame = await self._reader.readexactly(length)
            return frame if self._layer is None else self._layer.unwrap(frame)
        except asyncio.IncompleteReadError:
            raise ConnectionLostError from None
        except (sasl.SaslError, ServerError) as error:
            raise FrameError(str(error)) from None


async def run_unless_lost(work: Coroutine[Any, Any, T], reader: asyncio.StreamReader) -> T:
    """Await ``work``, but cancel it if the client disconnects.

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
