"""Handles: how sessions and operations are named on the wire."""

from __future__ import annotations

import hmac
import secrets
import uuid
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Handle:
    """A public id with the secret that proves it was given out by this server.

    Both are 16 bytes long.
    """

    guid: bytes
    secret: bytes = field(repr=False)

    def __str__(self) -> str:
        return str(uuid.UUID(bytes=self.guid)) if len(self.guid) == 16 else self.guid.hex()

    def matches(self, other: Handle) -> bool:
        """Say whether ``other`` names the same thing and knows its secret."""
        return self.guid == other.guid and hmac.compare_digest(self.secret, other.secret)


def issue(new_id: str) -> Handle:
    """Make a handle of a fresh UUID text with a random secret."""
    return Handle(uuid.UUID(new_id).bytes, secrets.token_bytes(16))
