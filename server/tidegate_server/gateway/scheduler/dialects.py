"""Recognizes cron expressions of other systems and translates them to Quartz; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tidegate_server.gateway.scheduler.quartz import FIELDS, WEEKDAYS, parse_quartz

_MACROS: Mapping[str, str] = {
    "@hourly": "0 0 * * * ?",
    "@daily": "0 0 0 * * ?",
    "@midnight": "0 0 0 * * ?",
    "@weekly": "0 0 0 ? * SUN",
    "@monthly": "0 0 0 1 * ?",
    "@yearly": "0 0 0 1 1 ?",
    "@annually": "0 0 0 1 1 ?",
}
_YEARS = re.compile(r"(?:19|20)\d\d(?:[,/-]\d+)*", re.ASCII)
_CALL = re.compile(r"cron\((.*)\)", re.IGNORECASE)
_WEEKDAY_ITEM = re.compile(
    r"(?P<start>\*|[A-Z]{3}|[0-7])(?:-(?P<end>[A-Z]{3}|[0-7]))?(?:/(?P<step>[1-7]))?"
)


def why_not_quartz(expression: str) -> str:
    """Explain in one clause why an expression is not Quartz's, with a translation if there is one.

    :param expression: one that :func:`parse_quartz` rejects.
    """
    text = expression.strip()
    if text.startswith("@"):
        return _explain_macro(text)
    fields = (called[1] if (called := _CALL.fullmatch(text)) else text).upper().split()
    if (clause := _explain_fields(fields)) is not None:
        return clause
    try:
        parse_quartz(text)
    except ValueError as error:
        return str(error)
    return f"write its fields: {FIELDS}"


def _explain_macro(text: str) -> str:
    word, _, rest = text.partition(" ")
    if word.lower() == "@every":
        return (
            f"write {rest or 'the interval'} as FRESHNESS, with the option "
            "materialized-table.schedule.alignment = interval if cron cannot express it"
        )
    known = _MACROS.get(text.lower())
    if known is None:
        return f"Quartz has no such macro, write its fields: {FIELDS}"
    return f"Quartz has no such macro, write {known}"


def _explain_fields(fields: Sequence[str]) -> str | None:
    """Explain fields in another system's order; None if they are not recognized."""
    seconds_first = " ".join(["0", *fields])
    if "?" in fields:
        # Quartz without seconds, or the six fields of AWS, which also begin with minutes.
        if 5 <= len(fields) <= 6 and _is_quartz(seconds_first):
            return f"Quartz begins with the seconds, write {seconds_first}"
        return None
    if len(fields) == 5:
        return _explain_unix(fields, [], "it has the five fields of Unix")
    if len(fields) == 6 and _YEARS.fullmatch(fields[5]):
        return _explain_unix(fields[:5], fields[5:], "it has no seconds")
    if 6 <= len(fields) <= 7:
        return _explain_seconds_first(fields)
    return None


def _explain_unix(fields: Sequence[str], year: Sequence[str], what: str) -> str | None:
    minute, hour, of_month, month, of_week = fields
    weekdays = _weekdays(of_week)
    if weekdays is None:
        return None
    beginning = ["0", minute, hour]
    by_month = " ".join([*beginning, of_month, month, "?", *year])
    by_week = " ".join([*beginning, "?", month, weekdays, *year])
    if not (_is_quartz(by_month) and (weekdays == "?" or _is_quartz(by_week))):
        return None
    if weekdays == "?":
        return f"{what}, in Quartz it is {by_month}"
    if of_month == "*":
        return f"{what}, in Quartz it is {by_week}"
    return (
        f"{what}, and fires on days of the month and on days of the week; "
        f"Quartz only allows one of them: {by_month}, or {by_week}"
    )


def _explain_seconds_first(fields: Sequence[str]) -> str | None:
    """Explain six or seven fields that begin with seconds and have no ``?``."""
    second, minute, hour, of_month, month, of_week, *year = fields
    beginning = [second, minute, hour]
    by_month = " ".join([*beginning, of_month, month, "?", *year])
    if of_week == "*":
        needed = "in Quartz one of the day fields must be ?"
        return f"{needed}, write {by_month}" if _is_quartz(by_month) else None
    by_week = " ".join([*beginning, "?", month, of_week, *year])
    if not _is_quartz(by_week):
        # A weekday that does not exist in Quartz, such as 0.
        by_week = ""
    weekdays = _weekdays(of_week)
    unix = " ".join([*beginning, "?", month, weekdays, *year]) if weekdays else ""
    if not _is_quartz(unix):
        unix = ""
    if of_month != "*":
        choices = [
            choice
            for choice in (by_month if _is_quartz(by_month) else "", unix or by_week)
            if choice
        ]
        if not choices:
            return None
        return f"in Quartz one of the day fields must be ?, write {', or '.join(choices)}"
    numbered = any(character.isdigit() for character in re.sub(r"[#/]\d", "", of_week))
    if numbered and unix and by_week:
        return (
            "in Quartz one of the day fields must be ?, and weekdays count from 1 = SUN; "
            f"write {unix} if they count from 0 = SUN as in Unix, and {by_week} if not"
        )
    known = by_week or unix
    return f"in Quartz one of the day fields must be ?, write {known}" if known else None


def _weekdays(text: str) -> str | None:
    """Return Unix's days of the week (0 and 7 are Sunday) by name; None if they are invalid."""
    if text == "*":
        return "?"
    items = [_weekday_item(item) for item in text.split(",")]
    return ",".join(item for item in items if item is not None) if all(items) else None


def _weekday_item(item: str) -> str | None:
    found = _WEEKDAY_ITEM.fullmatch(item)
    if found is None:
        return None
    start = 0 if found["start"] == "*" else _weekday(found["start"])
    end = found["end"] and _weekday(found["end"])
    if start is None or (found["end"] and end is None):
        return None
    if found["step"] is None:
        if found["start"] == "*":
            return "SUN-SAT"
        return WEEKDAYS[start] if end is None else f"{WEEKDAYS[start]}-{WEEKDAYS[int(end)]}"
    last = 6 if end is None else int(end)
    span = range(start, (last if last >= start else last + 7) + 1, int(found["step"]))
    return ",".join(WEEKDAYS[day % 7] for day in span)


def _weekday(text: str) -> int | None:
    if text.isdigit():
        return int(text) % 7
    return WEEKDAYS.index(text) if text in WEEKDAYS else None


def _is_quartz(expression: str) -> bool:
    try:
        parse_quartz(expression)
    except ValueError:
        return False
    return True
