"""Python values as SQL literals.

numpy and pandas are not needed: their types are recognized by name.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from tidegate.errors import DataError

_LARGEST_PRECISION: Final = 38

Writer = Callable[[Any], str]


def literal(value: object) -> str:
    """Return the SQL literal of a Python value.

    :raises DataError: if the type or this value has none.
    """
    kind: type = type(value)
    return _writer(kind)(value)


def is_null(value: object) -> bool:
    """Return whether a value is written as NULL: None, pandas.NaT, pandas.NA."""
    kind: type = type(value)
    return _writer(kind) is _null


@lru_cache(maxsize=256)
def _writer(kind: type) -> Writer:
    for base in kind.__mro__:
        if base in _WRITERS:
            return _WRITERS[base]
        package = base.__module__.partition(".")[0]
        if (package, base.__name__) in _FOREIGN_WRITERS:
            return _FOREIGN_WRITERS[package, base.__name__]
    return _whole_number


def _whole_number(value: object) -> str:
    try:
        return _integer(operator.index(value))  # type: ignore[arg-type]
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
    whole, _, fraction = text.lstrip("-").partition(".")
    if len(whole.lstrip("0")) + len(fraction) > _LARGEST_PRECISION:
        raise DataError(
            f"{value} has more than the {_LARGEST_PRECISION} digits of DECIMAL",
            hint="Round it, or pass float(value) for a DOUBLE.",
        )
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


def _list(value: Iterable[Any]) -> str:
    return f"array({', '.join(map(literal, value))})"


def _tuple(value: tuple[Any, ...]) -> str:
    # An empty IN list is not valid SQL; comparing with NULL finds nothing either.
    return f"({', '.join(map(literal, value)) or 'NULL'})"


def _map(value: Mapping[Any, Any]) -> str:
    pairs = (f"{literal(key)}, {literal(item)}" for key, item in value.items())
    return f"map({', '.join(pairs)})"


def _uuid(value: UUID) -> str:
    return f"'{value}'"


def _enum(value: Enum) -> str:
    return literal(value.value)


def _numpy_scalar(value: Any) -> str:
    plain = value.item()
    if type(plain) is type(value):  # longdouble, which Python has no type for
        raise DataError(
            f"no parameter can be of the type {type(value).__name__}",
            hint="Pass float(value) for a DOUBLE.",
        )
    return literal(plain)


def _numpy_float(value: Any) -> str:
    """Write numpy.float32 and float16 as FLOAT: the same number, in the type it has."""
    if not math.isfinite(value):
        return _double(float(value)).replace("DOUBLE", "FLOAT")
    # str() has the fewest digits that read back as the same number of 32 bits.
    text = f"{value!s}F"
    return f" {text}" if text.startswith("-") else text


def _numpy_date(value: Any) -> str:
    """Write numpy.datetime64 in days or coarser as DATE, in finer units as TIMESTAMP."""
    plain = _in_microseconds(value).item()
    if plain is not None and not isinstance(plain, date):
        raise DataError(f"{value} is outside of Python's years 1 to 9999")
    return literal(plain)


def _numpy_duration(value: Any) -> str:
    """Write numpy.timedelta64 as a day-time interval."""
    plain = _in_microseconds(value).item()
    if plain is not None and not isinstance(plain, timedelta):
        raise DataError(
            f"the timedelta64 {value} is not a number of days and seconds in Python's range",
            hint="Pass a datetime.timedelta.",
        )
    return literal(plain)


def _in_microseconds(value: Any) -> Any:
    """Return a datetime64 or timedelta64 in microseconds if its unit is finer.

    Of finer units, and of values out of range, numpy's ``item`` returns a plain number.
    """
    kind, unit = value.dtype.str[1:3], value.dtype.str[4:-1]
    return value.astype(f"{kind}[us]") if unit.endswith(("ns", "ps", "fs", "as")) else value


def _numpy_array(value: Any) -> str:
    return literal(value[()]) if value.ndim == 0 else _list(value)


_WRITERS: Final[dict[type, Writer]] = {
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

_FOREIGN_WRITERS: Final[dict[tuple[str, str], Writer]] = {
    ("pandas", "NaTType"): _null,
    ("pandas", "NAType"): _null,
    ("numpy", "float32"): _numpy_float,
    ("numpy", "float16"): _numpy_float,
    ("numpy", "datetime64"): _numpy_date,
    ("numpy", "timedelta64"): _numpy_duration,
    ("numpy", "generic"): _numpy_scalar,
    ("numpy", "ndarray"): _numpy_array,
}
"""Writers by package and class name."""
