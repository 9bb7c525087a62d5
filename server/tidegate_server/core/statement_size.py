"""How large the text of a statement may be; judged before anything parses it."""

from __future__ import annotations

import re
from itertools import islice

from tidegate_server.core.errors import Code, ServerError, error

_MOST_BYTES = 4
"""Of one character in UTF-8."""
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


def require_size(text: str, max_bytes: int) -> None:
    """Reject a text of more than ``max_bytes`` in UTF-8; 0 means no limit.

    :raises ServerError: STATEMENT_TOO_LARGE.
    """
    if not max_bytes or len(text) * _MOST_BYTES <= max_bytes:
        return
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > max_bytes:
        raise too_large(size, max_bytes)


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


def too_large(size: int | str, max_bytes: int) -> ServerError:
    """Return the error for a text of ``size`` bytes."""
    return error(
        Code.STATEMENT_TOO_LARGE,
        size=f"{size} bytes",
        limit=max_bytes,
        key="engine.max_statement_bytes",
    )
