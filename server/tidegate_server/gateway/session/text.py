"""The text of a statement before anything parses it: its size, and the variables in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice

from tidegate_server.core.errors import Code, ServerError, error

_MOST_BYTES = 4
"""Of one character in UTF-8."""
_VARIABLE = re.compile(r"\$\{(?:hivevar:|hiveconf:)?([^${}:]+)\}")
# Whatever is not closed ends with the text, so that no part of it is read twice.
_TOKEN = re.compile(
    r"""
      [rR]'[^']*+(?:'|\Z) | [rR]"[^"]*+(?:"|\Z) | `[^`]*+(?:`|\Z)
    | '[^'\\]*+(?:\\.[^'\\]*+)*(?:'|\\?\Z) | "[^"\\]*+(?:\\.[^"\\]*+)*(?:"|\\?\Z)
    | --[^\r\n]*+ | /\*(?!\+).*?(?:\*/|\Z)
    | \w++ | [^\w\s]
    """,
    re.DOTALL | re.VERBOSE,
)


def substitute(text: str, settings: Mapping[str, str], max_bytes: int) -> str:
    """Replace ``${K}``, ``${hivevar:K}`` and ``${hiveconf:K}`` by settings, except unknown ones.

    :param max_bytes: maximum size of the text, before and after; 0 means no limit.
    :raises ServerError: STATEMENT_TOO_LARGE, before a larger text is built.
    """
    require_size(text, max_bytes)
    if "${" not in text or settings.get("spark.sql.variable.substitute", "").lower() == "false":
        return text
    replaced = 0

    def value(found: re.Match[str]) -> str:
        nonlocal replaced
        known = settings.get(found[1], found[0])
        replaced += len(known)
        if max_bytes and replaced > max_bytes:
            raise _too_large(f"more than {max_bytes}", max_bytes)
        return known

    whole = _VARIABLE.sub(value, text)
    require_size(whole, max_bytes)
    return whole


def require_size(text: str, max_bytes: int) -> None:
    """Reject a text of more than ``max_bytes`` in UTF-8; 0 means no limit.

    :raises ServerError: STATEMENT_TOO_LARGE.
    """
    if not max_bytes or len(text) * _MOST_BYTES <= max_bytes:
        return
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > max_bytes:
        raise _too_large(size, max_bytes)


def require_tokens(text: str, max_tokens: int) -> None:
    """Reject a text of more than ``max_tokens`` words, numbers, literals and signs.

    Spark's parser takes memory and time for each of them, and little for the bytes of a long
    literal. Time is linear in the length of the text.

    :param max_tokens: 0 means no limit.
    :raises ServerError: STATEMENT_TOO_LARGE.
    """
    if not max_tokens or len(text) <= max_tokens:
        return
    if next(islice(_TOKEN.finditer(text), max_tokens, None), None) is not None:
        raise error(
            Code.STATEMENT_TOO_LARGE,
            size=f"more than {max_tokens} words, numbers and signs",
            limit=max_tokens,
            key="engine.max_statement_tokens",
        )


def _too_large(size: int | str, max_bytes: int) -> ServerError:
    return error(
        Code.STATEMENT_TOO_LARGE,
        size=f"{size} bytes",
        limit=max_bytes,
        key="engine.max_statement_bytes",
    )
