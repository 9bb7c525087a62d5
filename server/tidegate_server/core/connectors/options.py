"""The options of connectors: which there are, and what values they take."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

_FIELD = re.compile(r"fields\.(?P<name>.+)\.(?P<key>[a-z-]+)")
_DURATION = re.compile(r"(\d+)\s*([a-zµ]*)", re.IGNORECASE)
_UNITS = {
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000_000),
    **dict.fromkeys(("min", "m", "minute", "minutes"), 60_000_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000_000),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1_000),
    **dict.fromkeys(("µs", "us", "micro", "micros", "microsecond", "microseconds"), 1),
}


class OptionError(Exception):
    """An option is unknown or its value is invalid; the message is a clause."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a table by key, and those of its fields by column and key, with parsed values."""

    table: Mapping[str, Any]
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class RefusedOptionError(Exception):
    """An option of Flink's that has no meaning here; the message says why."""


Parse = Callable[[str], Any]
"""Returns the value of an option; raises ValueError with what is expected."""


def read_options(
    given: Mapping[str, str],
    table: Mapping[str, Parse],
    fields: Mapping[str, Parse],
    columns: Mapping[str, str],
) -> Options:
    """Return options with their values.

    :param table: the options of the connector.
    :param fields: those it has for each column, as ``fields.COLUMN.KEY``.
    :param columns: the names of the columns by the names in lower case.
    :raises OptionError: naming the nearest known key.
    """
    of_table: dict[str, Any] = {}
    of_fields: dict[str, dict[str, Any]] = {}
    for key, text in given.items():
        match = _FIELD.fullmatch(key)
        if key in table:
            of_table[key] = _value(key, text, table[key])
        elif match is not None and match["key"] in fields:
            column = columns.get(match["name"].lower())
            if column is None:
                raise OptionError(f"{key} is about a column that the table has not")
            of_fields.setdefault(column, {})[match["key"]] = _value(key, text, fields[match["key"]])
        else:
            known = [*table, *(f"fields.{name}.{each}" for name in columns for each in fields)]
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
            meant = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(table))}"
            raise OptionError(f"{key} is not one of its options; {meant}")
    return Options(of_table, of_fields)


def unknown(what: str, name: str, known: Iterable[str]) -> OptionError:
    """Return the error for a name that is not one of those there are."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    meant = f"did you mean {near[0]}?" if near else f"there is {', '.join(sorted(known))}"
    return OptionError(f"there is no {what} {name}; {meant}")


def _value(key: str, text: str, parse: Parse) -> Any:
    try:
        return parse(text)
    except RefusedOptionError as error:
        raise OptionError(f"{key} cannot be set: {error}") from error
    except ValueError as error:
        raise OptionError(f"{key} must be {error}, not '{text}'") from error


# ---- kinds of values ---------------------------------------------------------------------------


def text(value: str) -> str:
    """Return the text itself."""
    return value


def count(value: str) -> int:
    """Return a whole number of at least 1."""
    if not value.strip().isdecimal() or int(value) < 1:
        raise ValueError("a whole number of at least 1")
    return int(value)


def whole(value: str) -> int:
    """Return a whole number."""
    try:
        return int(value)
    except ValueError:
        raise ValueError("a whole number") from None


def number(value: str) -> Decimal:
    """Return a finite number."""
    try:
        found = Decimal(value.strip())
    except InvalidOperation:
        raise ValueError("a number") from None
    if not found.is_finite():
        raise ValueError("a number")
    return found


def rate(value: str) -> float:
    """Return a share between 0 and 1."""
    found = float(number(value))
    if not 0 <= found <= 1:
        raise ValueError("a number between 0 and 1")
    return found


def flag(value: str) -> bool:
    """Return whether it is true."""
    if value.strip().lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.strip().lower() == "true"


def duration(value: str) -> int:
    """Return the microseconds of a duration such as ``5 min``; a number alone is milliseconds."""
    match = _DURATION.fullmatch(value.strip())
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ValueError("a duration such as '5 min'")
    return int(match[1]) * unit


def character(value: str) -> str:
    r"""Return a single character, which may be written as an escape such as ``\t``."""
    found = {"\\t": "\t", "\\n": "\n", "\\\\": "\\"}.get(value, value)
    if len(found) != 1:
        raise ValueError("one character")
    return found


def refused(reason: str) -> Parse:
    """Return what refuses an option that has no meaning here."""

    def parse(value: str) -> str:
        raise RefusedOptionError(reason)

    return parse


def one_of(*values: str) -> Parse:
    """Return what reads one of some words."""

    def parse(value: str) -> str:
        if value not in values:
            raise ValueError(" or ".join(values))
        return value

    return parse
