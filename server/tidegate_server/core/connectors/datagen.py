"""The random and sequential values of Flink's ``datagen`` connector, as SQL of Spark.

https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/datagen/
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tidegate_server.core.connectors.options import OptionError
from tidegate_server.core.model.types import ColumnType, TypeKind

_LIMITS: Mapping[TypeKind, tuple[int, int]] = {
    TypeKind.TINYINT: (-(2**7), 2**7 - 1),
    TypeKind.SMALLINT: (-(2**15), 2**15 - 1),
    TypeKind.INT: (-(2**31), 2**31 - 1),
    TypeKind.BIGINT: (-(2**63), 2**63 - 1),
}
_FLOATS: Mapping[TypeKind, Decimal] = {
    TypeKind.FLOAT: Decimal("3.4028234663852886E38"),
    TypeKind.DOUBLE: Decimal("1.7976931348623157E308"),
}
_TEXTS = frozenset({TypeKind.STRING, TypeKind.CHAR, TypeKind.VARCHAR})
_TIMES = frozenset({TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_NTZ})
_DEFAULT_LENGTH = 100
_HEX_DIGITS = 32
"""Random digits that one call of ``uuid`` gives, without its dashes."""
_KEYS: Mapping[str, frozenset[TypeKind]] = {
    **dict.fromkeys(("min", "max"), frozenset({*_LIMITS, *_FLOATS, TypeKind.DECIMAL})),
    "max-past": _TIMES,
    "length": frozenset({TypeKind.STRING, TypeKind.BINARY}),
    "var-len": frozenset({*_TEXTS, TypeKind.BINARY}),
}
"""The types for which an option has a meaning."""


def value_sql(name: str, found: ColumnType, given: Mapping[str, Any], row: str) -> str:
    """Return an expression for the values of a column.

    :param given: the options of the column, parsed.
    :param row: the expression of a row's number, from 0.
    :raises OptionError: if an option does not fit the type, or nothing generates it.
    """
    kind = given.get("kind", "sequence" if {"start", "end"} & given.keys() else "random")
    for key, kinds in _KEYS.items():
        if key in given and (kind == "sequence" or found.kind not in kinds):
            raise OptionError(f"fields.{name}.{key} has no meaning for a {kind} {found.text}")
    if kind == "sequence":
        return _sequence(name, found, given, row)
    if {"start", "end"} & given.keys():
        raise OptionError(f"fields.{name}.start and end are of the kind 'sequence'")
    return _random(name, found, given)


def rows_of(given: Mapping[str, Any]) -> int | None:
    """Return how many rows a column with a sequence allows; None if there is no limit."""
    return None if "end" not in given else given["end"] - given.get("start", 0) + 1


def _sequence(name: str, found: ColumnType, given: Mapping[str, Any], row: str) -> str:
    if found.kind not in (*_LIMITS, *_FLOATS, *_TEXTS, TypeKind.DECIMAL):
        raise OptionError(f"fields.{name}.kind = 'sequence' has no meaning for a {found.text}")
    for key in ("start", "end"):
        if key not in given:
            raise OptionError(f"fields.{name}.{key} is missing: a sequence needs it")
    if given["end"] < given["start"]:
        raise OptionError(f"fields.{name}.end is less than fields.{name}.start")
    return f"{given['start']} + {row}"


def _random(name: str, found: ColumnType, given: Mapping[str, Any]) -> str:
    match found.kind:
        case kind if kind in _LIMITS:
            least, most = _whole_range(name, kind, given)
            # In decimals, since the width of all BIGINT is more than a BIGINT.
            width = f"CAST('{most - least + 1}' AS DECIMAL(20, 0))"
            return f"{least} + floor(CAST(rand() AS DECIMAL(17, 16)) * {width})"
        case kind if kind in _FLOATS:
            low, high = given.get("min", -_FLOATS[kind]), given.get("max", _FLOATS[kind])
            _check_order(name, low, high)
            # Of halves, since the difference of the limits may be infinite.
            return f"2 * ({_double(low / 2)} + rand() * {_double(high / 2 - low / 2)})"
        case TypeKind.DECIMAL:
            top = Decimal(10) ** ((found.precision or 10) - (found.scale or 0)) - 1
            low, high = given.get("min", -top), given.get("max", top)
            _check_order(name, low, high)
            return f"{_double(low)} + rand() * {_double(high - low)}"
        case TypeKind.BOOLEAN:
            return "rand() < 0.5"
        case kind if kind in _TEXTS:
            return _letters(found, given)
        case TypeKind.BINARY:
            return f"CAST({_letters(found, given)} AS BINARY)"
        case TypeKind.DATE:
            return "current_date()"
        case kind if kind in _TIMES:
            past = given.get("max-past", 0)
            return f"timestamp_micros(unix_micros(current_timestamp()) - {_up_to(past)})"
        case _:
            raise OptionError(f"the column {name} is a {found.text}, which it does not generate")


def _whole_range(name: str, kind: TypeKind, given: Mapping[str, Any]) -> tuple[int, int]:
    found = []
    for key, limit in zip(("min", "max"), _LIMITS[kind], strict=True):
        value = given.get(key, limit)
        if value != int(value) or not _LIMITS[kind][0] <= value <= _LIMITS[kind][1]:
            raise OptionError(f"fields.{name}.{key} must be a value of {kind.value}, not '{value}'")
        found.append(int(value))
    _check_order(name, *found)
    return found[0], found[1]


def _check_order(name: str, least: Any, most: Any) -> None:
    if most < least:
        raise OptionError(f"fields.{name}.max is less than fields.{name}.min")


def _double(value: Decimal) -> str:
    return f"{float(value)!r}D"


def _up_to(most: int) -> str:
    return f"CAST(floor(rand() * {most + 1}) AS BIGINT)"


def _letters(found: ColumnType, given: Mapping[str, Any]) -> str:
    """Return random digits of hexadecimal numbers, as Flink has them."""
    length = found.length or given.get("length", _DEFAULT_LENGTH)
    calls = -(-length // _HEX_DIGITS)
    digits = f"replace(concat({', '.join(['uuid()'] * calls)}), '-', '')"
    wanted = f"1 + CAST(floor(rand() * {length}) AS INT)" if given.get("var-len") else length
    return f"left({digits}, {wanted})"
