"""Patterns of SHOW ... LIKE."""

from __future__ import annotations

import re


def like_pattern(text: str, *, ignore_case: bool) -> re.Pattern[str]:
    """Compile a LIKE pattern; ``*`` means ``%``, as in Spark's own SHOW TABLES."""
    parts, escaped = [], False
    for letter in text:
        if escaped:
            parts.append(re.escape(letter))
            escaped = False
        elif letter == "\\":
            escaped = True
        else:
            parts.append({"%": ".*", "*": ".*", "_": "."}.get(letter) or re.escape(letter))
    if escaped:
        parts.append(re.escape("\\"))
    return re.compile("".join(parts), re.DOTALL | (re.IGNORECASE if ignore_case else 0))
