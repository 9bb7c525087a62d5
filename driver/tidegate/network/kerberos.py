"""The client's side of Kerberos: SASL GSSAPI (RFC 4752) and HTTP's Negotiate."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from tidegate.dsn import ConnectOptions
from tidegate.errors import NotSupportedError, OperationalError

_NO_LAYER, _INTEGRITY, _CONFIDENTIALITY = 1, 2, 4
_LARGEST: Final = 0xFFFFFF
_MOST_STEPS: Final = 5

Ask = Callable[[bytes], bytes]
"""Sends the server a token and returns its answer."""


class KerberosLayer:
    """Protects messages after the login: signs them, or encrypts them as well."""

    def __init__(self, context: Any, encrypted: bool, largest: int) -> None:
        self._context = context
        self._encrypted = encrypted
        self._piece = max(1, context.get_wrap_size_limit(max(largest, 1024), encrypted))

    def wrap(self, payload: bytes) -> Iterator[bytes]:
        """Yield the frames for a message, none greater than the server takes."""
        for start in range(0, len(payload), self._piece):
            part = payload[start : start + self._piece]
            yield self._context.wrap(part, self._encrypted).message

    def unwrap(self, frame: bytes) -> bytes:
        """Return the payload of a frame.

        :raises OperationalError: if it was modified in transit, or is not protected as agreed.
        """
        found = _translate_errors(lambda: self._context.unwrap(frame))
        if self._encrypted and not found.encrypted:
            raise OperationalError("the server sent a frame unencrypted", sqlstate="08001")
        return bytes(found.message)


def negotiate(options: ConnectOptions) -> str:
    """Return a fresh header Authorization for one HTTP request.

    :raises OperationalError: if there is no ticket.
    """
    context = _context(options)
    return f"Negotiate {base64.b64encode(_translate_errors(context.step)).decode()}"


def log_in(options: ConnectOptions, ask: Ask) -> tuple[bytes, KerberosLayer | None]:
    """Log in with a ticket; return the client's last token and the security layer.

    :raises OperationalError: if there is no ticket or the server is not who it should be.
    """
    context = _context(options)
    answer = ask(_translate_errors(context.step))
    for _ in range(_MOST_STEPS):
        if context.complete:
            break
        answer = ask(_translate_errors(partial(context.step, answer)) or b"")
    offer = _translate_errors(lambda: context.unwrap(answer)).message
    if len(offer) != 4:
        raise OperationalError("the server offers no security layer", sqlstate="08001")
    # TLS already encrypts: no second layer is needed.
    wanted = (_CONFIDENTIALITY, _INTEGRITY, _NO_LAYER)
    chosen = next(
        (layer for layer in (wanted[::-1] if options.ssl else wanted) if layer & offer[0]),
        _NO_LAYER,
    )
    said = bytes((chosen,)) + (0 if chosen == _NO_LAYER else _LARGEST).to_bytes(3, "big")
    last = bytes(context.wrap(said, False).message)
    if chosen == _NO_LAYER:
        return last, None
    largest = int.from_bytes(offer[1:], "big")
    return last, KerberosLayer(context, chosen == _CONFIDENTIALITY, largest)


def _context(options: ConnectOptions) -> Any:
    try:
        import gssapi
    except ImportError as error:
        raise NotSupportedError(
            "auth=KERBEROS needs the package gssapi: pip install 'tidegate[kerberos]'"
        ) from error
    principal = options.principal.replace("_HOST", options.host.lower())
    return _translate_errors(
        lambda: gssapi.SecurityContext(
            name=gssapi.Name(principal, gssapi.NameType.kerberos_principal),
            flags=gssapi.RequirementFlag.mutual_authentication
            | gssapi.RequirementFlag.integrity
            | gssapi.RequirementFlag.confidentiality,
            usage="initiate",
        )
    )


def _translate_errors(work: Callable[[], Any]) -> Any:
    """Run a call of the library, translating its errors."""
    from gssapi.exceptions import GSSError

    try:
        return work()
    except GSSError as error:
        raise OperationalError(
            f"Kerberos: {error}",
            sqlstate="28000",
            hint="Get a ticket with kinit, and name the service with principal=hive/host@REALM.",
        ) from error
