"""Secrets that were verified recently, so that they are not checked again."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from datetime import datetime, timedelta
from typing import Final

from tidegate_server.core.model.clock import Clock
from tidegate_server.gateway.auth.base import Identity

SECONDS: Final = 60.0
"""How long a secret is remembered. An old password may be accepted for this long over HTTP."""
_MOST: Final = 1000


class LoginCache:
    """Keeps keyed digests, never the secrets.

    Python clients send their password with every HTTP request and open a connection for each.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, tuple[datetime, Identity]] = OrderedDict()

    def find(self, secret: bytes) -> Identity | None:
        """Return whose secret this is, if it was remembered within the last minute."""
        until, identity = self._known.get(self._digest(secret), (None, None))
        return identity if until is not None and self._clock.now() < until else None

    def keep(self, secret: bytes, identity: Identity) -> None:
        """Remember a secret that was just verified."""
        digest = self._digest(secret)
        self._known[digest] = (self._clock.now() + timedelta(seconds=SECONDS), identity)
        self._known.move_to_end(digest)
        while len(self._known) > _MOST:
            self._known.popitem(last=False)

    def _digest(self, secret: bytes) -> bytes:
        return hmac.digest(self._key, secret, hashlib.sha256)
