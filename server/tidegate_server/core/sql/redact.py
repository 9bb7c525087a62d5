"""Replaces passwords, keys and tokens in SQL and other text before it is written anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from tidegate_server.core.model.secrets import REDACTED, SENSITIVE, SENSITIVE_NAME, is_sensitive
from tidegate_server.core.sql.dialect import readable

# What follows such a name, each in linear time. Groups are not possessive, since Python before
# 3.11.5 matches those wrongly.
_WORD = re.compile(r"[\w.\-]*+")
_REST = r"\\*+[`'\"]?+"
_LITERAL = r"""[rRnN]?(?:'(?:[^'\\]|\\(?:.|\Z)|'')*(?:'|\Z)|"(?:[^"\\]|\\(?:.|\Z)|"")*(?:"|\Z))"""
_LITERALS = rf"(?P<value>\\*+{_LITERAL}(?:\s*+{_LITERAL})*)"
_QUOTED_VALUE = re.compile(
    rf"{_REST}(?:\s++(?:=>|==|[=:,])?|=>|==|[=:,])\s*+{_LITERALS}", re.DOTALL
)
"""``password 'x'``, ``"password" => "x"``, ``{"password": "x"}``, ``map('password', 'x')``."""
_BARE_VALUE = re.compile(rf"{_REST}(?:=>|==|=|:\s?)(?P<value>(?:\{{[^}}]*\}})?[^\s&;'\"`]*+)")
"""``password=x`` in URLs and messages, ``password={x;y}`` of SQL Server."""
_NUMBER = re.compile(rf"{_REST}(?:\s++(?:=>|==|=)?|=>|==|=)\s*+(?P<value>[+-]?\d[\w.]*+)")
"""``password 1234``."""
_ADJACENT_VALUE = re.compile(rf"`?+{_LITERALS}", re.DOTALL)
"""``password'x'``. In SQL that can be read, the tokens show it better."""

_SET = re.compile(r"(?i:\bset)\s++(?P<name>[^\s=;]++)\s*+=[^\S\n]*+(?P<value>[^\s'\"][^\n]*+)")
"""``SET a.password = x y z``."""
_USER_INFO = re.compile(
    r"://[^\s/:@'\"]*+:(?!\d{1,5}[/?#])(?P<value>(?:[^\s'\"\\]++|\\.|'')+)", re.DOTALL
)
"""``https://user:password@host``, but not ``https://host:80/?mail=a@b``."""
_OTHERS = (
    re.compile(r"(?i:jdbc:oracle):\w+:[^\s/@'\"]++/(?P<value>[^\s@'\"]++)@"),
    re.compile(
        r"(?i:\bauthorization)\W{1,6}(?i:basic|bearer|negotiate|digest)\s++(?P<value>[^\s'\",;]++)"
    ),
)
_HINT = re.compile(rf"{SENSITIVE_NAME}|authorization|@", re.IGNORECASE)
"""Found in every text that has something to replace."""

_STRINGS = (TokenType.STRING, TokenType.RAW_STRING, TokenType.NATIONAL_STRING)
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET)
_ENDING = (TokenType.COMMA, TokenType.SEMICOLON)
_CLAUSES = frozenset(
    ("AND", "AS", "COMMENT", "FROM", "GROUP", "HAVING", "JOIN", "LIMIT", "LOCATION", "ON", "OR")
    + ("ORDER", "SELECT", "UNION", "USING", "WHERE")
)
"""Words that end an expression."""
_LONGEST = 1 << 15

Span = tuple[int, int]


def redact(text: str) -> str:
    """Return ``text`` with passwords, keys and tokens replaced.

    Each name of an option is looked at on its own, so that no unbalanced quote, as in a message
    around a statement, can hide a value. Tokens, as far as the text has some, show values that are
    expressions. In doubt a harmless value is replaced too.
    """
    return _replace(text, _spans(text))


def redact_start(text: str) -> str:
    """Return the beginning of a statement, redacted; long enough for every message."""
    return redact(text[:_LONGEST])


def secrets_in(statement: str) -> tuple[str, ...]:
    """Return what :func:`redact_start` replaces, to find it in messages without its name.

    Values of one or two characters are left out: they occur everywhere.
    """
    text = statement[:_LONGEST]
    found = {text[start:stop] for start, stop in _spans(text)}
    return tuple(sorted((each for each in found if len(each) > 2), key=len, reverse=True))


def without(secrets: Iterable[str], text: str) -> str:
    """Return ``text`` redacted, and with each of ``secrets`` replaced wherever it occurs."""
    text = redact(text)
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text


