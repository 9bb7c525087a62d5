"""String literals."""

from __future__ import annotations

import re

_UNICODE = r"{0}(?:{0}|\+([0-9A-Fa-f]{{6}})|([0-9A-Fa-f]{{4}}))"


def spark_string(value: str) -> str:
    """Return Spark's literal of a string."""
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def unicode_string(value: str, escape: str = "\\") -> str | None:
    """Return the string of ``U&'...'``; None if an escape is malformed."""
    pattern = re.compile(_UNICODE.format(re.escape(escape)))
    if escape in pattern.sub("", value):
        return None

    def decode(found: re.Match[str]) -> str:
        digits = found[1] or found[2]
        return escape if digits is None else chr(int(digits, 16))

    try:
        decoded = pattern.sub(decode, value)
    except (ValueError, OverflowError):
        return None
    # Two surrogates are one character.
    return decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
