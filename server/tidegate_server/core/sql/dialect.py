"""Tidegate's SQL dialect: Spark's, with keywords left as plain words.

The meaning of a word depends on its place in a statement, so the grammar decides, not the
tokenizer. ``//`` begins a comment because Flink's tools allow it; this tokenizer only ever reads
Tidegate's own statements and the heads of others.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

_HEAD = 2048  # characters; ample for the leading words that identify a statement


class Tidegate(Spark):
    """Spark SQL plus materialized tables."""

    class Tokenizer(Spark.Tokenizer):
        COMMENTS: ClassVar[list[str | tuple[str, str]]] = ["--", "//", ("/*", "*/")]
        # Spark 4 reads '' inside a literal as one quote, as Flink does, and "" inside "…".
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']
        HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = []
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: kind
            for word, kind in Spark.Tokenizer.KEYWORDS.items()
            if not any(letter.isalpha() for letter in word) and "{" not in word and "/*" not in word
        }


def tokenize(text: str) -> list[Token]:
    """Split ``text`` into tokens.

    :raises sqlglot.errors.TokenError: if a quote or comment does not end.
    """
    return Tidegate().tokenize(text)


def head(text: str, wanted: int) -> list[Token]:
    """Return at least the first ``wanted`` tokens (all if there are fewer), however broken the
    rest is."""
    size = _HEAD
    while True:
        whole = size >= len(text)
        found = _readable(text[:size])
        if whole:
            return found
        if len(found) > wanted:
            return found[:-1]  # the last one may be cut
        size *= 4


def readable(text: str) -> list[Token]:
    """Return the tokens before the first unreadable place."""
    return _readable(text)


def _readable(text: str) -> list[Token]:
    tokenizer = Tidegate.Tokenizer(dialect=Tidegate)
    try:
        return tokenizer.tokenize(text)
    except TokenError:
        return list(tokenizer.tokens)
