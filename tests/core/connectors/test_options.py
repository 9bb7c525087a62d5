"""The options of connectors and their values."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tidegate_server.core.connectors import options
from tidegate_server.core.connectors.options import OptionError, read_options

TABLE = {"connector": options.text, "number-of-rows": options.count}
FIELDS = {"min": options.number, "kind": options.one_of("random", "sequence")}


def test_options_of_the_table_and_of_its_columns() -> None:
    given = {"connector": "x", "number-of-rows": "7", "fields.A.b.min": "1.5"}
    found = read_options(given, TABLE, FIELDS, {"a.b": "a.B"})
    assert found.table == {"connector": "x", "number-of-rows": 7}
    assert found.fields == {"a.B": {"min": Decimal("1.5")}}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("number-of-row", "1", "not one of its options; did you mean number-of-rows?"),
        ("fields.id.mim", "1", "did you mean fields.id.min?"),
        ("zzz", "1", "it has connector, number-of-rows"),
        ("fields.other.min", "1", "about a column that the table has not"),
        ("number-of-rows", "0", "must be a whole number of at least 1, not '0'"),
        ("number-of-rows", "1.5", "must be a whole number of at least 1"),
        ("fields.id.min", "NaN", "must be a number, not 'NaN'"),
        ("fields.id.kind", "rand", "must be random or sequence, not 'rand'"),
    ],
)
def test_what_is_wrong_is_named(key: str, value: str, reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_options({key: value}, TABLE, FIELDS, {"id": "id"})
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("5 min", 300_000_000),
        ("5min", 300_000_000),
        ("1 Day", 86_400_000_000),
        ("250", 250_000),
        ("3 us", 3),
        ("0 s", 0),
    ],
)
def test_durations(text: str, micros: int) -> None:
    assert options.duration(text) == micros


@pytest.mark.parametrize("text", ["", "min", "-1 s", "1 fortnight", "1.5 s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        options.duration(text)


def test_flags_and_rates() -> None:
    assert options.flag("TRUE") and not options.flag("false")
    assert options.rate("0.25") == 0.25
    for parse, text in ((options.flag, "yes"), (options.rate, "1.1"), (options.whole, "x")):
        with pytest.raises(ValueError, match="must|a |true"):
            parse(text)
