"""How large and how deep the text of a statement may be; judged before anything parses it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.sql.cursor import position

MAX_NESTING: Final = 500
"""Brackets within brackets.

Spark's parser looks ahead over brackets, at each of them again. It takes seconds for a thousand
levels, minutes for ten thousand, and cannot be interrupted.
"""
MAX_CUBE: Final = 12
"""Elements of a CUBE. Spark writes out the grouping sets, 4096 for so many elements and twice as
many for one more; those within GROUPING SETS already while it parses. PostgreSQL and SQL Server
have the same limit."""
_CUBE = re.compile(r"\bcube\b", re.IGNORECASE)
_OPENING = frozenset("([<")
_BRACKETS = {"(": 1, "[": 1, ")": -1, "]": -1}
_GENERIC = frozenset({"array", "map", "struct"})
"""Words after which a ``<`` is a bracket."""
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


def require_parsable(text: str, max_tokens: int) -> None:
    """Reject a text that Spark's parser would take too much memory or time for.

    These grow with the words, numbers, literals and signs, and with the depth of brackets; the
    bytes of a long literal cost little. Time is linear in the length of the text.

    :param max_tokens: 0 means no limit.
    :raises ServerError: STATEMENT_TOO_LARGE or STATEMENT_TOO_COMPLEX.
    """
    known_to_fit = not max_tokens or len(text) <= max_tokens
    if not known_to_fit and next(islice(_TOKEN.finditer(text), max_tokens, None), None):
        raise error(
            Code.STATEMENT_TOO_LARGE,
            size=f"more than {max_tokens} words, numbers and signs",
            limit=max_tokens,
            key="engine.max_statement_tokens",
        )
    if sum(map(text.count, _OPENING)) > MAX_NESTING:
        _require_nesting(text)
    if _CUBE.search(text):
        _require_small_cubes(text)


def _require_nesting(text: str) -> None:
    depth = 0
    for offset, change in _brackets(text):
        depth += change
        if depth > MAX_NESTING:
            raise _too_complex(
                text, offset, f"its brackets are nested more than {MAX_NESTING} deep"
            )


def _require_small_cubes(text: str) -> None:
    opened: list[int | None] = []  # by bracket that is open, the offset of the CUBE before it
    elements: list[int] = []
    cube: int | None = None
    for found in _TOKEN.finditer(text):
        match found[0]:
            case "(" | "[" as token:
                opened.append(cube if token == "(" else None)
                elements.append(1)
            case ")" | "]" if opened:
                opened.pop()
                elements.pop()
            case "," if opened:
                elements[-1] += 1
                offset = opened[-1]
                if offset is not None and elements[-1] > MAX_CUBE:
                    raise _too_complex(text, offset, f"a CUBE has more than {MAX_CUBE} elements")
        if not found[0].startswith(("--", "/*")):
            cube = found.start() if _CUBE.fullmatch(found[0]) else None


def _too_complex(text: str, offset: int, reason: str) -> ServerError:
    line, column = position(text, offset)
    return error(Code.STATEMENT_TOO_COMPLEX, line=line, column=column, reason=reason)


def _brackets(text: str) -> Iterator[tuple[int, int]]:
    """Yield the offset of each bracket, with 1 if it opens and -1 if it closes."""
    generics, before = 0, ""
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in _BRACKETS:
            yield found.start(), _BRACKETS[token]
        elif token == "<" and before.lower() in _GENERIC:
            generics += 1
            yield found.start(), 1
        elif token == ">" and generics:
            generics -= 1
            yield found.start(), -1
        before = token


def too_large(size: int | str, max_bytes: int) -> ServerError:
    """Return the error for a text of ``size`` bytes."""
    return error(
        Code.STATEMENT_TOO_LARGE,
        size=f"{size} bytes",
        limit=max_bytes,
        key="engine.max_statement_bytes",
    )
