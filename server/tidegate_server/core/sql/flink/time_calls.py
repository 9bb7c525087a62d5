"""Flink's functions of date and time."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate_server.core.sql.flink.output import Parts
from tidegate_server.core.sql.flink.rewriter import Call, Rule
from tidegate_server.core.sql.flink.tokens import Item

_ROUNDED = frozenset(
    {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND"}
)
_SAME_FIELDS = frozenset(
    {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOY", "DOW", "HOUR", "MINUTE", "ISODOW"}
)
_ADDED = frozenset({"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"})
_OF_SQL_TSI = "SQL_TSI_"


def _round(function: str) -> Rule:
    def rule(call: Call) -> Parts | None:
        items = call.group.inner
        to = len(items) - 2
        if to < 1 or items[to].word != "TO":
            arguments = call.arguments
            return (
                call.made(f"flink_{function}(", arguments[0].parts, ")")
                if len(arguments) == 1
                else None
            )
        unit = items[-1].word
        if unit not in _ROUNDED:
            hint = f"The units are {', '.join(sorted(_ROUNDED))}."
            raise call.refuse(hint, f"{call.name} TO {unit}")
        value = call.rewriter.expression(items[:to])
        return call.made(f"flink_{function}(", value, f", '{unit}')")

    return rule


def _extract(call: Call) -> Parts | None:
    items = call.group.inner
    if len(items) < 3 or items[1].word != "FROM":
        return None
    unit, value = items[0].word, call.rewriter.expression(items[2:])
    if unit == "SECOND":
        return call.made("CAST(floor(extract(SECOND FROM ", value, ")) AS BIGINT)")
    if unit not in _SAME_FIELDS:
        hint = f"The fields are SECOND, {', '.join(sorted(_SAME_FIELDS))}."
        raise call.refuse(hint, f"EXTRACT({unit} FROM ...)")
    field = "DOW_ISO" if unit == "ISODOW" else unit
    return call.made(f"CAST(extract({field} FROM ", value, ") AS BIGINT)")


def _with_unit(function: str) -> Rule:
    def rule(call: Call) -> Parts | None:
        if len(call.arguments) != 3:
            return None
        unit = _unit(call.arguments[0].items)
        if unit not in _ADDED:
            hint = f"The units are {', '.join(sorted(_ADDED))}."
            raise call.refuse(hint, f"{call.name}({unit}, ...)")
        first, second = call.arguments[1:]
        return call.made(f"{function}('{unit}', ", first.parts, ", ", second.parts, ")")

    return rule


def _unit(items: tuple[Item, ...]) -> str:
    word = items[0].word.removeprefix(_OF_SQL_TSI) if len(items) == 1 else ""
    return word[:-1] if word.endswith("S") else word


def _to_timestamp(call: Call) -> Parts | None:
    match call.arguments:
        case [text]:
            return call.made("TRY_CAST(", text.parts, " AS TIMESTAMP_NTZ)")
        case [text, pattern]:
            return call.made("flink_to_timestamp(", text.parts, ", ", pattern.parts, ")")
    return None


_LTZ_HINT = "Write TO_TIMESTAMP_LTZ(number, 0) for seconds, 3 for milliseconds."


def _to_timestamp_ltz(call: Call) -> Parts | None:
    match call.arguments:
        case [number, precision] if precision.number in (0, 3):
            name = "timestamp_seconds" if precision.number == 0 else "timestamp_millis"
            return call.made(f"{name}(", number.parts, ")")
        case [text, pattern] if pattern.literal is not None:
            return call.made("try_to_timestamp(", text.parts, ", ", pattern.parts, ")")
    raise call.refuse(_LTZ_HINT, f"This form of {call.name}")


def _formatted(call: Call) -> Parts | None:
    if len(call.arguments) != 2:
        return None
    value, pattern = call.arguments
    return call.made("flink_date_format(", value.parts, ", ", pattern.parts, ")")


def _converted_zone(call: Call) -> Parts | None:
    if len(call.arguments) != 3:
        return None
    text, here, there = call.arguments
    return call.made(
        "flink_date_format(convert_timezone(", here.parts, ", ", there.parts,
        ", TRY_CAST(", text.parts, " AS TIMESTAMP_NTZ)), 'yyyy-MM-dd HH:mm:ss')",
    )  # fmt: skip


def _renamed(name: str) -> Rule:
    def rule(call: Call) -> Parts | None:
        pieces: list[str | Parts] = []
        for i, argument in enumerate(call.arguments):
            pieces += [", " if i else "", argument.parts]
        return call.made(f"{name}(", *pieces, ")")

    return rule


TIME_CALLS: Mapping[str, Rule] = {
    "FLOOR": _round("floor"),
    "CEIL": _round("ceil"),
    "CEILING": _round("ceil"),
    "EXTRACT": _extract,
    "TIMESTAMPDIFF": _with_unit("flink_timestampdiff"),
    "TIMESTAMPADD": _with_unit("flink_timestampadd"),
    "TO_TIMESTAMP": _to_timestamp,
    "TO_TIMESTAMP_LTZ": _to_timestamp_ltz,
    "TO_DATE": _renamed("try_to_date"),
    "DATE_FORMAT": _formatted,
    "CONVERT_TZ": _converted_zone,
    "WEEK": _renamed("weekofyear"),
    "PROCTIME": _renamed("current_timestamp"),
    "CURRENT_ROW_TIMESTAMP": _renamed("current_timestamp"),
}
