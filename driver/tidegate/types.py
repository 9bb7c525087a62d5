"""Type objects, constructors of PEP 249, SQL types as Python values."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any, Final

from tidegate.errors import DataError


class TypeObject:
    """A group of SQL types that compares equal to the ``type_code`` of each member."""

    def __init__(self, name: str, *members: str) -> None:
        self.name = name
        self.members = frozenset(members)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TypeObject):
            return self.members == other.members
        return other in self.members

    def __hash__(self) -> int:
        return hash(self.members)

    def __repr__(self) -> str:
        return f"tidegate.{self.name}"


STRING: Final = TypeObject(
    "STRING",
    *("STRING", "VARCHAR", "CHAR", "INTERVAL_YEAR_MONTH", "USER_DEFINED", "NULL"),
    *("ARRAY", "MAP", "STRUCT", "UNIONTYPE"),
)
BINARY: Final = TypeObject("BINARY", "BINARY")
NUMBER: Final = TypeObject(
    "NUMBER",
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"),
)
DATETIME: Final = TypeObject(
    "DATETIME", "DATE", "TIMESTAMP", "TIMESTAMPLOCALTZ", "INTERVAL_DAY_TIME"
)
ROWID: Final = TypeObject("ROWID")


class NestedType:
    """The ``type_code`` of an ARRAY, MAP or STRUCT: equal to that name, but not a ``str``.

    Libraries such as polars derive a scalar type from the text of a type code.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NestedType):
            return self.name == other.name
        return self.name == other if isinstance(other, str) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return repr(self.name)


_NESTED: Final = {name: NestedType(name) for name in ("ARRAY", "MAP", "STRUCT", "UNIONTYPE")}


def type_code(name: str) -> str | NestedType:
    """Return the ``type_code`` of ``Cursor.description`` for a SQL type's name."""
    return _NESTED.get(name, name)


Date = date
Time = time_of_day
Timestamp = datetime
Binary = bytes


def DateFromTicks(ticks: float) -> date:  # noqa: N802 - PEP 249 names it so
    """Return the local date of ``ticks`` seconds since 1970."""
    return Date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> time_of_day:  # noqa: N802 - PEP 249 names it so
    """Return the local time of day of ``ticks`` seconds since 1970."""
    return Time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime:  # noqa: N802 - PEP 249 names it so
    """Return the local time of ``ticks`` seconds since 1970."""
    return Timestamp(*time.localtime(ticks)[:6])


_DAY_TIME = re.compile(r"^([+-]?)(\d+) (\d+):(\d+):(\d+)(?:\.(\d{1,9}))?$")


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise _beyond_python("DATE", text) from None


def _timestamp(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise _beyond_python("TIMESTAMP", text) from None


def _beyond_python(type_name: str, text: str) -> DataError:
    return DataError(
        f"the {type_name} {text!r} is outside of Python's years 1 to 9999",
        sqlstate="22008",
        hint="Select it as CAST(... AS STRING).",
    )


def _parse_json(text: str) -> Any:
    # Servers other than Tidegate print nested values in forms that are not JSON.
    try:
        return json.loads(text)
    except ValueError:
        return text


def _day_time(text: str) -> timedelta | str:
    found = _DAY_TIME.match(text)
    if found is None:
        return text
    sign, days, hours, minutes, seconds, fraction = found.groups()
    microseconds = int((fraction or "0").ljust(9, "0")) // 1000
    value = timedelta(
        days=int(days),
        hours=int(hours),
        minutes=int(minutes),
        seconds=int(seconds),
        microseconds=microseconds,
    )
    return -value if sign == "-" else value


CONVERTERS: Final[dict[str, Callable[[str], Any]]] = {
    "DECIMAL": Decimal,
    "DATE": _date,
    "TIMESTAMP": _timestamp,
    "INTERVAL_DAY_TIME": _day_time,
    "ARRAY": _parse_json,
    "MAP": _parse_json,
    "STRUCT": _parse_json,
}
"""How the text of a SQL type becomes a Python value; other types arrive as they are."""
