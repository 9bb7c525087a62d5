"""Signed bearer tokens (JWT), checked with keys from a file or a URL."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import jwt
from jwt import PyJWKSet
from jwt.exceptions import InvalidTokenError, PyJWTError

from tidegate_server.core.config_sections import JwtSection
from tidegate_server.core.errors import Code, error
from tidegate_server.gateway.auth.base import Identity, login_error
from tidegate_server.gateway.auth.logins import is_usable_name, usable_groups

logger = logging.getLogger(__name__)

ALGORITHMS: Final = ("RS256", "ES256")
METHOD: Final = "JWT"
_LEEWAY: Final = 10.0
_MAX_TOKEN: Final = 16 << 10
_MAX_KEYS_BYTES: Final = 1 << 20
_TIMEOUT: Final = 5.0
# Seconds for which keys are not read again, and least seconds between reads caused by a token with
# an unknown key: anyone can send such tokens.
_FRESH: Final = 300.0
_PAUSE: Final = 10.0


class BearerTokens:
    """Checks the signature and the claims aud, iss and exp of tokens."""

    def __init__(self, settings: JwtSection) -> None:
        self._settings = settings
        self._keys = KeySet(settings.jwks)

    def check(self, token: str) -> Identity:
        """Return whose token this is; may read the keys, so it blocks.

        :raises ServerError: LOGIN_REFUSED, or LOGIN_UNAVAILABLE without keys.
        """
        if len(token) > _MAX_TOKEN:
            raise login_error("The token is too long")
        try:
            claims = self._claims(token)
        except InvalidTokenError as problem:
            # The library's messages name claims, not their values.
            raise login_error(f"The token is invalid: {problem}".rstrip(".")) from None
        user = claims.get(self._settings.user_claim)
        if not isinstance(user, str) or not is_usable_name(user):
            raise login_error(f"The token's claim {self._settings.user_claim} names no user")
        return Identity(user=user, method=METHOD, groups=self._groups(claims))

    def _groups(self, claims: Mapping[str, Any]) -> tuple[str, ...] | None:
        """Return the groups in the configured claim: a list of names, or one name."""
        if not self._settings.groups_claim:
            return None
        found = claims.get(self._settings.groups_claim, ())
        names = [found] if isinstance(found, str) else found
        if not isinstance(names, list | tuple):
            raise login_error(f"The token's claim {self._settings.groups_claim} is not a list")
        return usable_groups(name for name in names if isinstance(name, str))

    def _claims(self, token: str) -> dict[str, Any]:
        key_id = jwt.get_unverified_header(token).get("kid")
        key = self._keys.find(key_id)
        if key is None:
            raise login_error("The token is signed with a key that this server does not know")
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(ALGORITHMS),
            audience=self._settings.audience,
            issuer=self._settings.issuer,
            leeway=_LEEWAY,
            options={"require": ["exp", "aud", "iss"]},
        )
        return claims


class KeySet:
    """The public keys of a JWKS document, read again when they expire or one is missing."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._keys: PyJWKSet | None = None
        self._read_at = 0.0

    def find(self, key_id: str | None) -> jwt.PyJWK | None:
        """Return the key with this id; for None, the only key if there is exactly one.

        :raises ServerError: LOGIN_UNAVAILABLE if the keys cannot be read.
        """
        with self._lock:
            age = time.monotonic() - self._read_at
            if self._keys is None or age > _FRESH:
                self._read()
            found = self._look_up(key_id)
            if found is None and time.monotonic() - self._read_at > _PAUSE:
                self._read()
                found = self._look_up(key_id)
            return found

    def _look_up(self, key_id: str | None) -> jwt.PyJWK | None:
        keys = [] if self._keys is None else self._keys.keys
        if key_id is None:
            return keys[0] if len(keys) == 1 else None
        return next((key for key in keys if key.key_id == key_id), None)

    def _read(self) -> None:
        try:
            self._keys = PyJWKSet.from_json(_document(self._source))
            self._read_at = time.monotonic()
        except (OSError, ValueError, PyJWTError) as problem:
            logger.error("The keys of %s cannot be read: %s", self._source, problem)
            if self._keys is None:
                reason = "the keys that sign tokens cannot be read"
                raise error(Code.LOGIN_UNAVAILABLE, reason=reason) from problem


def _document(source: str) -> str:
    if not source.startswith(("https://", "http://")):
        return Path(source).read_text("utf-8")
    with urlopen(source, timeout=_TIMEOUT) as response:
        data: bytes = response.read(_MAX_KEYS_BYTES)
    return data.decode()
