"""Spark's types in SQLAlchemy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from sqlalchemy import types as sqltypes
from sqlalchemy import util
from sqlalchemy.engine.interfaces import Dialect

from tidegate_sqlalchemy.compat import DOUBLE, AnyType


class TINYINT(sqltypes.Integer):
    """A signed integer of one byte."""

    __visit_name__ = "TINYINT"


class TIMESTAMP_NTZ(sqltypes.DateTime):  # noqa: N801 - SQL types are written in capitals
    """A timestamp without a time zone."""

    __visit_name__ = "TIMESTAMP_NTZ"


class INTERVAL(AnyType):
    """An interval; ``fields`` are its units, for example ``DAY TO SECOND`` or ``YEAR TO MONTH``."""

    __visit_name__ = "INTERVAL"

    def __init__(self, fields: str = "DAY TO SECOND") -> None:
        self.fields = fields


class VARIANT(AnyType):
    """A semi-structured value."""

    __visit_name__ = "VARIANT"


class _Nested(AnyType):
    """A nested value: Python lists and dicts, also where a server sends JSON text."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Return a function that reads JSON text and leaves anything else as it is."""
        return _from_json


class ARRAY(_Nested):
    """``ARRAY<item>``."""

    __visit_name__ = "SPARK_ARRAY"

    def __init__(self, item_type: AnyType | type[AnyType]) -> None:
        self.item_type = sqltypes.to_instance(item_type)


class MAP(_Nested):
    """``MAP<key, value>``."""

    __visit_name__ = "SPARK_MAP"

    def __init__(
        self, key_type: AnyType | type[AnyType], value_type: AnyType | type[AnyType]
    ) -> None:
        self.key_type = sqltypes.to_instance(key_type)
        self.value_type = sqltypes.to_instance(value_type)


class STRUCT(_Nested):
    """``STRUCT<name: type, …>``."""

    __visit_name__ = "SPARK_STRUCT"

    def __init__(self, *fields: tuple[str, AnyType | type[AnyType]]) -> None:
        self.fields: tuple[tuple[str, AnyType], ...] = tuple(
            (name, sqltypes.to_instance(type_)) for name, type_ in fields
        )


class SparkString(sqltypes.String):
    """Text whose literals escape backslashes and quotes as Spark reads them."""

    def literal_processor(self, dialect: Dialect) -> Callable[[str], str]:
        """Return the writer of string literals."""

        def write(value: str) -> str:
            text = value.replace("\\", "\\\\").replace("'", "\\'")
            if dialect.identifier_preparer._double_percents:
                text = text.replace("%", "%%")
            return f"'{text}'"

        return write


class SparkEnum(sqltypes.Enum, SparkString):
    """One of some texts, stored as that text."""


class SparkDate(sqltypes.Date):
    """Dates with typed literals."""

    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str]:
        """Return the writer of ``DATE '…'``."""
        return lambda value: f"DATE '{value.isoformat()}'"


class SparkDateTime(sqltypes.DateTime):
    """Timestamps with typed literals."""

    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str]:
        """Return the writer of ``TIMESTAMP '…'``."""
        return lambda value: f"TIMESTAMP '{value.isoformat(sep=' ')}'"


class SparkBinary(sqltypes.LargeBinary):
    """Bytes with ``X'…'`` literals, bound as they are."""

    def literal_processor(self, dialect: Dialect) -> Callable[[bytes], str]:
        """Return the writer of ``X'…'``."""
        return lambda value: f"X'{value.hex().upper()}'"


_SIMPLE: dict[str, Callable[[], AnyType]] = {
    "boolean": sqltypes.BOOLEAN,
    "tinyint": TINYINT,
    "byte": TINYINT,
    "smallint": sqltypes.SMALLINT,
    "short": sqltypes.SMALLINT,
    "int": sqltypes.INTEGER,
    "integer": sqltypes.INTEGER,
    "bigint": sqltypes.BIGINT,
    "long": sqltypes.BIGINT,
    "float": sqltypes.FLOAT,
    "real": sqltypes.FLOAT,
    "double": DOUBLE,
    "string": sqltypes.TEXT,
    "binary": sqltypes.BINARY,
    "date": sqltypes.DATE,
    "time": sqltypes.TIME,
    "timestamp": sqltypes.TIMESTAMP,
    "timestamp_ltz": sqltypes.TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "variant": VARIANT,
    "void": sqltypes.NullType,
    "null": sqltypes.NullType,
    "interval_day_time": lambda: INTERVAL("DAY TO SECOND"),
    "interval_year_month": lambda: INTERVAL("YEAR TO MONTH"),
}

