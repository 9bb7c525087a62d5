"""Operators whose meaning differs: division, and LIKE without ESCAPE."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate_server.core.sql.flink.failures import misread
from tidegate_server.core.sql.flink.literals import spark_string
from tidegate_server.core.sql.flink.output import made
from tidegate_server.core.sql.flink.units import Unit, joined

_PRODUCTS = ("*", "/", "%")
_KEYWORD = "A name that is a keyword is written in backticks."


def translate_operations(text: str, units: Sequence[Unit]) -> list[Unit]:
    """Translate divisions and LIKE, whose operands are units."""
    found: list[Unit] = []
    at = 0
    while at < len(units):
        unit = units[at]
        if unit.operand and at + 1 < len(units) and units[at + 1].word in _PRODUCTS:
            unit, at = _product(text, units, at, found)
            found.append(unit)
        elif unit.word == "LIKE" and not unit.operand:
            found.append(unit)
            at = _like(text, units, at + 1, found)
        elif unit.word == "/" and not unit.operand:
            # Passed on, it would be Spark's division.
            raise misread(text, unit.start, "/", "an operand on each side", _KEYWORD)
        else:
            found.append(unit)
            at += 1
    return found


def _product(text: str, units: Sequence[Unit], at: int, before: list[Unit]) -> tuple[Unit, int]:
    """Return a chain of *, / and % from the operand at a place, with its sign."""
    left = units[at]
    signed = before and before[-1].word in ("-", "+") and not before[-1].operand
    if signed and (len(before) == 1 or not before[-2].operand):
        left = joined(text, before.pop(), left)
    at += 1
    while at < len(units) and units[at].word in _PRODUCTS and not units[at].operand:
        operator, right, after = units[at], at + 1, at + 1
        while after < len(units) and units[after].word in ("-", "+") and not units[after].operand:
            after += 1
        if after >= len(units) or not units[after].operand:
            if operator.word != "/":
                break
            raise misread(text, operator.start, "/", "an operand on each side", _KEYWORD)
        factor = units[right]
        for each in units[right + 1 : after + 1]:
            factor = joined(text, factor, each)
        if operator.word == "/":
            parts = made(left.start, "flink_divide(", left.parts, ", ", factor.parts, ")")
            left = Unit(left.start, factor.end, parts, operand=True)
        else:
            left = joined(text, joined(text, left, operator), factor)
        at = after + 1
    return left, at


def _like(text: str, units: Sequence[Unit], at: int, found: list[Unit]) -> int:
    """Translate the pattern after LIKE: without ESCAPE a backslash in it escapes nothing."""
    end = at
    while end < len(units) and (units[end].operand or units[end].word in ("||", "+", "-")):
        end += 1
    pattern = units[at:end]
    escaped = end < len(units) and units[end].word == "ESCAPE"
    if not pattern or escaped or (len(pattern) == 1 and pattern[0].word in ("ALL", "ANY")):
        return at
    whole = pattern[0]
    for each in pattern[1:]:
        whole = joined(text, whole, each)
    literal = pattern[0].literal if len(pattern) == 1 else None
    if literal is None:
        whole.parts = made(whole.start, "replace(", whole.parts, r", '\\', '\\\\')")
    elif "\\" in literal:
        whole.parts = made(whole.start, spark_string(literal.replace("\\", "\\\\")))
    found.append(whole)
    return end
