"""Translated text whose parts know where they come from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from tidegate_server.core.sql.cursor import position


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the result; ``start`` is where it, or what it replaces, begins in the source."""

    text: str
    start: int
    verbatim: bool


Parts = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Translation:
    """A translated text and its source."""

    source: str
    parts: Parts

    @property
    def text(self) -> str:
        """The translated text."""
        return "".join(part.text for part in self.parts)

    def offset(self, offset: int) -> int:
        """Return where in the source a place in the translated text comes from."""
        begins, total = [], 0
        for part in self.parts:
            begins.append(total)
            total += len(part.text)
        if not self.parts:
            return 0
        at = max(bisect_right(begins, offset) - 1, 0)
        part = self.parts[at]
        found = part.start + (offset - begins[at] if part.verbatim else 0)
        return min(found, len(self.source))

    def place(self, line: int, column: int) -> tuple[int, int]:
        """Return the source's line and column of those in the translated text, all from 1."""
        text = self.text
        if text == self.source:
            return line, column
        start = 0
        for _ in range(line - 1):
            start = text.find("\n", start) + 1
        return position(self.source, self.offset(start + column - 1))


def verbatim(text: str, start: int, end: int) -> Parts:
    """Return a piece of the source."""
    return (Part(text[start:end], start, True),) if end > start else ()


def made(start: int, *pieces: str | Parts) -> Parts:
    """Return pieces in a row; the new ones come from ``start``."""
    parts: list[Part] = []
    for piece in pieces:
        if isinstance(piece, str):
            parts += [Part(piece, start, False)] if piece else []
        else:
            parts += piece
    return tuple(parts)


def text_of(parts: Iterable[Part]) -> str:
    """Return the text of parts."""
    return "".join(part.text for part in parts)


def compact(source: str, parts: Iterable[Part]) -> Parts:
    """Join neighbours that are neighbours in the source, too."""
    found: list[Part] = []
    begin = end = 0  # the range of the source that was not added yet
    for part in parts:
        if part.verbatim and (part.start == end or begin == end):
            begin = part.start if begin == end else begin
            end = part.start + len(part.text)
            continue
        found += verbatim(source, begin, end)
        begin = end = 0
        if part.verbatim:
            begin, end = part.start, part.start + len(part.text)
        else:
            found.append(part)
    return (*found, *verbatim(source, begin, end))
