"""The message in the text of an exception of Spark's or Delta's."""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 4_000
"""Characters that a message has at most; a value that it quotes may be of any length."""

_PREFIX: Final = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
_TAILS: Final = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"\n\s*at [\w$.<>/@-]+\([^()\n]*\).*",
        r"\n+Driver stacktrace:.*",
        r"(^|\n)Traceback \(most recent call last\):.*",
        r"\n\s*== SQL\b.*",
        r"\s*\(line \d+, pos \d+\)\s*$",
        r";\s*line \d+ pos \d+(;\n.*)?\s*$",
        r"(?<=SQLSTATE: .....);\n.*",
        r"\s*SQLSTATE: \w{5}\s*$",
    )
)
"""What follows a message, the last first: stack, statement, place, plan, state."""


def whole_message(text: str) -> str:
    """Return all lines of a message without its condition, place, plan, SQLSTATE and stack."""
    text = _PREFIX.sub("", text.strip())
    for tail in _TAILS:
        text = tail.sub("", text)
    text = text.strip()
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}... ({len(text) - LONGEST} more characters)"
