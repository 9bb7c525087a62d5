"""Delegation tokens: a login that a user hands to a program, for a while."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from tidegate_server.core.config import LoginSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.clock import Clock
from tidegate_server.gateway.auth.base import Identity, login_error
from tidegate_server.gateway.auth.logins import is_usable_name

METHOD: Final = "TOKEN"
KIND: Final = b"HIVE_DELEGATION_TOKEN"
"""How Hive's clients know such a token among others."""
_LONGEST: Final = 127
"""Lengths up to this one are written in one byte; none of ours is greater."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """What the store knows of a token: everything but its secret."""

    id: str
    owner: str
    renewer: str
    issuer: str
    """Who asked for it; the owner, or who may act as the owner."""
    issued_at: datetime
    expires_at: datetime
    max_date: datetime
    """When renewing ends."""


class TokenStore(Protocol):
    """Where tokens are kept, for every gateway of a store."""

    def key(self) -> bytes:
        """Return the secret that signs tokens, made when it is first asked for."""
        ...

    def add(self, record: TokenRecord) -> None:
        """Keep a token, and forget those whose last day is over."""
        ...

    def find(self, token_id: str) -> TokenRecord | None:
        """Return a token that was not cancelled, however old."""
        ...

    def renew(self, token_id: str, expires_at: datetime) -> None:
        """Set how long a token is good."""
        ...

    def remove(self, token_id: str) -> None:
        """Forget a token."""
        ...


class DelegationTokens:
    """Issues tokens, renews, cancels and checks them; every call may block on the store."""

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
        """Return a new token for ``owner``, whom the caller was found to be able to act as.

        :raises ServerError: LOGIN_REFUSED to who came with a token itself.
        """
        if identity.method == METHOD:
            raise login_error("A delegation token cannot be used to get another one")
        if renewer and not is_usable_name(renewer):
            raise error(Code.INVALID_REQUEST, reason="the renewer is no user's name")
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
        """Make a token good for longer, up to its last day; for its renewer alone.

        :raises ServerError: LOGIN_REFUSED.
        """
        record = self._verify(text)
        if not user or user != record.renewer:
            raise login_error(f"Only the renewer may renew a delegation token, not {user}")
        expires_at = min(self._clock.now() + self._lifetime, record.max_date)
        self._store.renew(record.id, expires_at)

    def cancel(self, text: str, user: str) -> None:
        """Make a token worthless; for its owner, its renewer and who asked for it.

        :raises ServerError: LOGIN_REFUSED.
        """
        record = self._verify(text, even_expired=True)
        if user not in {record.owner, record.renewer, record.issuer}:
            raise login_error(f"{user} may not cancel this delegation token")
        self._store.remove(record.id)

    def look_up(self, name: str) -> tuple[Identity, str]:
        """Return whose token a user name of SASL stands for, and the password that goes with it.

        :raises ServerError: LOGIN_REFUSED if it is unknown, cancelled or too old.
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
    """Return a token's text, in the form that Hadoop's clients take apart."""
    parts = (identifier, secret, KIND, b"")
    data = b"".join(bytes((len(part),)) + part for part in parts)
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_token(text: str) -> tuple[bytes, bytes]:
    """Return the identifier and the secret of a token's text.

    :raises ServerError: LOGIN_REFUSED if it is none of ours.
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
    return login_error("The delegation token is unknown, cancelled or too old")
