"""Puts the literals of Python values where a statement has its markers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidegate.errors import ProgrammingError
from tidegate.lexical import OPAQUE, UNCLOSED, Token, compile_tokens, find_tokens
from tidegate.literals import literal

Parameters = Mapping[str, Any] | Sequence[Any]

_TOKEN = compile_tokens(
    r"""
      (?P<named> %\([^)]*\)s ) | (?P<format> %s ) | (?P<percent> %% ) | (?P<stray> % )
    | (?P<qmark> \? )
    """
)
_MARKERS = frozenset({"named", "format", "qmark"})


def bind(sql: str, parameters: Parameters) -> str:
    """Return ``sql`` with its markers replaced by literals.

    Markers are ``%(name)s`` with a mapping, ``%s`` or ``?`` with a sequence; none is looked for
    in string literals, quoted names and comments. Except with ``?``, a percent sign is written
    ``%%``, as PEP 249's pyformat wants.

    :raises ProgrammingError: if markers and parameters do not fit together.
    :raises DataError: if a value has no literal.
    """
    return Template(sql).bind(parameters)


class Template:
    """A statement with markers, which can be bound many times."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self._tokens = tuple(find_tokens(_TOKEN, sql))
        self._kinds = frozenset(token.kind for token in self._tokens)

    @property
    def has_markers(self) -> bool:
        """Whether there is a marker outside of literals, quoted names and comments."""
        return not self._kinds.isdisjoint(_MARKERS)

    @property
    def uses_question_marks(self) -> bool:
        """Whether its markers are ``?``, so that a percent sign is only a percent sign."""
        return "qmark" in self._kinds and self._kinds.isdisjoint(("format", "named"))

    def bind(self, parameters: Parameters) -> str:
        """Return the statement with these values; raises as :func:`bind`."""
        if UNCLOSED in self._kinds:
            last = self._tokens[-1]
            raise ProgrammingError(
                f"the quote {last.text[0]} at character {last.start + 1} is not closed",
                sqlstate="42601",
            )
        if isinstance(parameters, Mapping):
            return self._bind_named(parameters)
        if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence):
            raise ProgrammingError(
                f"parameters are a mapping or a sequence, not {type(parameters).__name__}",
                hint="Write (value,) for a single parameter.",
            )
        return self._bind_positional(parameters)

    def _bind_named(self, parameters: Mapping[str, Any]) -> str:
        def replace(token: Token) -> str:
            if token.kind != "named":
                return _plain(token, "format")
            name = token.text[2:-2]
            if name not in parameters:
                raise ProgrammingError(f"the statement needs a parameter named {name!r}")
            return literal(parameters[name])

        return self._replace(replace)

    def _bind_positional(self, parameters: Sequence[Any]) -> str:
        marks = "qmark" if "qmark" in self._kinds and "format" not in self._kinds else "format"
        values = iter(parameters)
        wanted = sum(token.kind == marks for token in self._tokens)

        def replace(token: Token) -> str:
            if token.kind == marks:
                return literal(next(values, None))
            return token.text if marks == "qmark" else _plain(token, "named")

        bound = self._replace(replace)
        if wanted != len(parameters):
            raise ProgrammingError(
                f"markers in the statement: {wanted}, parameters given: {len(parameters)}"
            )
        return bound

    def _replace(self, replace: Callable[[Token], str]) -> str:
        pieces: list[str] = []
        position = 0
        for token in self._tokens:
            pieces += (self.sql[position : token.start], replace(token))
            position = token.end
        return "".join([*pieces, self.sql[position:]])


def _plain(token: Token, foreign: str) -> str:
    if token.kind == OPAQUE:
        return token.text.replace("%%", "%")
    if token.kind == "percent":
        return "%"
    if token.kind == "stray":
        raise ProgrammingError(
            f"a percent sign at character {token.start + 1} is not a marker",
            hint="Write %% for a percent sign when the statement has parameters.",
        )
    if token.kind == foreign:
        given = "a mapping" if foreign == "format" else "a sequence"
        raise ProgrammingError(f"the marker {token.text} does not go with {given} of parameters")
    return token.text
