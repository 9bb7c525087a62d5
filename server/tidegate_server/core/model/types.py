"""Columns and schemas, with data types as Spark DDL text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum


class TypeKind(Enum):
    """The kind of a Spark data type; values are Spark's DDL keywords."""

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
    """A parsed data type: its kind, size arguments and DDL text."""

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
    """Parse a Spark DDL type; an unknown type is OTHER with its text."""
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


_WORDS_OF_TYPES = frozenset(
    {kind.value.split()[0] for kind in TypeKind if kind is not TypeKind.OTHER}
    | (_SYNONYMS.keys() - {"null"})
    | {"dec", "numeric", "character", "time", "geometry", "geography"}
)
"""The first words of Spark SQL's types."""
_ELSEWHERE = (
    # Spark always stores microseconds, whatever the precision.
    (r"timestamp(_ltz\b|\s+with\s+local\s+time\s+zone\b)", "TIMESTAMP_LTZ"),
    (r"timestamp\s+without\s+time\s+zone\b", "TIMESTAMP_NTZ"),
    (r"(bytes|varbinary|binary)\b(\s*\(\s*\d+\s*\))?", "BINARY"),
    (r"double\s+precision\b", "DOUBLE"),
    (r"varchar\s*\(\s*2147483647\s*\)", "STRING"),
)
_DIGITS = re.compile(r"^(timestamp(?:_ltz|_ntz)?)\s*\(\s*\d\s*\)", re.IGNORECASE)
_ROW = re.compile(r"^row(?=\s*<)", re.IGNORECASE)
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`", re.DOTALL)
_HELD = "\u01c2"  # does not occur in types
_HELD_NUMBER = re.compile(f"{_HELD}([0-9]+){_HELD}")
_NESTED = re.compile(r"^(array|map|struct)\s*<(.*)>", re.DOTALL | re.IGNORECASE)
_FIELD = re.compile(r"^\w+\s*:?\s*(.*)$", re.DOTALL)
_NOT_NULL = re.compile(r"[\w)>]\s+not\s+null\b[^<>]*$", re.IGNORECASE)
_FIELD_END = re.compile(rf"\s+(not\s+null|comment\s+{_HELD}[0-9]+{_HELD})\s*$", re.IGNORECASE)


def spark_type(text: str) -> str:
    """Return a data type in Spark's spelling, translated from Flink's if necessary.

    https://nightlies.apache.org/flink/flink-docs-stable/docs/dev/table/types/
    """
    plain, quoted = _extract_quoted(text)
    return _quoted_again(_spell(plain), quoted)


def plain_type(text: str) -> str:
    """Return a type in canonical spelling, without field comments, for comparison."""
    plain, quoted = _extract_quoted(text)
    names = [each.strip("`").replace("``", "`").lower() for each in quoted]
    return _quoted_again(_plain(plain), names)


def unknown_type(text: str) -> str | None:
    """Return the first word of the type, or of a nested one, that Spark does not know."""
    plain, quoted = _extract_quoted(text)
    word = _unknown(plain)
    return None if word is None else _quoted_again(word, quoted)


def inner_kinds(text: str) -> frozenset[TypeKind]:
    """Return the kinds of the simple types in a nested type; empty for a simple one."""
    plain, _ = _extract_quoted(text)
    return frozenset(_simple_kinds(plain)) if _taken_apart(plain) is not None else frozenset()


def sql_name(text: str) -> str:
    """Return a type like Spark's ``DataType.sql``: upper case except for field names."""
    plain, quoted = _extract_quoted(text)
    return _quoted_again(_in_capitals(plain), quoted)


def field_types(text: str) -> tuple[str, ...]:
    """Return the types of a struct's fields, in order; empty for other types."""
    plain, quoted = _extract_quoted(text)
    nested = _taken_apart(plain)
    if nested is None or not plain.lower().startswith("struct"):
        return ()
    return tuple(_quoted_again(_without_end(type), quoted) for _, type in nested.parts)


@dataclass(frozen=True, slots=True)
class TypePart:
    """A field of a struct, the element of an array, or the key or value of a map."""

    name: str
    """Empty except for fields."""
    type: str
    nullable: bool


def parts_of(text: str) -> tuple[TypePart, ...]:
    """Return what a nested type consists of, in order; empty for a simple one."""
    plain, quoted = _extract_quoted(text)
    nested = _taken_apart(plain)
    if nested is None:
        return ()
    names = [each.strip("`").replace("``", "`") for each in quoted]
    return tuple(
        TypePart(
            name=_quoted_again(name.strip(": "), names),
            type=_quoted_again(_without_end(type), quoted),
            nullable=_NOT_NULL.search(type) is None,
        )
        for name, type in nested.parts
    )


def mapped_type(text: str, change: Callable[[str], str]) -> str:
    """Return a type with each simple one in it replaced, without NOT NULL and comments."""
    kind, parts = parse_type(text).kind, parts_of(text)
    match kind:
        case TypeKind.ARRAY | TypeKind.MAP if parts:
            inner = ", ".join(mapped_type(each.type, change) for each in parts)
            return f"{kind.name}<{inner}>"
        case TypeKind.STRUCT if parts:
            named = ((each.name.replace("`", "``"), each.type) for each in parts)
            fields = ", ".join(f"`{name}`: {mapped_type(type, change)}" for name, type in named)
            return f"STRUCT<{fields}>"
    return change(text)


