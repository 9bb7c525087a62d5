"""HTTP requests and replies over a connection, bounded in size and time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import h11

from tidegate_server.gateway.protocol.channel import READ_SIZE, ConnectionLostError
from tidegate_server.gateway.protocol.listen import Streams
from tidegate_server.gateway.protocol.negotiate import linger

MAX_HEAD_BYTES: Final = 32 << 10

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request."""

    method: str
    target: str
    headers: tuple[tuple[bytes, bytes], ...]

    def all(self, name: str) -> list[str]:
        """Return every value of a header, by its name in lower case."""
        wanted = name.encode()
        return [value.decode("latin-1") for key, value in self.headers if key == wanted]

    def header(self, name: str) -> str | None:
        """Return the first value of a header, by its name in lower case."""
        return next(iter(self.all(name)), None)


@dataclass(frozen=True, slots=True)
class Reply:
    """A response."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Headers = ()


class RefusedError(Exception):
    """A rejected request, with the HTTP status and a sentence for the client."""

    def __init__(self, status: HTTPStatus, text: str, headers: Headers = ()) -> None:
        super().__init__(text)
        self.reply = Reply(status, f"{text}\n".encode(), headers=headers)


class HttpStream:
    """The requests of one connection, one after the other."""

    def __init__(self, streams: Streams, first: bytes, *, timeout: float, idle: float) -> None:
        """``timeout`` is in seconds, for a head or a chunk of a body; ``idle`` between requests."""
        self._streams = streams
        self._timeout = timeout
        self._idle = idle
        self._method = ""
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._connection.receive_data(first)

    async def request(self) -> Request | None:
        """Return the next request's head; None at the end of the connection.

        :raises RefusedError: if it is malformed.
        :raises TimeoutError: if it takes too long.
        """
        if not self._connection.trailing_data[0]:
            async with asyncio.timeout(self._idle):
                await self._feed()
        async with asyncio.timeout(self._timeout):
            event = await self._event()
        if not isinstance(event, h11.Request):
            return None
        self._method = event.method.decode("latin-1")
        return Request(self._method, event.target.decode("latin-1"), tuple(event.headers))

    async def body(self, limit: int) -> bytes:
        """Return the request's body.

        :raises RefusedError: if it is longer than ``limit`` bytes.
        """
        if self._connection.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        data = bytearray()
        while True:
            async with asyncio.timeout(self._timeout):
                event = await self._event()
            if not isinstance(event, h11.Data):
                return bytes(data)
            data += event.data
            if len(data) > limit:
                text = f"The request is larger than {limit} bytes."
                raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)

    async def discard(self, limit: int) -> None:
        """Skip the rest of a rejected request, up to ``limit`` bytes."""
        if self._connection.they_are_waiting_for_100_continue:
            return
        left = limit
        async with asyncio.timeout(self._timeout):
            while left > 0 and self._connection.their_state is h11.SEND_BODY:
                event = await self._event()
                left -= len(event.data) if isinstance(event, h11.Data) else 0

    async def reply(self, reply: Reply) -> bool:
        """Send a reply, and return whether another request may follow."""
        connection = self._connection
        headers = [("Content-Type", reply.content_type), ("Content-Length", str(len(reply.body)))]
        headers += reply.headers
        if connection.their_state is not h11.DONE:
            headers.append(("Connection", "close"))
        response = h11.Response(
            status_code=reply.status, reason=reply.status.phrase.encode(), headers=headers
        )
        parts = [connection.send(response)]
        if self._method != "HEAD":
            parts.append(connection.send(h11.Data(data=reply.body)))
        parts.append(connection.send(h11.EndOfMessage()))
        self._streams.writer.writelines(part for part in parts if part)
        await self._streams.writer.drain()
        if connection.our_state is h11.DONE and connection.their_state is h11.DONE:
            connection.start_next_cycle()
            return True
        await linger(self._streams)
        return False

    async def _event(self) -> Any:
        try:
            while (event := self._connection.next_event()) is h11.NEED_DATA:
                await self._feed()
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            raise RefusedError(status, f"The request is not valid HTTP: {error}.") from error
        return event

    async def _feed(self) -> None:
        data = await self._streams.reader.read(READ_SIZE)
        if not data and self._connection.their_state is h11.SEND_BODY:
            raise ConnectionLostError
        self._connection.receive_data(data)

    async def _send(self, event: Any) -> None:
        self._streams.writer.write(self._connection.send(event) or b"")
        await self._streams.writer.drain()
