"""Parses time zone names in every spelling Spark accepts; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

SESSION_ZONE = "spark.sql.session.timeZone"
"""Spark's setting for the session time zone."""
LOCAL_ZONE = "table.local-time-zone"
"""Flink's name for this setting."""
UNSET = "default"
"""Flink's value for an unset session time zone."""

_PREFIX = r"(?:UTC|GMT|UT)?(?P<sign>[+-])"
_OFFSETS = (
    re.compile(_PREFIX + r"(?P<h>\d{1,2})(?::(?P<m>\d{1,2})(?::(?P<s>\d{2}))?)?"),
    re.compile(_PREFIX + r"(?P<h>\d{2})(?P<m>\d{2})(?P<s>\d{2})?"),
)
_FURTHEST = timedelta(hours=18)
_COMPARED_DAYS = 400
_SHORT: Mapping[str, str] = {
    "Z": "UTC",
    "UT": "UTC",
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
"""Java's short zone names."""


def parse_zone(name: str) -> tzinfo | None:
    """Return the zone of a name such as Asia/Tokyo, +05:30, GMT+8 or PST; None if invalid."""
    text = name.strip()
    for offset in _OFFSETS:
        if found := offset.fullmatch(text):
            return _fixed_offset(found)
    try:
        return ZoneInfo(_SHORT.get(text, text))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def keep_the_same_time(one: tzinfo, other: tzinfo, now: datetime) -> bool:
    """Say whether two zones have the same offset every day of the coming year."""
    days = (now + timedelta(days=n) for n in range(_COMPARED_DAYS))
    return all(day.astimezone(one).utcoffset() == day.astimezone(other).utcoffset() for day in days)


def _fixed_offset(found: re.Match[str]) -> tzinfo | None:
    hours, minutes, seconds = (int(found[part] or 0) for part in "hms")
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if minutes > 59 or seconds > 59 or offset > _FURTHEST:
        return None
    return timezone(-offset if found["sign"] == "-" else offset)
