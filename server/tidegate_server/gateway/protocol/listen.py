"""Listening sockets, and streams over accepted connections, with TLS if the client starts it."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidegate_server.gateway.auth.base import Peer
from tidegate_server.gateway.protocol import tls
from tidegate_server.gateway.protocol.channel import LINGER, READ_SIZE, ConnectionLostError
from tidegate_server.gateway.protocol.scan import FrameError
from tidegate_server.gateway.protocol.tls import Certificates

logger = logging.getLogger(__name__)

_BACKLOG: Final = 1024
_SOCKET_PATH_LIMIT: Final = 103
"""Bytes; Linux allows 107, macOS 103."""
_ACCEPT_PAUSE: Final = 1.0
"""Seconds to stop accepting after the system has run out of sockets."""


class Reader(asyncio.StreamReader):
    """A stream whose next bytes can be handled on arrival, without waking a task."""

    _buffer: bytearray
    _handle: Callable[[bytes], bool] | None = None

    def expect(self, handle: Callable[[bytes], bool] | None) -> None:
        """Pass arriving bytes to ``handle`` as long as it returns True for handled.

        Nothing is passed while unread bytes are buffered, or after bytes that it did not handle.
        """
        self._handle = None if self._buffer else handle

    def feed_data(self, data: Any) -> None:
        if self._handle is not None and self._handle(data):
            return
        self._handle = None
        super().feed_data(data)


_LOCAL: Final = "127.0.0.1"
"""Address of clients on a Unix socket: for logs, rights and TLS they are on this machine."""


@dataclass(frozen=True, slots=True)
class Streams:
    """The streams of a connection, and its peer."""

    reader: Reader
    writer: asyncio.StreamWriter
    peer: Peer


async def bind(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on every address of a host.

    :raises OSError: if an address cannot be bound.
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


def bind_socket(path: Path) -> list[socket.socket]:
    """Return a listening Unix socket that only this account can connect to.

    A socket that a killed server left at the path is replaced.

    :raises OSError: if the path cannot be used: another server listens on it (EADDRINUSE), it is
        too long, or it is not a socket.
    """
    if len(os.fsencode(path)) > _SOCKET_PATH_LIMIT:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_abandoned(path):
            path.unlink()
        # Not chmod after bind: until then others could connect.
        before = os.umask(0o177)
        try:
            listening.bind(str(path))
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        finally:
            os.umask(before)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return [listening]


def _is_abandoned(path: Path) -> bool:
    """Return whether a path is a socket on which nothing listens."""
    if not path.exists() or not stat.S_ISSOCK(path.stat().st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
    return False


def accept(listening: socket.socket, take: Callable[[socket.socket, str], None]) -> None:
    """Pass every connection with its address to ``take``, until the loop removes the socket.

    This is not a coroutine: one that is canceled while accepting would leak the connection.
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
        except OSError as error:
            logger.warning("Accepting connections failed, retrying: %s", error)
            loop.remove_reader(listening)
            loop.call_later(_ACCEPT_PAUSE, listen)
            return
        connection.setblocking(False)
        take(connection, str(address[0]) if address else _LOCAL)

    listen()


async def open_streams(
    connection: socket.socket, address: str, certificates: Certificates | None
) -> Streams:
    """Open the streams of a connection, with TLS if its first byte begins a handshake.

    :raises ConnectionLostError: if the client disconnected.
    :raises FrameError: if it requests TLS and none is configured.
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
        raise FrameError("the client requested TLS, which is not configured")
    return certificates.context()


async def _first_byte(connection: socket.socket) -> int:
    """Wait for a byte and leave it on the socket, since TLS must read it again."""
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
    """Send an alert, and read on briefly: closing with unread bytes would discard it."""
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
    if connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
