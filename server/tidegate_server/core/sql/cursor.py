"""A place in a token list that remembers what could have come next."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from sqlglot.tokenizer_core import Token, TokenType

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.secrets import SENSITIVE

_NAME = re.compile(r"\w+")
_STRINGS = (TokenType.STRING, TokenType.RAW_STRING)
_SHOWN = 40  # characters of an offending token in a message
_NEAR = 100  # characters before a literal in which the name of a secret may stand
_BACKTICKS = "Names are quoted with backticks: `name`."
ONE_BY_ONE = "Send one statement at a time; a second one begins here."


class Cursor:
    """Moves forward over the tokens of one statement; every step takes constant time."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.text = text
        self._tokens = tokens
        self._index = 0
        self._tried: list[str] = []

    # ---- looking ahead

    def token(self, ahead: int = 0) -> Token | None:
        """Return a token without moving, or None after the end."""
        at = self._index + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def spelling(self, ahead: int = 0) -> str:
        """Return a bare word in upper case or a symbol; empty for quoted things and the end."""
        token = self.token(ahead)
        if token is None or token.token_type in (*_STRINGS, TokenType.IDENTIFIER):
            return ""
        return token.text.upper() if token.text.isascii() else token.text

    def sees(self, *spellings: str) -> bool:
        """Return whether the next tokens are these words and symbols."""
        return all(self.spelling(i) == wanted for i, wanted in enumerate(spellings))

    def sees_name(self, ahead: int = 0) -> bool:
        """Return whether a token could be an identifier."""
        token = self.token(ahead)
        if token is None:
            return False
        if token.token_type is TokenType.IDENTIFIER:
            return bool(token.text)
        return token.token_type is TokenType.VAR and _NAME.fullmatch(token.text) is not None

    def word(self) -> str | None:
        """Return the name that comes next without stepping over it, or None."""
        token = self.token()
        return token.text if token is not None and self.sees_name() else None

    def sees_string(self, ahead: int = 0) -> bool:
        """Return whether a token is a string literal."""
        token = self.token(ahead)
        return token is not None and token.token_type in _STRINGS

    @property
    def ended(self) -> bool:
        """Whether no tokens are left."""
        return self._index >= len(self._tokens)

    # ---- moving

    def advance(self) -> Token:
        """Step over the next token, which must be there."""
        token = self._tokens[self._index]
        self._index += 1
        self._tried.clear()
        return token

    def accept(self, *spellings: str) -> bool:
        """Step over these words and symbols if they come next."""
        if not self.sees(*spellings):
            self._tried.append(" ".join(spellings))
            return False
        for _ in spellings:
            self.advance()
        return True

    def accept_any(self, *spellings: str) -> str | None:
        """Step over whichever of these comes next and return it."""
        return next((word for word in spellings if self.accept(*word.split())), None)

    def expect(self, *spellings: str) -> None:
        """Step over these words and symbols one after the other.

        :raises ServerError: PARSE_SYNTAX at the first that differs.
        """
        for spelling in spellings:
            if not self.accept(spelling):
                raise self.unexpected_token()

    def name(self, what: str = "a name") -> str:
        """Step over an identifier and return it."""
        if not self.sees_name():
            raise self.unexpected_token(what, hint=_BACKTICKS if self.sees_string() else "")
        return self.advance().text

    def string(self, what: str = "a string literal") -> str:
        """Step over a string literal and return its value."""
        if not self.sees_string():
            raise self.unexpected_token(what)
        return self.advance().text

    def integer(self, what: str = "a whole number") -> int:
        """Step over an unsigned whole number and return it."""
        token = self.token()
        if token is None or not _whole(token):
            raise self.unexpected_token(what)
        return int(self.advance().text)

    def end(self) -> None:
        """Check that nothing but semicolons is left."""
        more = False
        while self.accept(";"):
            more = True
        if not self.ended:
            raise self.unexpected_token("the end of the statement", hint=ONE_BY_ONE if more else "")

    # ---- slices of the text

    @property
    def offset(self) -> int:
        """Where the next token begins in the text, or the text's length."""
        token = self.token()
        return len(self.text) if token is None else token.start

    @property
    def passed(self) -> int:
        """Where the last token that was stepped over ends (exclusive)."""
        return self._tokens[self._index - 1].end + 1 if self._index else 0

    def start_of_last(self, tokens: int) -> int:
        """Return the offset of the first of the last ``tokens`` tokens that were stepped over."""
        return self._tokens[self._index - tokens].start

    def slice_until(self, *stops: str) -> str:
        """Step over tokens up to one of these spellings outside brackets; return their text."""
        start = self.offset
        depth = 0
        first = self._index
        while not self.ended:
            spelling = self.spelling()
            if depth == 0 and spelling in stops:
                break
            depth += _depth_change(spelling)
            if depth < 0:
                break
            self.advance()
        return self.text[start : self.passed] if self._index > first else ""

    # ---- errors

    def unexpected_token(self, *wanted: str, hint: str = "") -> ServerError:
        """Return the syntax error at the next token; it lists everything that was tried there."""
        expected = list(dict.fromkeys((*self._tried, *wanted)))
        hint = hint or _suggestion(self.spelling(), expected)
        token = self.token()
        found = "the end of the statement" if token is None else shorten(self._shown(token))
        return self.failure(
            Code.PARSE_SYNTAX, found=found, expected=_alternatives(expected), hint=hint
        )

    def _shown(self, token: Token) -> str:
        """Return a token's text; a secret is not repeated in an error, which may be logged."""
        text = self.text[token.start : token.end + 1]
        before = self.text[max(0, token.start - _NEAR) : token.start]
        secret = token.token_type in _STRINGS and SENSITIVE.search(before) is not None
        return "a string literal" if secret else text

    def failure(self, code: Code, *, offset: int | None = None, **facts: str) -> ServerError:
        """Return an error placed at a character offset; at the next token when left out."""
        line, column = position(self.text, self.offset if offset is None else offset)
        return error(code, line=line, column=column, **facts)


def position(text: str, offset: int) -> tuple[int, int]:
    """Return line and column, from 1, of a character offset."""
    line_start = text.rfind("\n", 0, offset) + 1
    return text.count("\n", 0, offset) + 1, offset - line_start + 1


def shorten(text: str) -> str:
    """Return the beginning of ``text`` on one line, for a message."""
    flat = " ".join(text[: 4 * _SHOWN].split())
    return flat if len(flat) <= _SHOWN else flat[: _SHOWN - 1] + "…"


def _whole(token: Token) -> bool:
    text = token.text
    return (
        token.token_type is TokenType.NUMBER
        and text.isascii()
        and text.isdigit()
        and len(text) < 19
    )


def _depth_change(spelling: str) -> int:
    if spelling in ("(", "[", "{"):
        return 1
    return -1 if spelling in (")", "]", "}") else 0


def _suggestion(found: str, expected: list[str]) -> str:
    if not found[:1].isalpha() or len(found) > _SHOWN:
        return ""
    words = [word for word in expected if word.isupper()]
    near = get_close_matches(found, words, n=1, cutoff=0.75)
    return f"Did you mean {near[0]}?" if near else ""


def _alternatives(words: list[str]) -> str:
    if len(words) <= 1:
        return words[0] if words else "something else"
    return ", ".join(words[:-1]) + " or " + words[-1]
