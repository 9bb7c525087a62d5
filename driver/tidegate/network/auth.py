"""The client's side of authentication."""

from __future__ import annotations

import base64
import getpass
from collections.abc import Callable
from io import BytesIO
from typing import Any, Final

from puresasl import SASLProtocolException
from puresasl.client import SASLClient
from thrift.transport.TTransport import CReadableTransport, TBufferedTransport, TTransportBase

from tidegate.dsn import ConnectOptions
from tidegate.errors import InterfaceError, NotSupportedError, OperationalError
from tidegate.network import kerberos
from tidegate.network.http import basic
from tidegate.network.kerberos import KerberosLayer
from tidegate.network.transport import Transport
from tidegate.wire import sasl

_READ_BUFFER: Final = 1 << 16


class SaslTransport(TTransportBase, CReadableTransport):  # type: ignore[misc]
    """Length-prefixed data frames over a transport that has been negotiated."""

    def __init__(self, inner: Transport, layer: KerberosLayer | None = None) -> None:
        self._inner = inner
        self._layer = layer
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
        for frame in (message,) if self._layer is None else self._layer.wrap(message):
            self._inner.write(sasl.data_frame(frame))
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
        frame = self._inner.readAll(length)
        return frame if self._layer is None else self._layer.unwrap(frame)


def default_user() -> str:
    """Return the name of the user who runs the program, or ``anonymous``."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "anonymous"


def nosasl(inner: Transport, options: ConnectOptions) -> Any:
    """Connect without naming a user."""
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
    _expect(sasl.SaslStatus.COMPLETE, inner)
    return SaslTransport(inner)


def delegation_token(inner: Transport, options: ConnectOptions) -> Any:
    """Log in with a delegation token by SASL DIGEST-MD5, so that its secret does not travel.

    :raises OperationalError: if the server refuses.
    """
    identifier, secret = _token_parts(options.token or "")
    client = SASLClient(options.host, "hive", "DIGEST-MD5", username=identifier, password=secret)
    inner.write(
        sasl.negotiation_frame(sasl.SaslStatus.START, b"DIGEST-MD5")
        + sasl.negotiation_frame(sasl.SaslStatus.OK, b"")
    )
    inner.flush()
    challenge = _expect(sasl.SaslStatus.OK, inner)
    inner.write(sasl.negotiation_frame(sasl.SaslStatus.OK, client.process(challenge)))
    inner.flush()
    try:
        client.process(_expect(sasl.SaslStatus.COMPLETE, inner))
    except SASLProtocolException as error:
        raise sasl.SaslError(f"the server does not know the token's secret: {error}") from error
    return SaslTransport(inner)


def ticket(inner: Transport, options: ConnectOptions) -> Any:
    """Log in with a Kerberos ticket by SASL GSSAPI.

    :raises OperationalError: if there is none or the server refuses.
    """
    inner.write(sasl.negotiation_frame(sasl.SaslStatus.START, b"GSSAPI"))

    def ask(token: bytes) -> bytes:
        inner.write(sasl.negotiation_frame(sasl.SaslStatus.OK, token))
        inner.flush()
        return _expect(sasl.SaslStatus.OK, inner)

    last, layer = kerberos.log_in(options, ask)
    inner.write(sasl.negotiation_frame(sasl.SaslStatus.OK, last))
    inner.flush()
    _expect(sasl.SaslStatus.COMPLETE, inner)
    return SaslTransport(inner, layer)


def _token_parts(text: str) -> tuple[str, str]:
    """Return the identifier and the secret of a token in the form of Hadoop's clients."""
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        first = data[0]
        second = data[1 + first]
        parts = data[1 : 1 + first], data[2 + first : 2 + first + second]
    except (ValueError, IndexError):
        raise InterfaceError("the token is not a delegation token") from None
    identifier, secret = (base64.b64encode(part).decode() for part in parts)
    return identifier, secret


def _expect(expected: sasl.SaslStatus, inner: Transport) -> bytes:
    status, payload = _receive(inner)
    if status is not expected:
        answer = payload.decode("utf-8", "replace") or f"it answered {status.name}"
        raise OperationalError(
            f"the server refused the login: {answer}",
            sqlstate="28000",
            hint="Check user, password or token, and auth.",
        )
    return payload


def _receive(inner: Transport) -> tuple[sasl.SaslStatus, bytes]:
    header = inner.readAll(sasl.NEGOTIATION_HEADER)
    status, length = sasl.parse_negotiation_header(header)
    return status, inner.readAll(length)


Authenticate = Callable[[Transport, ConnectOptions], Any]

_METHODS: Final[dict[str, Authenticate]] = {
    "NONE": plain,
    "PLAIN": plain,
    "PASSWORD": plain,
    "LDAP": plain,
    "CUSTOM": plain,
    "NOSASL": nosasl,
    "TOKEN": delegation_token,
    "KERBEROS": ticket,
}


def method(options: ConnectOptions) -> Authenticate:
    """Return the function that authenticates a connection by the configured method.

    :raises NotSupportedError: if the driver does not know it.
    """
    found = _METHODS.get(options.auth.upper())
    if found is None:
        raise NotSupportedError(
            f"the driver does not offer auth={options.auth}; it offers {', '.join(_METHODS)}"
        )
    # Over HTTP every request carries its own credentials.
    return nosasl if options.transport == "http" else found


def authorization(options: ConnectOptions) -> str:
    """Return the Authorization header of an HTTP request."""
    if options.token is not None:
        return f"Bearer {options.token}"
    if options.auth.upper() == "KERBEROS":
        return kerberos.negotiate(options)
    return basic(options.user or default_user(), options.password or "anonymous")
