"""The condition of an ASSERT as Spark reads it.

``row_count`` is the number of rows: an unquoted word that is neither a function nor a part of a
longer name. ``previous(x)`` is ``x`` over the served version. Everything else is Spark SQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from tidegate_server.core.sql.dialect import tokenize

ROW_COUNT = "row_count"
_PREVIOUS = "PREVIOUS"


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A place in a condition where something else is expected."""

    offset: int
    found: str
    expected: str


def find_misplaced(condition: str) -> Misplaced | None:
    """Return the first wrong use of ``previous``, or None."""
    tokens = tokenize(condition)
    end = -1
    for call in _calls(tokens):
        if call.opens + 1 == call.closes:
            return _wrong(condition, tokens[call.closes], "an aggregate")
        if call.opens < end:
            inside = "an aggregate of the served version, without a nested previous"
            return _wrong(condition, tokens[call.opens - 1], inside)
        end = max(end, call.closes)
    return None


def measures(condition: str) -> tuple[str, ...]:
    """Return the expressions by which the versions are compared; by default the row count."""
    tokens = tokenize(condition)
    found = (
        condition[tokens[c.opens].end + 1 : tokens[c.closes].start].strip() for c in _calls(tokens)
    )
    return tuple(dict.fromkeys(found)) or (ROW_COUNT,)


def spark_condition(condition: str, served: str) -> str:
    """Return the condition over aggregates of the rows it will be selected from.

    :param served: the relation after FROM that reads the served version.
    """
    tokens = tokenize(condition)
    edits = {i: "count(1)" for i in range(len(tokens)) if _is_row_count(tokens, i)}
    for call in _calls(tokens):
        edits |= {call.opens - 1: "", call.opens: "(SELECT ", call.closes: f"\n FROM {served})"}
    text, at = "", 0
    for index, written in sorted(edits.items()):
        text += condition[at : tokens[index].start] + written
        at = tokens[index].end + 1
    return text + condition[at:]


@dataclass(frozen=True, slots=True)
class _Call:
    """The brackets of one ``previous(...)``, as token indexes."""

    opens: int
    closes: int


def _calls(tokens: list[Token]) -> Iterator[_Call]:
    for index in range(len(tokens) - 1):
        opens = index + 1
        if _is_word(tokens, index, _PREVIOUS) and tokens[opens].token_type is TokenType.L_PAREN:
            depth = 0
            for closes in range(opens, len(tokens)):
                kind = tokens[closes].token_type
                depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
                if depth == 0:
                    yield _Call(opens, closes)
                    break


def _is_row_count(tokens: list[Token], index: int) -> bool:
    following = tokens[index + 1].token_type if index + 1 < len(tokens) else None
    alone = following not in (TokenType.DOT, TokenType.L_PAREN)
    return alone and _is_word(tokens, index, ROW_COUNT.upper())


def _is_word(tokens: list[Token], index: int, word: str) -> bool:
    token = tokens[index]
    part = index > 0 and tokens[index - 1].token_type is TokenType.DOT
    return token.token_type is TokenType.VAR and token.text.upper() == word and not part


def _wrong(condition: str, token: Token, expected: str) -> Misplaced:
    return Misplaced(token.start, condition[token.start : token.end + 1], expected)
