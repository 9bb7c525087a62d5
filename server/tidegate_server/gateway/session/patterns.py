"""Name patterns of metadata calls: JDBC's and Hive's wildcards in one language."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\\(.)|(\.\*|[*%])|([_.])|(\|)|(.)", re.DOTALL)


def compile_pattern(pattern: str | None) -> re.Pattern[str]:
    r"""Return the regular expression a name must match as a whole, without regard to case.

    ``%``, ``*`` and ``.*`` stand for any text, ``_`` and ``.`` for one character, ``|`` separates
    alternatives, ``\`` takes the next character as it is. None, empty and ``''`` match all.
    """
    if not pattern or pattern == "''":
        return re.compile(r".*", re.DOTALL)
    return re.compile(_TOKEN.sub(_translated, pattern), re.IGNORECASE | re.DOTALL)


def _translated(token: re.Match[str]) -> str:
    escaped, any_text, one_character, bar, literal = token.groups()
    if any_text:
        return ".*"
    if one_character:
        return "."
    return bar or re.escape(escaped or literal)
