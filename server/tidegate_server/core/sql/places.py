"""Finds the position of a name in a statement that was already parsed."""

from __future__ import annotations

from tidegate_server.core.sql.cursor import Cursor, position
from tidegate_server.core.sql.dialect import tokenize


def place_of(text: str, name: str, *clause: str) -> tuple[int, int] | None:
    """Return line and column of the first mention of a name after the words of a clause.

    The clause is that of a statement's own part, which comes before any query.
    """
    tokens = tokenize(text)
    at = Cursor(text, tokens)
    while not at.ended and not at.accept(*clause):
        at.advance()
    while not at.ended:
        if at.sees_name() and (at.word() or "").lower() == name.lower():
            return position(text, at.offset)
        at.advance()
    return None


def place_of_table(text: str, table: str) -> tuple[int, int] | None:
    """Return line and column where a table is first named, with or without what qualifies it.

    :param table: the last part of its name.
    """
    at = Cursor(text, tokenize(text))
    start: int | None = None
    while not at.ended:
        if at.sees_name():
            start = at.offset if start is None else start
            last = (at.word() or "").lower() == table.lower()
            at.advance()
            if at.accept("."):
                continue
            if last:
                return position(text, start)
        else:
            at.advance()
        start = None
    return None


def place_after(text: str, *words: str) -> tuple[int, int] | tuple[None, None]:
    """Return line and column of what follows the first mention of some words."""
    at = Cursor(text, tokenize(text))
    while not at.ended:
        if at.accept(*words):
            return position(text, at.offset)
        at.advance()
    return None, None
