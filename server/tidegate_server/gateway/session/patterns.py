"""Name patterns of metadata calls, with the wildcards of both JDBC and Hive."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\\(.)|(\.\*|[*%])|([_.])|(\|)|(.)", re.DOTALL)


def compile_pattern(pattern: str | None) -> re.Pattern[str]:
    r"""Return a regular expression for whole names, ignoring case.

    ``%``, ``*`` and ``.*`` stand for any text, ``_`` and ``.`` for one character, ``|`` separates
    alternatives, ``\`` escapes the next character. None, empty and ``''`` match all.
    """
    if not pattern or pattern == "''":
        return re.compile(r".*", re.DOTALL)
    return re.compile(_TOKEN.sub(_translate, pattern), re.IGNORECASE | re.DOTALL)


def _translate(token: re.Match[str]) -> str:
    escaped, any_text, one_character, bar, literal = token.groups()
    if any_text:
        return ".*"
    if one_character:
        return "."
    return bar or re.escape(escaped or literal)
