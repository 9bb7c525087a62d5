"""Python values as SQL literals, put where a statement has its markers."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from tidegate.errors import DataError, ProgrammingError

Parameters = Mapping[str, Any] | Sequence[Any]

_LARGEST_PRECISION: Final = 38

_TOKEN = re.compile(
    r"""
      (?P<quoted> '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*`
                | --[^\n]* | /\*.*?\*/ )
    | (?P<named> %\((?P<name>[^)]*)\)s )
    | (?P<format> %s )
    | (?P<percent> %% )
    | (?P<stray> % )
    | (?P<qmark> \? )
    """,
    re.VERBOSE | re.DOTALL,
)


def bind(sql: str, parameters: Parameters) -> str:
    """Return ``sql`` with its markers replaced by literals.

    Markers are ``%(name)s`` with a mapping, ``%s`` or ``?`` with a sequence; none is looked for
    in string literals, quoted names and comments. Except with ``?``, a percent sign is written
    ``%%``, as PEP 249's pyformat wants.

    :raises ProgrammingError: if markers and parameters do not fit together.
    :raises DataError: if a value has no literal.
    """
    if isinstance(parameters, Mapping):
        return _bind_named(sql, parameters)
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence):
        raise ProgrammingError(
            f"parameters are a mapping or a sequence, not {type(parameters).__name__}",
            hint="Write (value,) for a single parameter.",
        )
    kinds = {found.lastgroup for found in _TOKEN.finditer(sql)}
    marks = "qmark" if "qmark" in kinds and "format" not in kinds else "format"
    return _bind_positional(sql, parameters, marks)


def _bind_named(sql: str, parameters: Mapping[str, Any]) -> str:
    def replace(found: re.Match[str]) -> str:
        if found["name"] is None:
            return _plain(found, "format")
        if found["name"] not in parameters:
            raise ProgrammingError(f"the statement needs a parameter named {found['name']!r}")
        return literal(parameters[found["name"]])

    return _TOKEN.sub(replace, sql)


def _bind_positional(sql: str, parameters: Sequence[Any], marks: str) -> str:
    values = iter(parameters)
    wanted = 0

    def replace(found: re.Match[str]) -> str:
        nonlocal wanted
        if found[marks] is None:
            return found[0] if marks == "qmark" else _plain(found, "named")
        wanted += 1
        return literal(next(values, None))

    bound = _TOKEN.sub(replace, sql)
    if wanted != len(parameters):
        raise ProgrammingError(
            f"markers in the statement: {wanted}, parameters given: {len(parameters)}"
        )
    return bound


def _plain(found: re.Match[str], foreign: str) -> str:
    if found["quoted"] is not None:
        return found[0].replace("%%", "%")
    if found["percent"] is not None:
        return "%"
    if found["stray"] is not None:
        raise ProgrammingError(
            f"a percent sign at character {found.start() + 1} is no marker",
            hint="Write %% for a percent sign when the statement has parameters.",
        )
    if found[foreign] is not None:
        given = "a mapping" if foreign == "format" else "a sequence"
        raise ProgrammingError(f"the marker {found[0]} does not go with {given} of parameters")
    return found[0]


def literal(value: object) -> str:
    """Return the SQL literal of a Python value.

    :raises DataError: if the type or this value has none.
    """
    for base in type(value).__mro__:
        if base in _LITERALS:
            return _LITERALS[base](value)
    return _integer(_index(value))


def _index(value: object) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise DataError(f"no parameter can be of the type {type(value).__name__}") from None


def _null(value: None) -> str:
    return "NULL"


def _boolean(value: bool) -> str:
    return "TRUE" if value else "FALSE"


def _integer(value: int) -> str:
    # The blank keeps "1-%s" from becoming a comment.
    return f" {int(value)}" if value < 0 else str(int(value))


def _double(value: float) -> str:
    if not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f"CAST('{name}' AS DOUBLE)"
    text = f"{float.__repr__(value)}D"
    return f" {text}" if text.startswith("-") else text


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise DataError(f"DECIMAL has no {value}", hint="Pass float(value) for a DOUBLE.")
    text = format(value, "f")
    if sum(map(str.isdigit, text.lstrip("-0."))) > _LARGEST_PRECISION:
        raise DataError(f"{value} has more than the {_LARGEST_PRECISION} digits of DECIMAL")
    return f" {text}BD" if text.startswith("-") else f"{text}BD"


def _string(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"the string is not valid Unicode: {error.reason}") from None
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    # Spark replaces ${name} in the text of a statement, in literals too; \{ is read as {.
    return "'" + escaped.replace("${", "$\\{") + "'"


def _binary(value: bytes | bytearray | memoryview) -> str:
    return f"X'{bytes(value).hex().upper()}'"


def _date(value: date) -> str:
    return f"DATE '{value.isoformat()}'"


def _timestamp(value: datetime) -> str:
    offset = value.utcoffset()
    if offset is not None and offset.total_seconds() % 60:
        value = value.astimezone(UTC)
    return f"TIMESTAMP '{value.isoformat(sep=' ')}'"


def _time(value: time) -> str:
    return f"'{value.isoformat()}'"


def _interval(value: timedelta) -> str:
    sign = "-" if value < timedelta() else ""
    positive = abs(value)
    minutes, seconds = divmod(positive.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    clock = f"{hours:02}:{minutes:02}:{seconds:02}.{positive.microseconds:06}"
    return f"INTERVAL '{sign}{positive.days} {clock}' DAY TO SECOND"


def _list(value: Sequence[Any]) -> str:
    return f"array({', '.join(map(literal, value))})"


def _tuple(value: tuple[Any, ...]) -> str:
    # An empty IN list is no SQL; comparing with NULL finds nothing either.
    return f"({', '.join(map(literal, value)) or 'NULL'})"


def _map(value: Mapping[Any, Any]) -> str:
    pairs = (f"{literal(key)}, {literal(item)}" for key, item in value.items())
    return f"map({', '.join(pairs)})"


def _uuid(value: UUID) -> str:
    return f"'{value}'"


def _enum(value: Enum) -> str:
    return literal(value.value)


_LITERALS: Final[dict[type, Callable[[Any], str]]] = {
    type(None): _null,
    bool: _boolean,
    int: _integer,
    float: _double,
    Decimal: _decimal,
    str: _string,
    bytes: _binary,
    bytearray: _binary,
    memoryview: _binary,
    datetime: _timestamp,
    date: _date,
    time: _time,
    timedelta: _interval,
    list: _list,
    tuple: _tuple,
    dict: _map,
    UUID: _uuid,
    Enum: _enum,
}
