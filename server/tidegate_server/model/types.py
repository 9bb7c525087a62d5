"""Columns and schemas, with data types written as Spark's DDL text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum


class TypeKind(Enum):
    """The kind of a Spark data type; values are Spark's own DDL words."""

    VOID = "void"
    BOOLEAN = "boolean"
    TINYINT = "tinyint"
    SMALLINT = "smallint"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    CHAR = "char"
    VARCHAR = "varchar"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"
    INTERVAL_DAY_TIME = "interval day to second"
    INTERVAL_YEAR_MONTH = "interval year to month"
    INTERVAL = "interval"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"
    VARIANT = "variant"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A data type taken apart: its kind, its size arguments, its own DDL text."""

    kind: TypeKind
    text: str
    precision: int | None = None
    scale: int | None = None
    length: int | None = None


_SIZED = re.compile(r"^(\w+)\s*\((\d+)(?:\s*,\s*(\d+))?\)$")
_SYNONYMS = {
    "null": TypeKind.VOID,
    "byte": TypeKind.TINYINT,
    "short": TypeKind.SMALLINT,
    "integer": TypeKind.INT,
    "long": TypeKind.BIGINT,
    "real": TypeKind.FLOAT,
    "timestamp_ltz": TypeKind.TIMESTAMP,
}
_KINDS = {kind.value: kind for kind in TypeKind}


def parse_type(text: str) -> ColumnType:
    """Take a Spark DDL type apart; a type unknown here comes back as OTHER with its text."""
    word = text.strip().lower()
    if sized := _SIZED.match(word):
        first, second = int(sized[2]), int(sized[3] or 0)
        if sized[1] in ("decimal", "dec", "numeric"):
            return ColumnType(TypeKind.DECIMAL, word, precision=first, scale=second)
        if sized[1] in ("char", "varchar"):
            return ColumnType(_KINDS[sized[1]], word, length=first)
    if word.startswith("interval ") and word not in _KINDS:
        year_month = "year" in word or "month" in word
        kind = TypeKind.INTERVAL_YEAR_MONTH if year_month else TypeKind.INTERVAL_DAY_TIME
        return ColumnType(kind, word)
    if word in ("decimal", "dec", "numeric"):
        return ColumnType(TypeKind.DECIMAL, "decimal(10,0)", precision=10, scale=0)
    head = re.split(r"[<\s]", word, maxsplit=1)[0]
    kind = _KINDS.get(word) or _SYNONYMS.get(word) or _KINDS.get(head) or TypeKind.OTHER
    return ColumnType(kind, text.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its name in the case the user wrote, its type as Spark DDL text."""

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """The ordered columns of a table or a result."""

    columns: tuple[Column, ...] = ()

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def names(self) -> tuple[str, ...]:
        """Return the column names in order."""
        return tuple(column.name for column in self.columns)

    def find(self, name: str) -> Column | None:
        """Return the column of that name, compared as Spark does: without regard to case."""
        wanted = name.lower()
        return next((c for c in self.columns if c.name.lower() == wanted), None)


def text_schema(*names: str) -> Schema:
    """Return a schema of nullable STRING columns, as most SHOW statements answer."""
    return Schema(tuple(Column(name=name, type="string") for name in names))


def distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """Give repeated names a number, as Flink does: a, a0, a1."""
    taken = {name.lower() for name in names}
    seen: set[str] = set()
    found = []
    for wanted in names:
        name, number = wanted, 0
        if name.lower() in seen:
            while (name := f"{wanted}{number}").lower() in taken:
                number += 1
        taken.add(name.lower())
        seen.add(name.lower())
        found.append(name)
    return tuple(found)