def _spans(text: str) -> list[Span]:
    """Return where the secrets of a text are; the spans may overlap."""
    return [*_pattern_spans(text), *_token_spans(text)] if _HINT.search(text) else []


def _replace(text: str, spans: Iterable[Span]) -> str:
    parts: list[str] = []
    end = 0
    for start, stop in sorted(spans):
        if stop <= end:
            continue
        if start >= end:
            parts += text[end:start], REDACTED
        end = stop
    return "".join((*parts, text[end:]))


def _pattern_spans(text: str) -> Iterator[Span]:
    """Yield values by their surroundings alone."""
    yield from _named_spans(text, (_QUOTED_VALUE, _BARE_VALUE, _NUMBER))
    for found in _SET.finditer(text):
        if is_sensitive(found["name"]):
            yield found.span("value")
    for found in _USER_INFO.finditer(text):
        start = found.start("value")
        end = text.rfind("@", start, found.end("value"))
        if end > start:
            yield start, end
    for pattern in _OTHERS:
        for found in pattern.finditer(text):
            yield found.span("value")


def _named_spans(text: str, patterns: Sequence[re.Pattern[str]]) -> Iterator[Span]:
    """Yield the values after names of secrets, also after those within other values."""
    ends = _name_ends(text)
    for pattern in patterns:
        covered = 0
        for end in ends:
            # A bare value that contains another name ends where that one's value ends.
            if pattern is _BARE_VALUE and end < covered:
                continue
            found = pattern.match(text, end)
            if found is None or not found["value"]:
                continue
            covered = max(covered, found.end())
            yield _unquoted(text, *found.span("value"))
            if covered == len(text):
                break


def _name_ends(text: str) -> list[int]:
    """Return where the words end that contain the name of a secret."""
    ends = [0]
    for name in SENSITIVE.finditer(text):
        if name.end() > ends[-1]:
            word = _WORD.match(text, name.end())
            ends.append(name.end() if word is None else word.end())
    return ends[1:]


def _token_spans(text: str) -> Iterator[Span]:
    tokens = readable(text)
    read = tokens[-1].end + 1 if tokens else 0
    yield from _option_spans(text, tokens)
    yield from _insert_spans(text, tokens)
    if text[read:].strip():
        yield from _named_spans(text, (_ADJACENT_VALUE,))


def _option_spans(text: str, tokens: Sequence[Token]) -> Iterator[Span]:
    """Yield the literals between the name of an option or column and the end of its expression."""
    depth = 0
    since: int | None = None
    previous: Token | None = None
    for token in tokens:
        kind = token.token_type
        if kind in _OPENING:
            depth += 1
        elif kind in _CLOSING:
            depth -= 1
        literal = kind in _STRINGS
        ends = not literal and (
            depth < (since or 0) or kind in _ENDING or token.text.upper() in _CLAUSES
        )
        if since is not None and literal:
            yield _unquoted(text, token.start, token.end + 1)
        elif since is None and is_sensitive(token.text):
            since = depth
        elif since is not None and ends and depth <= since and not _is_pair(previous, token):
            since = None
        previous = token


def _is_pair(name: Token | None, comma: Token) -> bool:
    """Return whether a comma separates a quoted name from its value, as in map('password', x)."""
    if name is None or comma.token_type is not TokenType.COMMA or name.token_type not in _STRINGS:
        return False
    return is_sensitive(name.text)


def _insert_spans(text: str, tokens: Sequence[Token]) -> Iterator[Span]:
    """Yield all literals of an INSERT whose list of columns contains the name of a secret."""
    if not tokens or tokens[0].text.upper() != "INSERT":
        return
    kinds = [token.token_type for token in tokens]
    if TokenType.L_PAREN not in kinds or TokenType.R_PAREN not in kinds:
        return
    first, last = kinds.index(TokenType.L_PAREN), kinds.index(TokenType.R_PAREN)
    if any(is_sensitive(token.text) for token in tokens[first:last]):
        for token in tokens[last:]:
            if token.token_type in _STRINGS:
                yield _unquoted(text, token.start, token.end + 1)
            elif token.token_type is TokenType.NUMBER:
                yield token.start, token.end + 1


def _unquoted(text: str, start: int, stop: int) -> Span:
    """Return the span within the quotes of a single literal, so that these stay."""
    value = text[start:stop]
    opening = re.match(r"\w?(['\"])", value)
    if opening is None:
        return start, stop
    quote, begun = opening[1], opening.end()
    if len(value) > begun and value.endswith(quote) and quote not in value[begun:-1]:
        return start + begun, stop - 1
    return start, stop
