"""Signed cookies that replace a repeated login over HTTP."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from datetime import timedelta
from typing import Final

from tidegate_server.core.model.clock import Clock
from tidegate_server.gateway.auth.base import Identity

NAME: Final = "hive.server2.auth"
"""The name that Hive's clients expect."""


class Cookies:
    """Issues and reads cookies; the key belongs to the process, so a restart invalidates them."""

    def __init__(self, max_age: float, clock: Clock) -> None:
        self._max_age = max_age
        self._clock = clock
        self._key = secrets.token_bytes(32)

    def value(self, identity: Identity) -> str:
        """Return a fresh cookie's value."""
        until = self._clock.now() + timedelta(seconds=self._max_age)
        claims = json.dumps([identity.user, identity.method, identity.proven, until.timestamp()])
        payload = _encode(claims.encode())
        return f"{payload}.{_encode(self._signature(payload))}"

    def header(self, identity: Identity, *, path: str, secure: bool) -> str:
        """Return a Set-Cookie header."""
        attributes = f"Max-Age={self._max_age:.0f}; Path={path}; HttpOnly; SameSite=Strict"
        return f"{NAME}={self.value(identity)}; {attributes}{'; Secure' if secure else ''}"

    def read(self, value: str) -> Identity | None:
        """Return the identity in a cookie; None if it is forged, damaged or expired."""
        payload, _, signature = value.partition(".")
        try:
            given = _decode(signature)
            if not hmac.compare_digest(given, self._signature(payload)):
                return None
            user, method, proven, until = json.loads(_decode(payload))
        except ValueError:
            return None
        if self._clock.now().timestamp() >= until:
            return None
        return Identity(user=user, method=method, proven=proven)

    def _signature(self, payload: str) -> bytes:
        return hmac.digest(self._key, payload.encode("utf-8", "replace"), hashlib.sha256)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
