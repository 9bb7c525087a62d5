"""Flink's tokens, nested by their brackets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql.dialect import Tidegate
from tidegate_server.core.sql.flink.failures import misread

_DEEPEST = 100
"""The most levels of brackets: they are translated recursively."""
_GAP = re.compile(r"--[^\n]*|//[^\n]*|/\*\+(?P<hint>.*?)\*/|/\*.*?\*/", re.DOTALL)
_CLOSING = {"(": ")", "[": "]"}
_DOUBLE_QUOTES = "Strings are written '...' and names `...`."


class Flink(Tidegate):
    """Flink's tokens: a backslash in a string is a character like any other."""

    class Tokenizer(Tidegate.Tokenizer):
        QUOTES: ClassVar[list[str | tuple[str, str]]] = ["'"]
        STRING_ESCAPES: ClassVar[list[str]] = ["'"]
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`", '"']
        RAW_STRINGS: ClassVar[list[str | tuple[str, str]]] = []


class Kind(Enum):
    """What an item is."""

    WORD = "word"
    NAME = "quoted name"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    GROUP = "brackets"
    HINT = "hint"


@dataclass(frozen=True, slots=True)
class Item:
    """A token, or everything between two brackets.

    ``start`` and ``end`` are offsets; ``value`` is a string's or a name's without its quotes.
    """

    kind: Kind
    start: int
    end: int
    value: str
    inner: tuple[Item, ...] = ()
    word: str = field(init=False)
    """A bare word in upper case or a symbol; of a group its opening bracket."""

    def __post_init__(self) -> None:
        # Asked for several times by every rule.
        word = self.value if self.kind in (Kind.WORD, Kind.SYMBOL, Kind.GROUP) else ""
        upper = self.kind is Kind.WORD and word.isascii()
        object.__setattr__(self, "word", word.upper() if upper else word)

    @property
    def named(self) -> bool:
        """Whether it could be a name."""
        return self.kind in (Kind.WORD, Kind.NAME)

    def opens(self, bracket: str) -> bool:
        """Return whether it is a group with this opening bracket."""
        return self.kind is Kind.GROUP and self.value == bracket


def items_of(text: str) -> tuple[Item, ...]:
    """Return a text's items.

    :raises ServerError: PARSE_SYNTAX for what does not end or is nested too deeply, and for a
        string in double quotes.
    """
    flat = iter(_flat(text))
    items, _ = _nest(flat, text, "", 0)
    return items


def hint_items(text: str, hint: Item) -> tuple[Item, ...]:
    """Return what is in a hint; offsets are those within it.

    :raises ServerError: PARSE_SYNTAX at the hint if it cannot be read.
    """
    try:
        return items_of(hint.value)
    except ServerError as problem:
        raise misread(text, hint.start, "a hint", "NAME(...), ...") from problem


def split(items: Sequence[Item], separator: str = ",") -> list[tuple[Item, ...]]:
    """Split items at a symbol; none of nothing."""
    parts: list[list[Item]] = [[]]
    for item in items:
        if item.kind is Kind.SYMBOL and item.value == separator:
            parts.append([])
        else:
            parts[-1].append(item)
    return [tuple(part) for part in parts] if items else []


def sees(items: Sequence[Item], at: int, *words: str) -> bool:
    """Return whether the items from a place on are these words and symbols."""
    if at + len(words) > len(items):
        return False
    return all(items[at + i].word == word for i, word in enumerate(words))


def _nest(flat: Iterator[Item], text: str, wanted: str, depth: int) -> tuple[tuple[Item, ...], int]:
    """Read up to a closing bracket; return what is before it, and where it ends."""
    if depth > _DEEPEST:
        found = next(flat, None)
        offset = len(text) if found is None else found.start
        expected = f"at most {_DEEPEST} levels of brackets"
        raise misread(text, offset, "brackets in brackets", expected)
    items: list[Item] = []
    for item in flat:
        if item.kind is Kind.SYMBOL and item.value in _CLOSING:
            inner, end = _nest(flat, text, _CLOSING[item.value], depth + 1)
            items.append(Item(Kind.GROUP, item.start, end, item.value, inner))
        elif item.kind is Kind.SYMBOL and item.value in _CLOSING.values():
            if item.value != wanted:
                raise misread(text, item.start, item.value, wanted or "no closing bracket")
            return tuple(items), item.end
        else:
            items.append(item)
    if wanted:
        raise misread(text, len(text), "the end of the statement", wanted)
    return tuple(items), len(text)


def _flat(text: str) -> list[Item]:
    found: list[Item] = []
    at = 0
    for token in _tokens(text):
        found += _hints(text, at, token.start)
        at = token.end + 1
        found.append(_item(text, token))
    return [*found, *_hints(text, at, len(text))]


def _item(text: str, token: Token) -> Item:
    start, end = token.start, token.end + 1
    source = text[start:end]
    if token.token_type is TokenType.STRING:
        return Item(Kind.STRING, start, end, token.text)
    if token.token_type is TokenType.IDENTIFIER:
        if source.startswith('"'):
            raise misread(text, start, '"', "a string or a name", _DOUBLE_QUOTES)
        return Item(Kind.NAME, start, end, token.text)
    if token.token_type is TokenType.NUMBER:
        return Item(Kind.NUMBER, start, end, source)
    if token.token_type is TokenType.VAR:
        return Item(Kind.WORD, start, end, source)
    return Item(Kind.SYMBOL, start, end, source)


def _hints(text: str, start: int, end: int) -> Iterator[Item]:
    if end - start > 4 and "/*+" in text[start:end]:
        for found in _GAP.finditer(text, start, end):
            if found["hint"] is not None:
                yield Item(Kind.HINT, found.start(), found.end(), found["hint"])


def _tokens(text: str) -> list[Token]:
    try:
        return Flink.Tokenizer(dialect=Flink).tokenize(text)
    except TokenError as problem:
        found = re.search(r"from \d+:(\d+)$", str(problem.__cause__))
        known = found is not None and int(found[1]) < len(text)
        offset = int(found[1]) if found is not None and known else max(text.rfind("/*"), 0)
        wrong = "an unfinished literal, quoted name or comment"
        raise misread(text, offset, wrong, "its end") from problem
