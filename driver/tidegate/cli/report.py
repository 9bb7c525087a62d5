"""Errors as text with their position and hint."""

from __future__ import annotations

import re

from tidegate.cli.split import Part
from tidegate.errors import Error

_POSITION = re.compile(r"\(line (?P<line>\d+), (?P<word>column|pos) (?P<column>\d+)\)")


def describe_error(error: Error, part: Part | None = None, source: str | None = None) -> str:
    """Return the report of an error: state, code, message, the line with a caret, the hint.

    With ``source``, the name of a script, the report begins with ``source:line:``.
    """
    position = _position(str(error))
    lines = [_where(part, source, position) + _headline(error)]
    if part is not None and position is not None:
        lines += _caret(part.sql, *position)
    if error.hint:
        lines.append(f"HINT: {error.hint}")
    return "\n".join(lines)


def _headline(error: Error) -> str:
    message = str(error)
    words = ["ERROR"]
    if error.sqlstate:
        words.append(error.sqlstate)
    if error.code and f"[{error.code}" not in message:
        words.append(f"[{error.code}]")
    if error.hint:
        message = message.removesuffix(error.hint).rstrip()
    return " ".join([*words, message])


def _where(part: Part | None, source: str | None, position: tuple[int, int] | None) -> str:
    if part is None or source is None:
        return ""
    line = part.line + (position[0] - 1 if position else 0)
    return f"{source}:{line}: "


def _position(message: str) -> tuple[int, int] | None:
    """Return line and column, both from 1, of the first position the message names."""
    match = _POSITION.search(message)
    if match is None:
        return None
    # Spark counts "pos" from 0.
    from_zero = match["word"] == "pos"
    return int(match["line"]), int(match["column"]) + (1 if from_zero else 0)


def _caret(sql: str, line: int, column: int) -> list[str]:
    lines = sql.splitlines()
    if not 1 <= line <= len(lines):
        return []
    text = lines[line - 1].replace("\t", " ")
    if column > len(text) + 1:
        return []
    prefix = f"LINE {line}: "
    begin = max(0, column - 60)
    return [prefix + text[begin : begin + 100], " " * (len(prefix) + column - begin - 1) + "^"]
