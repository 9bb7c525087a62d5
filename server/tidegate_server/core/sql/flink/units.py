"""The translated pieces of one level of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegate_server.core.sql.flink.output import Part, Parts, verbatim

KEYWORDS = frozenset(
    {"ALL", "AND", "ANTI", "ANY", "AS", "ASC", "BETWEEN", "BY", "CASE"}
    | {"CROSS", "CUBE", "DELETE", "DESC", "DISTINCT", "ELSE", "END", "ESCAPE", "EXCEPT"}
    | {"EXISTS", "FETCH", "FOR", "FROM", "FULL", "GROUP", "HAVING", "ILIKE"}
    | {"IN", "INNER", "INSERT", "INTERSECT", "INTO", "IS", "JOIN", "LATERAL", "LIKE"}
    | {"LIMIT", "MERGE", "MINUS", "NATURAL", "NOT", "NULLS", "OFFSET", "ON", "OR"}
    | {"ORDER", "OUTER", "OVER", "PARTITION", "QUALIFY", "RLIKE", "ROLLUP", "SELECT", "SEMI"}
    | {"SET", "SETS", "SIMILAR", "SOME", "TABLE", "TABLESAMPLE", "THEN", "UNION", "UPDATE"}
    | {"USING", "VALUES", "WHEN", "WHERE", "WINDOW", "WITH"}
)
"""Words that are neither names nor functions."""


@dataclass(slots=True)
class Unit:
    """A translated piece of one level: an operand, a keyword or a symbol."""

    start: int
    end: int
    parts: Parts
    word: str = ""
    operand: bool = False
    literal: str | None = None
    """The value of a string literal."""


@dataclass(slots=True)
class Frame:
    """What is known of the level that is being translated."""

    has_query: bool
    units: list[Unit] = field(default_factory=list)
    clause: str = ""
    required: list[tuple[int, Parts]] = field(default_factory=list)
    """Times that must not be NULL, each with the number of the unit that says so."""


def is_keyword(unit: Unit, word: str) -> bool:
    """Return whether a unit is a bare keyword or symbol."""
    return unit.word == word and not unit.operand


def joined(text: str, first: Unit, second: Unit) -> Unit:
    """Return two neighbours as one operand."""
    parts = (*first.parts, *verbatim(text, first.end, second.start), *second.parts)
    return Unit(first.start, second.end, parts, operand=True)


def in_a_row(text: str, units: Sequence[Unit], start: int, end: int) -> Parts:
    """Return units with what is between them, for a range of the text."""
    parts: list[Part] = []
    at = start
    for unit in units:
        parts += verbatim(text, at, unit.start)
        parts += unit.parts
        at = max(at, unit.end)
    return (*parts, *verbatim(text, at, end))
