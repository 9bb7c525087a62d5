"""Interval literals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate_server.core.sql.flink.tokens import Item, Kind

_MICROS: Mapping[str, int] = {
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 7 * 86_400_000_000,
}
_MONTHS = frozenset({"MONTH", "QUARTER", "YEAR"})
_ORDER = ("DAY", "HOUR", "MINUTE", "SECOND")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Interval:
    """A literal; ``micros`` is None if it has months or cannot be read."""

    micros: int | None
    next: int
    """The index of the item after it."""
    skipped: tuple[Item, ...] = ()
    """The precisions in brackets, which Spark does not know."""

    @property
    def literal(self) -> str:
        """Spark's literal of the same length."""
        seconds, rest = divmod(abs(self.micros or 0), 1_000_000)
        sign = "-" if (self.micros or 0) < 0 else ""
        fraction = f".{rest:06d}".rstrip("0") if rest else ""
        return f"INTERVAL '{sign}{seconds}{fraction}' SECOND"


def unit_of(item: Item) -> str:
    """Return a unit of time in the singular; the word itself for another."""
    word = item.word
    return word[:-1] if word.endswith("S") and word[:-1] in (*_MICROS, *_MONTHS) else word


def interval(items: Sequence[Item], at: int) -> Interval | None:
    """Read INTERVAL ['+' | '-'] 'value' unit [TO unit] from ``at``; None if it is none."""
    if items[at].word != "INTERVAL":
        return None
    place, sign = at + 1, 1
    if place < len(items) and items[place].word in ("+", "-"):
        sign = -1 if items[place].word == "-" else 1
        place += 1
    if place + 1 >= len(items) or items[place].kind not in (Kind.STRING, Kind.NUMBER):
        return None
    value, place = items[place].value, place + 1
    first = unit_of(items[place])
    if first not in _MICROS and first not in _MONTHS:
        return None
    skipped: list[Item] = []
    place = _skip_precision(items, place + 1, skipped)
    last = first
    if place + 1 < len(items) and items[place].word == "TO":
        last = unit_of(items[place + 1])
        place = _skip_precision(items, place + 2, skipped)
    micros = _micros(value, first, last)
    return Interval(None if micros is None else sign * micros, place, tuple(skipped))


def _skip_precision(items: Sequence[Item], at: int, skipped: list[Item]) -> int:
    if at < len(items) and items[at].opens("("):
        skipped.append(items[at])
        return at + 1
    return at


def _micros(value: str, first: str, last: str) -> int | None:
    text = value.strip()
    negative = text.startswith("-")
    text = text.lstrip("+-").strip()
    if first in _MONTHS or last in _MONTHS:
        return None
    if first == last:
        numbers, units = [text], [first]
    elif first in _ORDER and last in _ORDER and _ORDER.index(first) < _ORDER.index(last):
        units = list(_ORDER[_ORDER.index(first) : _ORDER.index(last) + 1])
        numbers = re.split(r"[\s:]+", text)
    else:
        return None
    if len(numbers) != len(units) or not all(map(_NUMBER.fullmatch, numbers)):
        return None
    total = 0
    for number, unit in zip(numbers, units, strict=True):
        whole, _, fraction = number.partition(".")
        digits = int(fraction.ljust(6, "0")[:6]) if fraction else 0
        if digits and unit != "SECOND":
            return None
        total += int(whole) * _MICROS[unit] + digits
    return -total if negative else total
