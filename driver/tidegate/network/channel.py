"""Calls over one transport, one at a time, in the order in which threads ask."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections import deque
from collections.abc import Callable
from http.client import HTTPException
from types import TracebackType
from typing import Any, Final

from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TException
from thrift.transport.TTransport import TTransportException

from tidegate.dsn import ConnectOptions
from tidegate.errors import Error, NotSupportedError, OperationalError
from tidegate.network import auth
from tidegate.network.transport import Transport
from tidegate.wire.sasl import SaslError
from tidegate.wire.service import Client, TApplicationException, accelerated_protocol

TransportFactory = Callable[[], Transport]

_BROKEN: Final = (
    OSError,
    EOFError,
    HTTPException,
    TTransportException,
    TProtocolException,
    SaslError,
)


class ChannelBroken(Exception):  # noqa: N818 - no error yet: the session may be resumed
    """The connection broke; the text states the reason.

    ``unsent`` says that the server cannot have received the whole request, ``timed_out`` that no
    reply came within the time that the user allows for one.
    """

    def __init__(self, reason: str, *, unsent: bool = False, timed_out: bool = False) -> None:
        super().__init__(reason)
        self.unsent = unsent
        self.timed_out = timed_out


class FairLock:
    """A lock that threads get in the order in which they asked.

    A cursor that polls takes the lock again at once; with an ordinary lock the other threads of
    its connection would starve.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._held = False

    @property
    def held(self) -> bool:
        """Whether some thread has the lock right now."""
        return self._held

    def __enter__(self) -> None:
        with self._mutex:
            if not self._held:
                self._held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            turn.acquire()
        except BaseException:
            self._give_up(turn)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._release()

    def _give_up(self, turn: threading.Lock) -> None:
        with self._mutex:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return
        self._release()

    def _release(self) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False


class Channel:
    """An authenticated transport with the service's calls."""

    def __init__(self, options: ConnectOptions, factory: TransportFactory) -> None:
        """Connect and authenticate.

        :raises OperationalError: if the server cannot be reached or refuses.
        """
        self._lock = FairLock()
        self._closed = False
        self._sent = False
        """Whether the request of the call in progress went out as a whole."""
        self._outstanding: str | None = None
        authenticate = auth.method(options)
        self._inner = factory()
        try:
            self._inner.open()
            self._transport = authenticate(self._inner, options)
        except BaseException as error:
            self._inner.close()
            if isinstance(error, (*_BROKEN, UnicodeError)):
                raise _unreachable(options, error) from error
            raise
        self._client = Client(accelerated_protocol(self._transport))

    @property
    def closed(self) -> bool:
        """Whether the channel was closed or broke."""
        return self._closed

    @property
    def busy(self) -> bool:
        """Whether a call is in progress, or an interrupted one still awaits its reply."""
        return self._lock.held or self._outstanding is not None

    def set_timeout(self, seconds: float | None) -> None:
        """Bound the wait for each further reply, where the transport can do that."""
        bound = getattr(self._inner, "set_timeout", None)
        if bound is not None:
            bound(seconds)

    def call(self, name: str, request: Any) -> Any:
        """Send one call and return its reply.

        :raises NotSupportedError: if the server does not know the call.
        :raises ChannelBroken: if the connection breaks; the channel is closed then.
        """
        with self._lock:
            if self._closed:
                raise ChannelBroken("it was closed before", unsent=True)
            self._sent = False
            try:
                self._drain()
                self._send(name, request)
                return self._receive(name)
            except Error:
                raise
            except TApplicationException as error:
                raise _error_of(name, error) from error
            except (*_BROKEN, TException) as error:
                self.close()
                raise ChannelBroken(
                    _describe(error), unsent=not self._sent, timed_out=_is_own_limit(error)
                ) from error

    def close(self) -> None:
        """Close the transport; also frees a thread that waits for a reply."""
        self._closed = True
        self._transport.close()

    def _send(self, name: str, request: Any) -> None:
        try:
            getattr(self._client, f"send_{name}")(request)
        except BaseException:
            # Half a request may have been sent: the server could not parse anything after it.
            self.close()
            raise
        self._sent = True
        self._outstanding = name

    def _receive(self, name: str) -> Any:
        wait = getattr(self._inner, "wait", None)
        if wait is not None:
            # An interrupt nearly always comes here, where nothing of the reply is consumed yet:
            # the next call reads past that reply, and the connection stays in step.
            wait()
        self._outstanding = None
        try:
            return getattr(self._client, f"recv_{name}")()
        except TApplicationException:
            raise
        except BaseException:
            self.close()
            raise

    def _drain(self) -> None:
        if self._outstanding is not None:
            # The reply to an interrupted call has no reader any more.
            with contextlib.suppress(TApplicationException):
                self._receive(self._outstanding)


def _unreachable(options: ConnectOptions, error: BaseException) -> OperationalError:
    where = options.address
    if isinstance(error, TimeoutError):
        return OperationalError(
            f"no answer from {where} within {options.connect_timeout:g} s",
            sqlstate="08001",
            hint=f"Check host, port, firewall, and whether the server expects auth={options.auth}.",
        )
    if options.socket and isinstance(error, ConnectionRefusedError | FileNotFoundError):
        return OperationalError(
            f"no server listens on the socket {where}",
            sqlstate="08001",
            hint="Check the path, and that the server runs; its configuration is server.socket.",
        )
    if isinstance(error, ConnectionRefusedError):
        return OperationalError(
            f"connection refused by {where}: check that the server runs there, and host and port",
            sqlstate="08001",
            hint="Start it with tidegate-server, or name another host and port.",
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return OperationalError(
            f"the certificate of {where} is not trusted: {error.verify_message}",
            sqlstate="08001",
            hint="Name the file of its authority with ca=…, and the host as in the certificate.",
        )
    if isinstance(error, ssl.SSLError):
        return OperationalError(
            f"{where} and the driver cannot agree on TLS: {error.reason or error}",
            sqlstate="08001",
            hint="Check the port and whether the server offers TLS; or leave ssl=true out.",
        )
    if isinstance(error, EOFError | SaslError | ConnectionResetError):
        return OperationalError(
            f"{where} does not answer as a HiveServer2 with auth={options.auth}: "
            f"{_describe(error)}",
            sqlstate="08001",
            hint="Check the port, ssl, and auth: NONE, or NOSASL where the server uses no SASL.",
        )
    return OperationalError(
        f"cannot connect to {where}: {_describe(error)}",
        sqlstate="08001",
        hint="Check host and port.",
    )


def _error_of(name: str, error: Any) -> Error:
    if error.type == TApplicationException.UNKNOWN_METHOD:
        return NotSupportedError(f"the server does not offer the call {name}", sqlstate="0A000")
    return OperationalError(
        f"the server failed in the call {name}: {error.message}", sqlstate="HY000"
    )


def _is_own_limit(error: BaseException) -> bool:
    """Return whether an error is that of the socket's time-out, not one of the network."""
    return isinstance(error, TimeoutError) and error.errno is None


def _describe(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no reply came in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
