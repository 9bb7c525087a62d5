"""Flink's data types in Spark's spelling.

https://nightlies.apache.org/flink/flink-docs-stable/docs/dev/table/types/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql.flink.failures import misread, refuse
from tidegate_server.core.sql.flink.literals import spark_string
from tidegate_server.core.sql.flink.tokens import Item, Kind, items_of, sees, split

_SIMPLE: Mapping[str, str] = {
    "STRING": "STRING",
    "BOOLEAN": "BOOLEAN",
    "BYTES": "BINARY",
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "INT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "DATE": "DATE",
    "VARIANT": "VARIANT",
}
_SIZED = frozenset({"CHAR", "CHARACTER", "VARCHAR", "BINARY", "VARBINARY"})
_DECIMALS = frozenset({"DECIMAL", "DEC", "NUMERIC"})
_MOST = 6
"""Fractional digits of a second that Spark stores."""
_UNBOUNDED = 2_147_483_647
_REFUSED: Mapping[str, str] = {
    "MULTISET": "Use ARRAY, or MAP with the number of each element.",
    "TIME": "Use STRING, or TIMESTAMP with a date.",
    "RAW": "Use BYTES.",
    "NULL": "Give the column the type of its later values.",
    "DESCRIPTOR": "It is for window functions alone.",
}


@dataclass(frozen=True, slots=True)
class SparkType:
    """A translated type; ``length`` and ``precision`` are what Spark's cast would ignore."""

    text: str
    kind: str = ""
    """CHAR, VARCHAR, BINARY, VARBINARY, STRING or TIMESTAMP if a cast depends on it."""
    length: int | None = None
    precision: int | None = None


def translate_type(text: str) -> str:
    """Return a type in Spark's spelling.

    :raises ServerError: FLINK_SQL_UNSUPPORTED for a type without an equivalent, PARSE_SYNTAX.
    """
    return read_type(text, items_of(text)).text


def read_type(text: str, items: Sequence[Item], end: int | None = None) -> SparkType:
    """Translate the items of a type.

    :param text: the text that their offsets refer to.
    :param end: where the type should be if there are no items.
    :raises ServerError: as :func:`translate_type`.
    """
    reader = _Reader(text, items, end)
    found = reader.type()
    reader.nullability()
    if reader.at < len(items):
        raise reader.unexpected("the end of the type")
    return found


