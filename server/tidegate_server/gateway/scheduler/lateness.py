"""How long after their end partitions accept data: partition.fields.<column>.lateness; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

from tidegate_server.core.errors import Code, error
from tidegate_server.gateway.scheduler.partitions import (
    POLICY_OPTION,
    PartitionPolicy,
    pattern_grain,
    read_policy,
    step_of,
)

_KEY = re.compile(r"partition\.fields\.(.+)\.(lateness|date-formatter)")
_ISO = re.compile(
    r"P(?!$)(?:(?P<days>\d{1,6})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,6})H)?(?:(?P<minutes>\d{1,8})M)?(?:(?P<seconds>\d{1,9})S)?)?"
)
_MOST = 10_000
"""Maximum number of partitions that are open at one time."""


def read_lateness(options: Mapping[str, str]) -> timedelta:
    """Return how long the partitions of a table accept late data; the longest of several columns.

    :raises ServerError: MT_OPTION_VALUE for an invalid duration.
    """
    found = [
        _duration(key, value)
        for key, value in options.items()
        if (match := _KEY.fullmatch(key)) and match[2] == "lateness"
    ]
    return max(found, default=timedelta())


def check_lateness(options: Mapping[str, str]) -> None:
    """Reject a lateness that would have no effect, or that spans too many partitions.

    :param options: all options of a table.
    :raises ServerError: MT_OPTION_VALUE, MT_DATE_FORMATTER_PATTERN.
    """
    patterns = {
        match[1].lower(): value
        for key, value in options.items()
        if (match := _KEY.fullmatch(key)) and match[2] == "date-formatter"
    }
    for key, value in options.items():
        match = _KEY.fullmatch(key)
        if match is None or match[2] != "lateness":
            continue
        late = _duration(key, value)
        if match[1].lower() not in patterns:
            raise _lateness_error(
                key, value, f"{match[1]} has no date-formatter, so its partitions never end"
            )
        policy = read_policy(options.get(POLICY_OPTION))
        if policy is not PartitionPolicy.SCHEDULE_TIME:
            raise _lateness_error(key, value, f"{POLICY_OPTION} is {policy.value}")
        shortest = min(step_of(pattern_grain(pattern)) for pattern in patterns.values())
        if late > shortest * _MOST:
            raise _lateness_error(key, value, f"it spans more than {_MOST} partitions")


def _duration(key: str, value: str) -> timedelta:
    match = _ISO.fullmatch(value.strip().upper())
    parts = {unit: int(n) for unit, n in match.groupdict().items() if n} if match else {}
    found = timedelta(**parts)
    if not found:
        raise _lateness_error(key, value, "write a positive duration such as PT6H, PT30M or P1D")
    return found


def _lateness_error(key: str, value: str, reason: str) -> Exception:
    return error(Code.MT_OPTION_VALUE, key=key, value=repr(value), reason=reason)
