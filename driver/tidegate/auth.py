"""The client's side of authentication."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from io import BytesIO
from typing import Any, Final

from puresasl.client import SASLClient
from thrift.transport.TTransport import CReadableTransport, TBufferedTransport, TTransportBase

from tidegate.dsn import ConnectOptions
from tidegate.errors import NotSupportedError, OperationalError
from tidegate.transport import Transport
from tidegate.wire import sasl

_READ_BUFFER: Final = 1 << 16


class SaslTransport(TTransportBase, CReadableTransport):  # type: ignore[misc]
    """Length-prefixed data frames over a transport that has been negotiated."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._incoming = BytesIO()
        self._outgoing = BytesIO()

    def isOpen(self) -> bool:  # noqa: N802 - Thrift names it so
        return True

    def close(self) -> None:
        self._inner.close()

    def read(self, sz: int) -> bytes:
        data = self._incoming.read(sz)
        while not data and sz:
            self._incoming = BytesIO(self._frame())
            data = self._incoming.read(sz)
        return data

    def write(self, buf: bytes) -> None:
        self._outgoing.write(buf)

    def flush(self) -> None:
        message = self._outgoing.getvalue()
        self._outgoing = BytesIO()
        self._inner.write(sasl.data_frame(message))
        self._inner.flush()

    @property
    def cstringio_buf(self) -> BytesIO:
        return self._incoming

    def cstringio_refill(self, partialread: bytes, reqlen: int) -> BytesIO:
        pieces, length = [partialread], len(partialread)
        while length < reqlen:
            pieces.append(self._frame())
            length += len(pieces[-1])
        self._incoming = BytesIO(b"".join(pieces))
        return self._incoming

    def _frame(self) -> bytes:
        length = sasl.parse_data_header(self._inner.readAll(sasl.DATA_HEADER))
        return self._inner.readAll(length)


def default_user() -> str:
    """Return the name of the user who runs the program, ``anonymous`` where there is none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "anonymous"


def nosasl(inner: Transport, options: ConnectOptions) -> Any:
    """Say nothing about who connects."""
    return TBufferedTransport(inner, _READ_BUFFER)


def plain(inner: Transport, options: ConnectOptions) -> Any:
    """Send user and password with SASL PLAIN.

    :raises OperationalError: if the server refuses.
    """
    client = SASLClient(
        options.host,
        "hive",
        "PLAIN",
        username=options.user or default_user(),
        # Hive's servers refuse an empty password even where they check none.
        password=options.password or "anonymous",
    )
    inner.write(
        sasl.negotiation_frame(sasl.SaslStatus.START, b"PLAIN")
        + sasl.negotiation_frame(sasl.SaslStatus.OK, client.process())
    )
    inner.flush()
    status, payload = _receive(inner)
    if status is not sasl.SaslStatus.COMPLETE:
        answer = payload.decode("utf-8", "replace") or f"it answered {status.name}"
        raise OperationalError(
            f"the server refused the user or the mechanism PLAIN: {answer}",
            sqlstate="28000",
            hint="Check user, password and auth.",
        )
    return SaslTransport(inner)


def _receive(inner: Transport) -> tuple[sasl.SaslStatus, bytes]:
    header = inner.readAll(sasl.NEGOTIATION_HEADER)
    status, length = sasl.parse_negotiation_header(header)
    return status, inner.readAll(length)


Authenticate = Callable[[Transport, ConnectOptions], Any]

_METHODS: Final[dict[str, Authenticate]] = {
    "NONE": plain,
    "PLAIN": plain,
    "LDAP": plain,
    "CUSTOM": plain,
    "NOSASL": nosasl,
}


def method(auth: str) -> Authenticate:
    """Return what introduces the client to a server of this kind of authentication.

    :raises NotSupportedError: if the driver does not know it.
    """
    try:
        return _METHODS[auth.upper()]
    except KeyError:
        raise NotSupportedError(
            f"the driver does not offer auth={auth}; it offers {', '.join(_METHODS)}"
        ) from None
