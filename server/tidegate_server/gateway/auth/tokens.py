"""Delegation tokens: time-limited logins that a user hands to a program."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from tidegate_server.core.config_sections import LoginSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.clock import Clock
from tidegate_server.gateway.auth.base import Identity, login_error
from tidegate_server.gateway.auth.logins import is_usable_name

METHOD: Final = "TOKEN"
KIND: Final = b"HIVE_DELEGATION_TOKEN"
"""The token kind that Hive's clients look for."""
_LONGEST: Final = 127
"""Hadoop writes lengths up to this one in a single byte; ours are all smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """What the store keeps of a token: everything but its secret."""

    id: str
    owner: str
    renewer: str
    issuer: str
    """Who requested it: the owner, or a user who may act as the owner."""
    issued_at: datetime
    expires_at: datetime
    max_date: datetime
    """The latest time to which it can be renewed."""


class TokenStore(Protocol):
    """Persists tokens, shared by every gateway of a store."""

    def key(self) -> bytes:
        """Return the secret that signs tokens; generated on first use."""
        ...

    def add(self, record: TokenRecord) -> None:
        """Store a token, and delete those past their ``max_date``."""
        ...

    def find(self, token_id: str) -> TokenRecord | None:
        """Return a token that was not canceled, even if it has expired."""
        ...

    def renew(self, token_id: str, expires_at: datetime) -> None:
        """Set until when a token is valid."""
        ...

    def remove(self, token_id: str) -> None:
        """Delete a token."""
        ...


class DelegationTokens:
    """Issues, renews, cancels and checks tokens; every call may block on the store."""

    def __init__(
        self,
        store: TokenStore,
        clock: Clock,
        new_id: Callable[[], str],
        settings: LoginSection,
    ) -> None:
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._lifetime = timedelta(seconds=settings.token_lifetime)
        self._max_lifetime = timedelta(seconds=settings.token_max_lifetime)

    def issue(self, identity: Identity, owner: str, renewer: str) -> str:
        """Return a new token for ``owner``; the caller must already be allowed to act as it.

        :raises ServerError: LOGIN_REFUSED if the caller logged in with a token itself;
            INVALID_REQUEST for an invalid renewer.
        """
        if identity.method == METHOD:
            raise login_error("A delegation token cannot be used to get another one")
        if renewer and not is_usable_name(renewer):
            raise error(Code.INVALID_REQUEST, reason="the renewer is not a valid user name")
        now = self._clock.now()
        record = TokenRecord(
            id=self._new_id(),
            owner=owner,
            renewer=renewer,
            issuer=identity.user,
            issued_at=now,
            expires_at=min(now + self._lifetime, now + self._max_lifetime),
            max_date=now + self._max_lifetime,
        )
        self._store.add(record)
        return encode_token(record.id.encode(), self._secret(record.id))

    def renew(self, text: str, user: str) -> None:
        """Extend a token, at most to its ``max_date``; only its renewer may do so.

        :raises ServerError: LOGIN_REFUSED.
        """
        record = self._verify(text)
        if not user or user != record.renewer:
            raise login_error(f"Only the renewer may renew a delegation token, not {user}")
        expires_at = min(self._clock.now() + self._lifetime, record.max_date)
        self._store.renew(record.id, expires_at)

    def cancel(self, text: str, user: str) -> None:
        """Invalidate a token; its owner, renewer and issuer may do so.

        :raises ServerError: LOGIN_REFUSED.
        """
        record = self._verify(text, even_expired=True)
        if user not in {record.owner, record.renewer, record.issuer}:
            raise login_error(f"{user} may not cancel this delegation token")
        self._store.remove(record.id)

    def look_up(self, name: str) -> tuple[Identity, str]:
        """Return the identity and the password for a token's SASL user name.

        :raises ServerError: LOGIN_REFUSED if the token is unknown, canceled or expired.
        """
        try:
            token_id = base64.b64decode(name, validate=True).decode()
        except ValueError:
            raise _invalid_token() from None
        record = self._store.find(token_id)
        if record is None or self._clock.now() >= record.expires_at:
            raise _invalid_token()
        secret = base64.b64encode(self._secret(token_id)).decode()
        return Identity(user=record.owner, method=METHOD), secret

    def _verify(self, text: str, *, even_expired: bool = False) -> TokenRecord:
        identifier, secret = decode_token(text)
        token_id = identifier.decode("utf-8", "replace")
        if not hmac.compare_digest(secret, self._secret(token_id)):
            raise _invalid_token()
        record = self._store.find(token_id)
        if record is None or not (even_expired or self._clock.now() < record.expires_at):
            raise _invalid_token()
        return record

    def _secret(self, token_id: str) -> bytes:
        return hmac.digest(self._store.key(), token_id.encode(), hashlib.sha256)


def encode_token(identifier: bytes, secret: bytes) -> str:
    """Return a token's text in the form that Hadoop's clients decode."""
    parts = (identifier, secret, KIND, b"")
    data = b"".join(bytes((len(part),)) + part for part in parts)
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_token(text: str) -> tuple[bytes, bytes]:
    """Return the identifier and the secret in a token's text.

    :raises ServerError: LOGIN_REFUSED if it is malformed.
    """
    try:
        padded = text + "=" * (-len(text) % 4)
        data = base64.b64decode(padded, altchars=b"-_", validate=True)
    except ValueError:
        raise _invalid_token() from None
    parts = []
    while data:
        length, data = data[0], data[1:]
        if length > min(_LONGEST, len(data)):
            raise _invalid_token()
        parts.append(data[:length])
        data = data[length:]
    if len(parts) != 4 or parts[2] != KIND:
        raise _invalid_token()
    return parts[0], parts[1]


def _invalid_token() -> ServerError:
    return login_error("The delegation token is unknown, canceled or expired")