class _Reader:
    """Moves over the items of a type."""

    def __init__(self, text: str, items: Sequence[Item], end: int | None = None) -> None:
        self.text = text
        self.end = len(text) if end is None else end
        # >> closes two brackets.
        self.items = [part for item in items for part in _singly(item)]
        self.at = 0

    def type(self) -> SparkType:
        """Read a type, with ARRAY or MULTISET after it."""
        found = self._plain()
        while (word := self._word()) in ("ARRAY", "MULTISET") or sees(
            self.items, self.at, "NOT", "NULL", "ARRAY"
        ):
            if word == "MULTISET":
                raise self._refused("MULTISET")
            self.nullability()
            self.at += 1
            found = SparkType(f"ARRAY<{found.text}>")
        return found

    def nullability(self) -> bool:
        """Read [NOT] NULL; return whether it may be NULL."""
        if sees(self.items, self.at, "NOT", "NULL"):
            self.at += 2
            return False
        if self._word() == "NULL":
            self.at += 1
        return True

    def unexpected(self, expected: str) -> ServerError:
        """Return the syntax error at the next item."""
        if self.at >= len(self.items):
            end = self.items[-1].end if self.items else self.end
            return misread(self.text, end, "the end of the type", expected)
        item = self.items[self.at]
        return misread(self.text, item.start, self.text[item.start : item.end][:40], expected)

    def _plain(self) -> SparkType:
        word = self._word()
        if word in _REFUSED:
            raise self._refused(word)
        if word in _SIMPLE:
            self.at += 1
            if word == "DOUBLE" and self._word() == "PRECISION":
                self.at += 1
            return SparkType(_SIMPLE[word], "STRING" if word == "STRING" else "")
        if word in _SIZED:
            return self._sized(word)
        if word in _DECIMALS:
            self.at += 1
            return SparkType("DECIMAL" + self._digits(2))
        if word in ("TIMESTAMP", "TIMESTAMP_LTZ"):
            return self._timestamp(word)
        if word == "INTERVAL":
            return self._interval()
        if word in ("ARRAY", "MAP"):
            return self._collection(word)
        if word == "ROW":
            return self._row()
        raise self.unexpected("a data type")

    def _sized(self, word: str) -> SparkType:
        kind = "CHAR" if word == "CHARACTER" else word
        self.at += 1
        length = self._number()
        if length is None and kind in ("CHAR", "BINARY"):
            length = 1
        if length == _UNBOUNDED:
            length = None
        if kind.endswith("BINARY"):
            return SparkType("BINARY", kind, length)
        return SparkType("STRING" if length is None else f"{kind}({length})", kind, length)

    def _timestamp(self, word: str) -> SparkType:
        start = self.at
        self.at += 1
        precision = self._number()
        if precision is not None and precision > _MOST:
            raise refuse(
                self.text,
                self.items[start].start,
                f"{word}({precision})",
                f"Times have microseconds at most: write {word}({_MOST}).",
            )
        zoned = word == "TIMESTAMP_LTZ"
        for words, has_zone in (
            (("WITH", "LOCAL", "TIME", "ZONE"), True),
            (("WITHOUT", "TIME", "ZONE"), False),
        ):
            if not zoned and sees(self.items, self.at, *words):
                self.at += len(words)
                zoned = has_zone
                break
        if sees(self.items, self.at, "WITH", "TIME", "ZONE"):
            hint = "Use TIMESTAMP_LTZ, a point in time."
            raise refuse(self.text, self.items[start].start, "TIMESTAMP WITH TIME ZONE", hint)
        text = "TIMESTAMP_LTZ" if zoned else "TIMESTAMP_NTZ"
        return SparkType(text, "TIMESTAMP", precision=precision)

    def _interval(self) -> SparkType:
        self.at += 1
        words = ["INTERVAL", self._unit()]
        if self._word() == "TO":
            self.at += 1
            words += ["TO", self._unit()]
        return SparkType(" ".join(words))

    def _unit(self) -> str:
        word = self._word()
        if word not in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"):
            raise self.unexpected("a unit of time")
        self.at += 1
        self._digits(2)
        return word

    def _collection(self, word: str) -> SparkType:
        self.at += 1
        self._expect("<")
        parts = [self._element()]
        if word == "MAP":
            self._expect(",")
            parts.append(self._element())
        self._expect(">")
        return SparkType(f"{word}<{', '.join(parts)}>")

    def _element(self) -> str:
        found = self.type().text
        self.nullability()  # Spark has it for columns and fields alone
        return found

    def _row(self) -> SparkType:
        self.at += 1
        if self.at < len(self.items) and self.items[self.at].opens("("):
            group = self.items[self.at]
            self.at += 1
            fields = [_Reader(self.text, part)._field() for part in split(group.inner)]
        else:
            self._expect("<")
            fields = [self._field()]
            while self._word() == ",":
                self.at += 1
                fields.append(self._field())
            self._expect(">")
        return SparkType(f"STRUCT<{', '.join(fields)}>")

    def _field(self) -> str:
        if self.at >= len(self.items) or not self.items[self.at].named:
            raise self.unexpected("a field name")
        name = self.items[self.at]
        self.at += 1
        found = f"{self.text[name.start : name.end]}: {self.type().text}"
        if not self.nullability():
            found += " NOT NULL"
        if self.at < len(self.items) and self.items[self.at].kind is Kind.STRING:
            found += f" COMMENT {spark_string(self.items[self.at].value)}"
            self.at += 1
        return found

    def _digits(self, most: int) -> str:
        if self.at >= len(self.items) or not self.items[self.at].opens("("):
            return ""
        group = self.items[self.at]
        parts = split(group.inner)
        if not 1 <= len(parts) <= most or not all(
            len(part) == 1 and part[0].kind is Kind.NUMBER for part in parts
        ):
            raise self.unexpected("a number in brackets")
        self.at += 1
        return f"({', '.join(part[0].value for part in parts)})"

    def _number(self) -> int | None:
        found = self._digits(1).strip("()")
        if not found:
            return None
        if not (found.isascii() and found.isdigit() and len(found) <= 10):
            self.at -= 1
            raise self.unexpected("a whole number in brackets")
        return int(found)

    def _expect(self, symbol: str) -> None:
        if self._word() != symbol:
            raise self.unexpected(symbol)
        self.at += 1

    def _word(self) -> str:
        return self.items[self.at].word if self.at < len(self.items) else ""

    def _refused(self, word: str) -> ServerError:
        return refuse(self.text, self.items[self.at].start, f"The type {word}", _REFUSED[word])


def _singly(item: Item) -> list[Item]:
    if item.kind is Kind.SYMBOL and len(item.value) > 1 and set(item.value) <= {"<", ">"}:
        return [
            Item(Kind.SYMBOL, item.start + i, item.start + i + 1, symbol)
            for i, symbol in enumerate(item.value)
        ]
    return [item]
