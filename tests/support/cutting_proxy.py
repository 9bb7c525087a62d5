"""A TCP proxy that cuts connections at the calls that a test names."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Where(Enum):
    """Where a connection is cut."""

    BEFORE = "before the request arrives"
    BETWEEN = "after the request, before its reply"
    WITHIN = "in the middle of the reply"


@dataclass
class _Cut:
    call: bytes
    where: Where
    left: int
    times: int


class CuttingProxy:
    """Forwards to a port of this host; made by ``cutting_proxy``."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.cuts = 0
        """The number of connections that were cut."""
        self.connections = 0
        self._plan: list[_Cut] = []
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self, call: str, where: Where, *, nth: int = 1, times: int = 1) -> None:
        """Cut the connection at the nth request of a call, and at the following ones."""
        self._plan.append(_Cut(call.encode(), where, nth, times))

    def refuse(self) -> None:
        """End all connections, and accept no new ones."""
        # Closing alone does not wake the thread that accepts.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in self._sockets:
            _shut(each)

    def interrupt(self) -> None:
        """End all connections; new ones are accepted."""
        for each in self._sockets:
            _shut(each)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            server = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [client, server]
            pump = _Pump(self, client, server)
            for target in (pump.requests, pump.replies):
                thread = threading.Thread(target=target)
                self._threads.append(thread)
                thread.start()

    def where(self, data: bytes) -> Where | None:
        """Return where to cut the call that begins with these bytes."""
        for cut in self._plan:
            if cut.call in data:
                cut.left -= 1
                if cut.left <= 0 and cut.times:
                    cut.times -= 1
                    return cut.where
        return None


class _Pump:
    """One connection through the proxy."""

    def __init__(self, proxy: CuttingProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._where: Where | None = None

    def requests(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._client.recv(1 << 16):
                self._where = self._proxy.where(data)
                if self._where is Where.BEFORE:
                    self._end()
                    return
                self._server.sendall(data)
        _shut(self._server)

    def replies(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(1 << 16):
                if self._where is Where.BETWEEN:
                    self._end()
                    return
                if self._where is Where.WITHIN:
                    self._client.sendall(data[: max(len(data) // 2, 1)])
                    self._end()
                    return
                self._client.sendall(data)
        _shut(self._client)

    def _end(self) -> None:
        self._proxy.cuts += 1
        _shut(self._client)
        _shut(self._server)


def _shut(opened: socket.socket) -> None:
    with contextlib.suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def cutting_proxy(target: int) -> Iterator[CuttingProxy]:
    """Run a proxy to a port of this host."""
    proxy = CuttingProxy(target)
    try:
        yield proxy
    finally:
        proxy.refuse()
        proxy.join()
        for each in proxy._sockets:
            each.close()
