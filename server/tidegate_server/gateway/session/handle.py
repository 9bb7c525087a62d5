"""Handles, which identify sessions and operations on the wire."""

from __future__ import annotations

import hmac
import secrets
import uuid
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Handle:
    """A public id with a secret that proves that this server issued it; each has 16 bytes."""

    guid: bytes
    secret: bytes = field(repr=False)

    def __str__(self) -> str:
        return str(uuid.UUID(bytes=self.guid)) if len(self.guid) == 16 else self.guid.hex()

    def matches(self, other: Handle) -> bool:
        """Return whether ``other`` has the same id and secret."""
        return self.guid == other.guid and hmac.compare_digest(self.secret, other.secret)


def issue(new_id: str) -> Handle:
    """Make a handle from the text of a new UUID, with a random secret."""
    return Handle(uuid.UUID(new_id).bytes, secrets.token_bytes(16))