def castable_type(text: str) -> str:
    """Return a type without NOT NULL in nested ones, which no value can be cast to."""
    return mapped_type(text, str) if " NOT NULL" in text.upper() else text


def _spell(text: str) -> str:
    plain = _ROW.sub("STRUCT", text)
    nested = _taken_apart(plain)
    if nested is not None:
        parts = (name + _spell(type) for name, type in nested.parts)
        return f"{nested.before}{', '.join(parts)}{nested.after}"
    plain = _DIGITS.sub(r"\1", plain)
    for pattern, word in _ELSEWHERE:
        plain = re.sub(f"^{pattern}", word, plain, count=1, flags=re.IGNORECASE)
    return plain


def _in_capitals(text: str) -> str:
    nested = _taken_apart(text)
    if nested is None:
        return text.upper()
    named = ((name.strip(": "), _in_capitals(type)) for name, type in nested.parts)
    parts = (f"{name}: {type}" if name else type for name, type in named)
    return f"{nested.before.upper()}{', '.join(parts)}{nested.after.upper()}"


def _without_end(text: str) -> str:
    """Remove NOT NULL and the comment of a field."""
    while (shorter := _FIELD_END.sub("", text)) != text:
        text = shorter
    return text


def _plain(text: str) -> str:
    text = _without_end(text)
    nested = _taken_apart(text)
    if nested is not None:
        parts = (name.strip(": ").lower() + ":" + _plain(type) for name, type in nested.parts)
        return f"{''.join(nested.before.lower().split())}{','.join(parts)}>"
    found = parse_type(text)
    sized = (TypeKind.DECIMAL, TypeKind.CHAR, TypeKind.VARCHAR, TypeKind.OTHER)
    told = found.kind in sized or "interval" in text.lower()
    return found.kind.value + ("".join(found.text.lower().split()) if told else "")


def _simple_kinds(text: str) -> Iterator[TypeKind]:
    nested = _taken_apart(text)
    if nested is None:
        yield parse_type(_without_end(text)).kind
        return
    for _, type in nested.parts:
        yield from _simple_kinds(type)


def _unknown(text: str) -> str | None:
    nested = _taken_apart(text)
    if nested is not None:
        return next(filter(None, (_unknown(type) for _, type in nested.parts)), None)
    word = re.split(r"\W", text, maxsplit=1)[0]
    return word if word.lower() not in _WORDS_OF_TYPES else None


@dataclass(frozen=True, slots=True)
class _Nested:
    """A parsed nested type."""

    before: str
    """Its keyword and bracket."""
    parts: tuple[tuple[str, str], ...]
    """Each field's name with its separator, and its type; no name except in structs."""
    after: str


def _taken_apart(text: str) -> _Nested | None:
    found = _NESTED.match(text)
    if found is None:
        return None
    start, end = found.span(2)
    parts = _parts(text[start:end])
    pairs = (_field(part) if found[1].lower() == "struct" else ("", part) for part in parts)
    return _Nested(text[:start], tuple(pairs), text[end:])


def _field(text: str) -> tuple[str, str]:
    found = _FIELD.match(text)
    return ("", text) if found is None else (text[: found.start(1)], found[1])


def _extract_quoted(text: str) -> tuple[str, list[str]]:
    """Replace quoted names and comments by placeholders, and return both."""
    quoted = _QUOTED.findall(text)
    numbers = iter(range(len(quoted)))
    return _QUOTED.sub(lambda _: f"{_HELD}{next(numbers)}{_HELD}", text).strip(), quoted


def _quoted_again(text: str, quoted: Sequence[str]) -> str:
    words = {str(number): each for number, each in enumerate(quoted)}
    return _HELD_NUMBER.sub(lambda found: words.get(found[1], found[0]), text)


def _parts(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets."""
    depth = start = 0
    for at, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    if last := text[start:].strip():
        yield last


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its name in the user's case, its type as Spark DDL text."""

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
        """Return the column of that name, ignoring case as Spark does."""
        wanted = name.lower()
        return next((c for c in self.columns if c.name.lower() == wanted), None)


def text_schema(*names: str) -> Schema:
    """Return a schema of nullable STRING columns, as in most SHOW statements."""
    return Schema(tuple(Column(name=name, type="string") for name in names))


def distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """Number repeated names, as Flink does: a, a0, a1."""
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
