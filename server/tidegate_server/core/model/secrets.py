"""Which names of options and settings belong to secrets."""

from __future__ import annotations

import re
from typing import Final

REDACTED: Final = "*****"

SENSITIVE_NAME: Final = (
    r"passw(?:or)?d|passphrase|pwd|secret|token|credential"
    r"|(?:api|access|account|private|shared|encryption|signing)[ ._-]?key"
    r"|connection[ ._-]?string|(?<![a-z])sas(?![a-z])|(?<![a-z])sig(?![a-z])"
)
"""Pattern of the names of options whose values are secret, to be matched without regard to case.

Python and Java read it alike.
"""
SENSITIVE: Final = re.compile(SENSITIVE_NAME, re.IGNORECASE)


def is_sensitive(name: str) -> bool:
    """Return whether the value of an option with this name is secret."""
    return SENSITIVE.search(name) is not None
