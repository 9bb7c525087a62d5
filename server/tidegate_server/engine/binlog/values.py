"""Values of MySQL as texts that Spark casts to the declared types; pure.

A value is the same text whether it was read by a query or from the binlog.

https://nightlies.apache.org/flink/flink-cdc-docs-stable/docs/connectors/flink-sources/mysql-cdc/#data-type-mapping
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

READABLE: Final = frozenset(
    ("bigint", "binary", "bit", "blob", "char", "date", "datetime", "decimal", "double", "enum")
    + ("float", "int", "json", "longblob", "longtext", "mediumblob", "mediumint", "mediumtext")
    + ("set", "smallint", "text", "time", "timestamp", "tinyblob", "tinyint", "tinytext")
    + ("varbinary", "varchar", "year")
)
"""The types of columns that can be read, as information_schema names them."""
_DATES: Final = ("date", "datetime", "timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A column that is read."""

    name: str
    binary: bool = False
    """Whether it is declared as bytes; otherwise its value is a text."""
    boolean: bool = False


class ValueProblemError(Exception):
    """A value has no text; the message is a clause."""


def encode(
    value: Any, kind: str, column: Wanted, members: Sequence[str] = ()
) -> str | bytes | None:
    """Return a value as a text, or as bytes for a column that is declared as such.

    :param kind: the type of the column in information_schema.
    :param members: those of a SET, in order.
    :raises ValueProblemError: if the bytes of a text are not UTF-8.
    """
    if value is None or (kind in _DATES and isinstance(value, str)):
        return None  # days and times that do not exist, such as 0000-00-00
    if column.binary:
        return value if isinstance(value, bytes) else str(value).encode()
    if column.boolean and isinstance(value, (int, Decimal)):
        return "true" if value else "false"
    match value:
        case bool() | int():
            return str(int(value))
        case float():
            return _single(value) if kind == "float" else repr(value)
        case Decimal():
            return format(value, "f")
        case datetime():
            return value.isoformat(" ") + ("Z" if kind == "timestamp" else "")
        case date():
            return value.isoformat()
        case timedelta():
            return _time(value)
        case set() | frozenset():
            return ",".join(each for each in members if each in value)
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                reason = f"the column {column.name} has bytes that are no text: declare it as BYTES"
                raise ValueProblemError(reason) from None
        case str() if kind != "json":
            return value
        case _:
            return (
                value if isinstance(value, str) else json.dumps(_decoded(value), ensure_ascii=False)
            )


def bits(text: str, column: Wanted) -> int | bytes:
    """Return the value of a BIT of the binlog, as a query returns it."""
    number = int(text, 2)
    return number.to_bytes((len(text) + 7) // 8, "big") if column.binary else number


def _single(value: float) -> str:
    """Return the shortest text of a number of single precision."""
    for digits in range(6, 10):
        text = f"{value:.{digits}g}"
        if struct.pack("<f", float(text)) == struct.pack("<f", value):
            return text
    return repr(value)


def _time(value: timedelta) -> str:
    sign = "-" if value < timedelta(0) else ""
    micros = abs(value) // timedelta(microseconds=1)
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}" if fraction else text


def _decoded(value: Any) -> Any:
    """Return JSON of the binlog with texts instead of bytes."""
    match value:
        case bytes():
            return value.decode()
        case Mapping():
            return {_decoded(key): _decoded(each) for key, each in value.items()}
        case list() | tuple():
            return [_decoded(each) for each in value]
        case Decimal() | date() | timedelta():
            return str(value)
        case _:
            return value
