"""Kerberos tickets, over SASL GSSAPI (RFC 4752) or HTTP Negotiate."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import gssapi
from gssapi.exceptions import GSSError

from tidegate_server.core.config_sections import KerberosSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.gateway.auth.base import Identity, login_error
from tidegate_server.gateway.auth.logins import is_usable_name

logger = logging.getLogger(__name__)

METHOD: Final = "KERBEROS"
_NO_LAYER, _INTEGRITY, _CONFIDENTIALITY = 1, 2, 4
_OFFERED: Final = {
    "auth": _NO_LAYER | _INTEGRITY | _CONFIDENTIALITY,
    "auth-int": _INTEGRITY | _CONFIDENTIALITY,
    "auth-conf": _CONFIDENTIALITY,
}
_LARGEST: Final = 0xFFFFFF
"""The largest frame size that the layer's three bytes can express."""


class Kerberos:
    """The acceptor's side: its keys are in a keytab, which is read at each login."""

    def __init__(self, settings: KerberosSection) -> None:
        """Check the keytab.

        :raises ServerError: LOGIN_CONFIGURATION if it has no usable key.
        """
        self._realm = settings.realm
        self._offered = _OFFERED[settings.qop]
        try:
            Path(settings.keytab).read_bytes()
            self._credentials = gssapi.Credentials(
                usage="accept", store={"keytab": settings.keytab}
            )
        except (OSError, GSSError) as problem:
            raise error(
                Code.LOGIN_CONFIGURATION, what="kerberos.keytab", reason=_text(problem)
            ) from problem

    def exchange(self) -> KerberosExchange:
        """Start one client's login."""
        return KerberosExchange(self._credentials, self._realm, self._offered)


class KerberosExchange:
    """One client's login; its steps may block and are taken one after the other."""

    def __init__(self, credentials: Any, realm: str, offered: int) -> None:
        self._context = gssapi.SecurityContext(creds=credentials, usage="accept")
        self._realm = realm
        self._offered = offered

    @property
    def complete(self) -> bool:
        """Whether the client has been authenticated."""
        return bool(self._context.complete)

    def step(self, token: bytes) -> bytes:
        """Take a client's token and return the reply.

        :raises ServerError: LOGIN_REFUSED.
        """
        try:
            return self._context.step(token) or b""
        except GSSError as problem:
            raise _rejected_ticket_error(problem) from problem

    def identity(self) -> Identity:
        """Return who the client is.

        A principal of the server's own realm is shortened to its first part, as in Hadoop; any
        other is used in full.

        :raises ServerError: LOGIN_REFUSED.
        """
        principal = str(self._context.initiator_name)
        name, _, realm = principal.rpartition("@")
        user = name.partition("/")[0] if realm == self._realm else principal
        if not is_usable_name(user):
            raise login_error("The Kerberos principal names no user")
        return Identity(user=user, method=METHOD)

    def offer(self) -> bytes:
        """Return the offer of security layers, which is the last step of the mechanism."""
        offer = bytes((self._offered,)) + _LARGEST.to_bytes(3, "big")
        return bytes(self._context.wrap(offer, False).message)

    def choose(self, payload: bytes) -> tuple[str, KerberosLayer | None]:
        """Return the client's choice: whom it wants to act as, and the layer for later messages.

        :raises ServerError: LOGIN_REFUSED.
        """
        try:
            choice = self._context.unwrap(payload).message
        except GSSError as problem:
            raise _rejected_ticket_error(problem) from problem
        if len(choice) < 4 or choice[0] not in (_NO_LAYER, _INTEGRITY, _CONFIDENTIALITY):
            raise login_error("The client chose no security layer")
        if not choice[0] & self._offered:
            hint = "Connect with saslQop=auth-conf."
            raise login_error("This server requires more protection", hint)
        other = choice[4:].decode("utf-8", "replace")
        if choice[0] == _NO_LAYER:
            return other, None
        encrypted = choice[0] == _CONFIDENTIALITY
        return other, KerberosLayer(self._context, encrypted, int.from_bytes(choice[1:4], "big"))


class KerberosLayer:
    """Protects messages after the login: signed, or also encrypted."""

    def __init__(self, context: Any, encrypted: bool, largest: int) -> None:
        self._context = context
        self.encrypted = encrypted
        """Whether messages are encrypted, not only signed."""
        self._piece = max(1, context.get_wrap_size_limit(max(largest, 1024), encrypted))

    def wrap(self, payload: bytes) -> Iterator[bytes]:
        """Yield the frames of a message, none larger than the client accepts."""
        for start in range(0, len(payload), self._piece):
            part = payload[start : start + self._piece]
            yield self._context.wrap(part, self.encrypted).message

    def unwrap(self, frame: bytes) -> bytes:
        """Return the payload of a frame.

        :raises ServerError: LOGIN_REFUSED if it was changed in transit, or is not encrypted as
            agreed.
        """
        try:
            found = self._context.unwrap(frame)
        except GSSError as problem:
            raise _rejected_ticket_error(problem) from problem
        if self.encrypted and not found.encrypted:
            raise login_error("A frame is not encrypted, as was agreed")
        return bytes(found.message)


def _rejected_ticket_error(problem: GSSError) -> ServerError:
    logger.info("Kerberos rejected a client: %s", _text(problem))
    return login_error("The Kerberos ticket was not accepted")


def _text(problem: Exception) -> str:
    return str(problem).rstrip(".")
