"""Values of MySQL as texts, the same from a query and from the binlog."""

from __future__ import annotations

import struct
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tidegate_server.engine.binlog.values import ValueProblemError, Wanted, bits, encode

TEXT = Wanted(name="c")
BYTES = Wanted(name="c", binary=True)
FLAG = Wanted(name="c", boolean=True)
MOMENT = datetime.fromisoformat("2026-01-02T03:04:05")
TENTH = struct.unpack("<f", struct.pack("<f", 0.1))[0]


@pytest.mark.parametrize(
    ("value", "kind", "column", "expected"),
    [
        (None, "int", TEXT, None),
        (18446744073709551615, "bigint", TEXT, "18446744073709551615"),
        (2, "tinyint", FLAG, "true"),
        (Decimal("0E-10"), "decimal", TEXT, "0.0000000000"),
        (Decimal("123456789012345678901234567890.5"), "", TEXT, "123456789012345678901234567890.5"),
        (TENTH, "float", TEXT, "0.1"),
        (16777216.0, "float", TEXT, "16777216"),
        (0.1, "double", TEXT, "0.1"),
        (MOMENT + timedelta(microseconds=60), "datetime", TEXT, "2026-01-02 03:04:05.000060"),
        (MOMENT, "timestamp", TEXT, "2026-01-02 03:04:05Z"),
        ("0000-00-00 00:00:00", "datetime", TEXT, None),
        (date(2026, 1, 2), "date", TEXT, "2026-01-02"),
        (timedelta(hours=-838, minutes=-59, microseconds=-5), "time", TEXT, "-838:59:00.000005"),
        (timedelta(seconds=61), "time", TEXT, "00:01:01"),
        ({"b", "a"}, "set", TEXT, "a,b"),
        (frozenset(), "set", TEXT, ""),
        ("ä", "varchar", TEXT, "ä"),
        ("ä".encode(), "blob", TEXT, "ä"),
        (b"\xff\x00", "blob", BYTES, b"\xff\x00"),
        ("ä", "varchar", BYTES, "ä".encode()),
        (bits("100000001", TEXT), "bit", TEXT, "257"),
        (bits("000000001", BYTES), "bit", BYTES, b"\x00\x01"),
        (1, "bit", FLAG, "true"),
        ('{"a": 1}', "json", TEXT, '{"a": 1}'),
        ({b"a": [1, b"\xc3\xa4", None]}, "json", TEXT, '{"a": [1, "ä", null]}'),
    ],
)
def test_a_value_has_one_text(value: Any, kind: str, column: Wanted, expected: object) -> None:
    assert encode(value, kind, column, ("a", "b")) == expected


def test_bytes_are_no_text() -> None:
    with pytest.raises(ValueProblemError, match="declare it as BYTES"):
        encode(b"\xff", "blob", TEXT)
