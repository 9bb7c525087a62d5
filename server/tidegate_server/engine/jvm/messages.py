"""Extracts the message from the text of a Spark or Delta exception."""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 4_000
"""Maximum length of a message in characters; a value that it quotes may have any length."""

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
"""What follows a message, the last first: stack, statement, position, plan, SQLSTATE."""


def whole_message(text: str) -> str:
    """Return a message without its condition, position, plan, SQLSTATE and stack."""
    text = _PREFIX.sub("", text.strip())
    for tail in _TAILS:
        text = tail.sub("", text)
    text = text.strip()
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}... ({len(text) - LONGEST} more characters)"
