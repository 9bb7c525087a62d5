"""A blocking socket as a Thrift transport."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
from typing import Any, Final, Protocol

from thrift.transport.TTransport import TTransportBase, TTransportException

Address = tuple[str, int] | str
"""Host and port, or the path of a Unix socket."""

# Seconds before the first probe, seconds between probes, probes until the peer counts as dead;
# the system's own first probe comes after two hours.
_KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


def keep_alive(opened: socket.socket) -> None:
    """Enable keep-alive probes, and send small requests immediately."""
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        if hasattr(socket, option):
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _connect_locally(path: str, timeout: float | None) -> socket.socket:
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened.settimeout(timeout)
        opened.connect(path)
    except BaseException:
        opened.close()
        raise
    return opened


def wait_readable(opened: socket.socket) -> None:
    """Block until a byte can be read or the peer has closed, consuming nothing.

    :raises TimeoutError: after the socket's timeout.
    """
    if not isinstance(opened, ssl.SSLSocket):
        opened.recv(1, socket.MSG_PEEK)
        return
    # Encrypted bytes cannot be peeked at, and bytes already decrypted are not on the socket.
    if opened.pending():
        return
    with selectors.DefaultSelector() as selector:
        selector.register(opened, selectors.EVENT_READ)
        if not selector.select(opened.gettimeout()):
            raise TimeoutError("timed out")


class Transport(Protocol):
    """What the driver needs of a Thrift transport; any TTransport has it."""

    def open(self) -> None: ...
    def close(self) -> None: ...
    def readAll(self, sz: int) -> bytes: ...  # noqa: N802 - Thrift names it so
    def write(self, buf: bytes) -> None: ...
    def flush(self) -> None: ...


class SocketTransport(TTransportBase):  # type: ignore[misc]
    """A connection over TCP, with keep-alive so that long statements survive idle links, or over
    a Unix socket.
    """

    def __init__(
        self,
        address: Address,
        *,
        timeout: float | None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``timeout`` in seconds holds for connecting and for every read and write."""
        self._address = address
        self._timeout = timeout
        self._tls = tls
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Connect.

        :raises OSError: if that fails.
        """
        if isinstance(self._address, str):
            self._socket = _connect_locally(self._address, self._timeout)
            return
        opened = socket.create_connection(self._address, timeout=self._timeout)
        try:
            keep_alive(opened)
            if self._tls is not None:
                opened = self._tls.wrap_socket(opened, server_hostname=self._address[0])
        except BaseException:
            opened.close()
            raise
        self._socket = opened

    def isOpen(self) -> bool:  # noqa: N802 - Thrift names it so
        return self._socket is not None

    def set_timeout(self, seconds: float | None) -> None:
        """Bound every further read and write; None for not at all."""
        self._timeout = seconds
        if self._socket is not None:
            self._socket.settimeout(seconds)

    def close(self) -> None:
        opened, self._socket = self._socket, None
        if opened is not None:
            # Wakes a thread that still reads; the peer may have gone before us.
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()

    def wait(self) -> None:
        """Block until a byte can be read or the peer has closed, consuming nothing."""
        wait_readable(self._require_socket())

    def read(self, sz: int) -> bytes:
        data: bytes = self._require_socket().recv(sz)
        if not data:
            raise EOFError("the server closed the connection")
        return data

    def readAll(self, sz: int) -> bytes:  # noqa: N802 - Thrift names it so
        # Thrift's own concatenates the pieces, which is quadratic in large replies.
        data = bytearray(sz)
        view = memoryview(data)
        opened, done = self._require_socket(), 0
        while done < sz:
            count = opened.recv_into(view[done:])
            if count == 0:
                raise EOFError("the server closed the connection")
            done += count
        return bytes(data)

    def write(self, buf: bytes) -> None:
        self._require_socket().sendall(buf)

    def flush(self) -> None:
        return None

    def _require_socket(self) -> Any:
        if self._socket is None:
            raise TTransportException(TTransportException.NOT_OPEN, "the connection is closed")
        return self._socket