_TOKEN = re.compile(
    r"\s*(?:(?P<word>\w+)|`(?P<quoted>(?:[^`]|``)*)`|(?P<sign>[<>(),:])|(?P<other>\S))"
)


def parse_type(text: str) -> AnyType:
    """Return the SQLAlchemy type of a Spark type string such as ``map<string,decimal(10,2)>``.

    An unknown type becomes ``NullType`` with a warning, as reflection does elsewhere.
    """
    try:
        reader = _Reader(text)
        result = reader.type()
        reader.finish()
    except ValueError as error:
        util.warn(f"Did not recognize type {text!r}: {error}")
        return sqltypes.NULLTYPE
    return result


class _Reader:
    """Reads one type string from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens = [
            (match["word"] or "", match["quoted"], match["sign"] or match["other"] or "")
            for match in _TOKEN.finditer(text)
        ]
        self._next = 0

    def type(self) -> AnyType:
        name = self._word().lower()
        match name:
            case "array":
                return self._array()
            case "map":
                return self._map()
            case "struct":
                return self._struct()
            case "decimal" | "dec" | "numeric":
                numbers = self._numbers() or [10, 0]
                return sqltypes.DECIMAL(numbers[0], numbers[1] if len(numbers) > 1 else 0)
            case "varchar":
                return sqltypes.VARCHAR(self._length())
            case "char" | "character":
                return sqltypes.CHAR(self._length())
            case "interval":
                return self._interval()
        if name not in _SIMPLE:
            raise ValueError(f"unknown name {name}")
        self._numbers()  # time(6)
        if self._takes_word("collate"):
            self._name()
        return _SIMPLE[name]()

    def finish(self) -> None:
        if self._next < len(self._tokens):
            raise ValueError("text after the type")

    def _array(self) -> AnyType:
        if not self._takes("<"):
            return ARRAY(sqltypes.NULLTYPE)
        item = self.type()
        self._expect(">")
        return ARRAY(item)

    def _map(self) -> AnyType:
        if not self._takes("<"):
            return MAP(sqltypes.NULLTYPE, sqltypes.NULLTYPE)
        key = self.type()
        self._expect(",")
        value = self.type()
        self._expect(">")
        return MAP(key, value)

    def _struct(self) -> AnyType:
        fields: list[tuple[str, AnyType]] = []
        if not self._takes("<") or self._takes(">"):
            return STRUCT()
        while True:
            name = self._name()
            self._takes(":")
            fields.append((name, self.type()))
            if self._takes_word("not"):
                self._word()
            if self._takes_word("comment"):
                raise ValueError("a comment inside of a struct")
            if not self._takes(","):
                break
        self._expect(">")
        return STRUCT(*fields)

    def _interval(self) -> AnyType:
        units: list[str] = []
        while self._next < len(self._tokens) and self._tokens[self._next][0]:
            units.append(self._word().upper())
        return INTERVAL(" ".join(units)) if units else INTERVAL()

    def _length(self) -> int | None:
        numbers = self._numbers()
        return numbers[0] if numbers else None

    def _numbers(self) -> list[int]:
        if not self._takes("("):
            return []
        numbers = [int(self._word())]
        while self._takes(","):
            numbers.append(int(self._word()))
        self._expect(")")
        return numbers

    def _peek(self) -> tuple[str, str | None, str]:
        if self._next >= len(self._tokens):
            return "", None, ""
        return self._tokens[self._next]

    def _word(self) -> str:
        word, _, sign = self._peek()
        if not word:
            raise ValueError(f"expected a word, got {sign or 'the end'}")
        self._next += 1
        return word

    def _name(self) -> str:
        word, quoted, sign = self._peek()
        if not word and quoted is None:
            raise ValueError(f"expected a name, got {sign or 'the end'}")
        self._next += 1
        return word or (quoted or "").replace("``", "`")

    def _takes(self, sign: str) -> bool:
        taken = self._peek()[2] == sign
        self._next += taken
        return taken

    def _takes_word(self, word: str) -> bool:
        taken = self._peek()[0].lower() == word
        self._next += taken
        return taken

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            raise ValueError(f"expected {sign}")


def _from_json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value
