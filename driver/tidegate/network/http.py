"""HTTP as a Thrift transport: each message is a POST, its reply the response's body."""

from __future__ import annotations

import base64
import contextlib
import http.client
import select
import socket
import ssl
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from io import BytesIO
from typing import Any, Final

from thrift.transport.TTransport import TTransportBase, TTransportException

from tidegate._version import __version__
from tidegate.errors import OperationalError
from tidegate.network.transport import keep_alive, wait_readable

_THRIFT: Final = "application/x-thrift"
_MAX_TEXT: Final = 500
_NO_BACKEND: Final = (
    http.client.BAD_GATEWAY,
    http.client.SERVICE_UNAVAILABLE,
    http.client.GATEWAY_TIMEOUT,
)


def basic(user: str, password: str) -> str:
    """Return the header Authorization of a name and a password."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


class HttpTransport(TTransportBase):  # type: ignore[misc]
    """Keeps one connection open and sends back the cookie that the server sets."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        path: str,
        authorization: Callable[[], str],
        timeout: float | None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``authorization`` makes the header for one request.

        ``timeout`` in seconds holds for connecting and for every read and write.
        """
        self._path = f"/{path.strip('/')}"
        self._authorization = authorization
        self._cookies: dict[str, str] = {}
        self._outgoing = BytesIO()
        self._incoming = BytesIO()
        self._sent: bytes | None = None
        self._connection = (
            http.client.HTTPConnection(host, port, timeout=timeout)
            if tls is None
            else http.client.HTTPSConnection(host, port, timeout=timeout, context=tls)
        )

    def open(self) -> None:
        """Connect.

        :raises OSError: if that fails.
        """
        self._connection.connect()
        keep_alive(self._connection.sock)

    def isOpen(self) -> bool:  # noqa: N802 - Thrift names it so
        return self._connection.sock is not None

    def set_timeout(self, seconds: float | None) -> None:
        """Bound every further read and write; None for not at all."""
        self._connection.timeout = seconds
        if self._connection.sock is not None:
            self._connection.sock.settimeout(seconds)

    def close(self) -> None:
        opened = self._connection.sock
        if opened is not None:
            # Wakes a thread that still reads; the peer may have gone before us.
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def wait(self) -> None:
        """Block until the reply begins, consuming nothing."""
        wait_readable(self._socket())

    def read(self, sz: int) -> bytes:
        data = self._reply().read(sz)
        if not data and sz:
            raise EOFError("the reply ends early")
        return data

    def readAll(self, sz: int) -> bytes:  # noqa: N802 - Thrift names it so
        data = self._reply().read(sz)
        if len(data) < sz:
            raise EOFError("the reply ends early")
        return data

    def write(self, buf: bytes) -> None:
        self._outgoing.write(buf)

    def flush(self) -> None:
        """Send what was written as one request."""
        message = self._outgoing.getvalue()
        self._outgoing = BytesIO()
        self._incoming = BytesIO()
        # A server may close a connection between two requests; a request sent over such a
        # connection is lost, and must not be sent twice.
        if self._connection.sock is None or _hung_up(self._connection.sock):
            self._connection.close()
            self.open()
        self._send(message)

    def _send(self, message: bytes) -> None:
        headers = {
            "Accept": _THRIFT,
            "Content-Type": _THRIFT,
            "User-Agent": f"tidegate/{__version__}",
            "X-XSRF-HEADER": "true",
        }
        if self._cookies:
            headers["Cookie"] = "; ".join(f"{k}={v}" for k, v in self._cookies.items())
        else:
            headers["Authorization"] = self._authorization()
        self._connection.request("POST", self._path, message, headers)
        self._sent = message

    def _reply(self) -> BytesIO:
        """Return the body of the reply, which the first call reads."""
        if self._sent is None:
            return self._incoming
        message, self._sent = self._sent, None
        response = self._connection.getresponse()
        body = response.read()
        if response.status == http.client.UNAUTHORIZED and self._cookies:
            # The cookie has expired, or the server was restarted: log in again.
            self._cookies.clear()
            self._send(message)
            return self._reply()
        self._keep_cookies(response)
        if response.status in _NO_BACKEND:
            # A proxy lost the server, or a server takes no calls now: as good as hung up.
            raise ConnectionError(f"the server answered HTTP {response.status} {response.reason}")
        if response.status != http.client.OK:
            raise _refusal(response, body)
        self._incoming = BytesIO(body)
        return self._incoming

    def _keep_cookies(self, response: http.client.HTTPResponse) -> None:
        for header in response.headers.get_all("Set-Cookie", ()):
            with contextlib.suppress(CookieError):
                for name, morsel in SimpleCookie(header).items():
                    self._cookies[name] = morsel.value

    def _socket(self) -> Any:
        if self._connection.sock is None:
            raise TTransportException(TTransportException.NOT_OPEN, "the connection is closed")
        return self._connection.sock


def _hung_up(opened: socket.socket) -> bool:
    """Return whether an idle connection has unread bytes or was closed by the server."""
    if not hasattr(select, "poll"):
        return bool(select.select([opened], [], [], 0)[0])
    poll = select.poll()
    poll.register(opened, select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


def _refusal(response: http.client.HTTPResponse, body: bytes) -> OperationalError:
    text = body.decode("utf-8", "replace").strip()[:_MAX_TEXT]
    detail = text if response.headers.get_content_maintype() == "text" else ""
    denied = response.status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN)
    return OperationalError(
        f"the server answered HTTP {response.status} {response.reason}: {detail}".rstrip(": "),
        sqlstate="28000" if denied else "08001",
        hint="Check user, password and token." if denied else "Check port and http_path.",
    )
