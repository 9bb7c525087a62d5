"""Finds tokens in Spark SQL outside of literals, quoted names and comments.

The rules are those of Spark 4's lexer: ``'…'`` and ``"…"`` with backslash escapes, ``r'…'`` and
``R"…"`` without them, names in backticks, ``--`` comments that end with their line unless a
backslash continues it, and ``/* … */`` comments, which nest. ``/*+ … */`` is a hint, whose text is
SQL. There is no dollar quoting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

RAW: Final = r"""(?<!\w)[rR](?:'[^']*+'|"[^"]*+")"""
"""A string literal without escapes, as the source of a regular expression."""
QUOTED: Final = r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+"|`[^`]*+`"""
"""A string literal or a quoted name; a doubled quote reads as two of them, which ends the same."""
LINE_COMMENT: Final = r"--(?:\\\n|[^\r\n])*+"
"""A comment up to the end of its line."""

OPAQUE: Final = "opaque"
"""The kind of the tokens that are literals, quoted names and comments."""
UNCLOSED: Final = "unclosed"
"""The kind of the last token where a literal or a quoted name has no end."""

_BRACKET = re.compile(r"/\*(?!\+)|\*/")


@dataclass(frozen=True, slots=True)
class Token:
    """A match: the name of its group, its text, its offsets."""

    kind: str
    text: str
    start: int
    end: int


def compile_tokens(own: str) -> re.Pattern[str]:
    """Return a pattern for :func:`find_tokens`.

    ``own`` is the source, in verbose form, of alternatives that are named groups.
    """
    opaque = f"(?P<{OPAQUE}>{RAW}|{QUOTED}|{LINE_COMMENT}) | (?P<bracket>/\\*(?!\\+))"
    # The end of a hint is one token: "*/*" does not begin a comment.
    rest = f"(?P<{UNCLOSED}>['\"`]) | (?P<hint_end>\\*/) | {own}"
    return re.compile(f"{opaque} | {rest}", re.VERBOSE | re.DOTALL)


def find_tokens(pattern: re.Pattern[str], sql: str, start: int = 0) -> Iterator[Token]:
    """Yield the tokens from ``start`` on in order; literals and comments are ``OPAQUE``."""
    while (found := pattern.search(sql, start)) is not None:
        kind, end = found.lastgroup or OPAQUE, found.end()
        if kind == "bracket":
            closed = comment_end(sql, end)
            kind, end = OPAQUE, len(sql) if closed is None else closed
        elif kind == UNCLOSED:
            end = len(sql)
        yield Token(kind, sql[found.start() : end], found.start(), end)
        start = end


_WILDCARD = re.compile(r"[\\%_]")
_SIGNIFICANT = compile_tokens(r"(?P<word>\w++) | (?P<sign>\S)")


def significant_tokens(sql: str) -> Iterator[Token]:
    """Yield the words, signs, literals and quoted names of a statement, but no comments."""
    name: Token | None = None
    for token in find_tokens(_SIGNIFICANT, sql):
        quoted = token.kind == OPAQUE and token.text.startswith("`")
        if name is not None:
            if quoted and name.end == token.start:
                # A doubled backtick stays inside a name; the pattern reads two names.
                name = Token(OPAQUE, name.text + token.text, name.start, token.end)
                continue
            yield name
        name = token if quoted else None
        if not quoted and not (token.kind == OPAQUE and token.text.startswith(("--", "/*"))):
            yield token
    if name is not None:
        yield name


def name_of(token: Token) -> str | None:
    """Return the name that a significant token is, unquoted; None if it is something else."""
    if token.kind == OPAQUE and token.text.startswith("`"):
        return unquote_name(token.text)
    return token.text if token.kind == "word" else None


def quote_name(name: str) -> str:
    """Return a name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def unquote_name(text: str) -> str:
    """Return a name as written in a statement without its backticks, if it has any."""
    return text[1:-1].replace("``", "`") if text.startswith("`") else text


def escape_pattern(name: str) -> str:
    """Return a pattern of LIKE, or of a metadata call, that matches this name only."""
    return _WILDCARD.sub(r"\\\g<0>", name)


def comment_end(sql: str, start: int) -> int | None:
    """Return the offset after the comment whose ``/*`` ends at ``start``, None if it is open."""
    depth = 1
    for found in _BRACKET.finditer(sql, start):
        depth += 1 if found.group() == "/*" else -1
        if depth == 0:
            return found.end()
    return None
