"""Listening sockets, and streams over what they accept, encrypted if the client wants that."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tidegate_server.gateway.auth.base import Peer
from tidegate_server.gateway.protocol import tls
from tidegate_server.gateway.protocol.channel import LINGER, READ_SIZE, ConnectionLostError
from tidegate_server.gateway.protocol.scan import FrameError
from tidegate_server.gateway.protocol.tls import Certificates

logger = logging.getLogger(__name__)

_BACKLOG: Final = 1024
_ACCEPT_PAUSE: Final = 1.0
"""Seconds without accepting when the system has no more sockets to give."""


class Reader(asyncio.StreamReader):
    """A stream whose next bytes may be dealt with as they come, before any task is woken."""

    _buffer: bytearray
    _at_once: Callable[[bytes], bool] | None = None

    def expect(self, at_once: Callable[[bytes], bool] | None) -> None:
        """Offer what comes to ``at_once``, as long as that takes it: True for taken.

        With bytes that nobody has read yet nothing is offered, and after bytes that it did not
        take nothing more.
        """
        self._at_once = None if self._buffer else at_once

    def feed_data(self, data: Any) -> None:
        if self._at_once is not None and self._at_once(data):
            return
        self._at_once = None
        super().feed_data(data)


@dataclass(frozen=True, slots=True)
class Streams:
    """A connection one can read and write, and where it comes from."""

    reader: Reader
    writer: asyncio.StreamWriter
    peer: Peer


async def bind(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on every address of a host.

    :raises OSError: if one cannot be had.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    listening: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((entry[0], entry[4]) for entry in found):
            listening.append(socket.create_server(address, family=family, backlog=_BACKLOG))
            listening[-1].setblocking(False)
    except BaseException:
        for opened in listening:
            opened.close()
        raise
    return listening


def accept(listening: socket.socket, take: Callable[[socket.socket, str], None]) -> None:
    """Hand every connection with its address to ``take``, until the loop forgets the socket.

    No coroutine waits for them: one that is cancelled while a connection comes would lose it open.
    """
    loop = asyncio.get_running_loop()

    def listen() -> None:
        if listening.fileno() >= 0:
            loop.add_reader(listening, arrive)

    def arrive() -> None:
        try:
            connection, address = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as problem:
            logger.warning("No connection can be accepted just now: %s", problem)
            loop.remove_reader(listening)
            loop.call_later(_ACCEPT_PAUSE, listen)
            return
        connection.setblocking(False)
        take(connection, str(address[0]))

    listen()


async def open_streams(
    connection: socket.socket, address: str, certificates: Certificates | None
) -> Streams:
    """Look at the first byte, and carry TLS's handshake out if it begins one.

    :raises ConnectionLostError: if the client went away.
    :raises FrameError: if it wants TLS and there is none.
    :raises ssl.SSLError: if the handshake fails.
    """
    try:
        _tune(connection)
        context = await _tls_context(connection, certificates)
    except BaseException:
        connection.close()
        raise
    loop = asyncio.get_running_loop()
    reader = Reader(limit=4 * READ_SIZE, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection, ssl=context)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    return Streams(reader, writer, Peer(address=address, encrypted=context is not None))


async def _tls_context(
    connection: socket.socket, certificates: Certificates | None
) -> ssl.SSLContext | None:
    if await _first_byte(connection) != tls.HANDSHAKE:
        return None
    if certificates is None:
        await _refuse_tls(connection)
        raise FrameError("the client wants TLS, which is not configured")
    return certificates.context()


async def _first_byte(connection: socket.socket) -> int:
    """Wait for a byte without taking it off the socket, since TLS must see it again."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)
    first = connection.recv(1, socket.MSG_PEEK)
    if not first:
        raise ConnectionLostError
    return first[0]


async def _refuse_tls(connection: socket.socket) -> None:
    """Send an alert, and read on shortly: closing with something unread would take it back."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, tls.REFUSED)
    connection.shutdown(socket.SHUT_WR)
    try:
        async with asyncio.timeout(LINGER):
            while await loop.sock_recv(connection, READ_SIZE):
                continue
    except TimeoutError:
        return


def _tune(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
