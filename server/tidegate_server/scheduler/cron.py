"""Freshness as a cron expression, cron expressions as points in time; pure.

Expressions are Quartz's with seven fields: second, minute, hour, day of month, month, day of week,
year. They are read on the clock of a time zone: an hour that a change of clocks leaves out or
repeats neither loses nor doubles a daily fire.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import CroniterBadDateError, CroniterError, croniter

from tidegate_server.errors import Code, error
from tidegate_server.model.freshness import Freshness, TimeUnit

_LIMITS = {TimeUnit.SECOND: 60, TimeUnit.MINUTE: 60, TimeUnit.HOUR: 24}
_FORMS = {
    TimeUnit.SECOND: "0/{n} * * * * ? *",
    TimeUnit.MINUTE: "0 0/{n} * * * ? *",
    TimeUnit.HOUR: "0 0 0/{n} * * ? *",
    TimeUnit.DAY: "0 0 0 * * ? *",
}


def freshness_to_cron(freshness: Freshness) -> str:
    """Return the cron expression that keeps a FULL table this fresh.

    :raises ServerError: MT_FRESHNESS_UNIT, MT_FRESHNESS_DAY, MT_FRESHNESS_TOO_LARGE or
        MT_FRESHNESS_NOT_FACTOR when cron cannot express it.
    """
    value, unit = freshness.value, freshness.unit
    if unit not in _FORMS:
        raise error(Code.MT_FRESHNESS_UNIT, unit=unit.name)
    if unit is TimeUnit.DAY:
        if value != 1:
            raise error(Code.MT_FRESHNESS_DAY, value=value)
    elif value >= _LIMITS[unit]:
        raise error(Code.MT_FRESHNESS_TOO_LARGE, limit=_LIMITS[unit], unit=unit.name, value=value)
    elif _LIMITS[unit] % value != 0:
        raise error(Code.MT_FRESHNESS_NOT_FACTOR, limit=_LIMITS[unit], unit=unit.name, value=value)
    return _FORMS[unit].format(n=value)


def next_fire(cron: str, timezone: str, after: datetime) -> datetime:
    """Return the first fire later than ``after`` (aware), in UTC.

    :raises ServerError: MT_OPTION_VALUE if the expression or the time zone cannot be used, or if
        the expression never fires again.
    """
    return next(_fires(cron, timezone, after))


def fires_between(cron: str, timezone: str, after: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the fires later than ``after`` and not later than ``until``, in UTC, earliest first.

    Raises as :func:`next_fire`.
    """
    for fire in _fires(cron, timezone, after):
        if fire > until:
            return
        yield fire


def last_fire(cron: str, timezone: str, until: datetime) -> datetime:
    """Return the latest fire not later than ``until``, in UTC; raises as :func:`next_fire`."""
    zone = read_timezone(timezone)
    start = until.astimezone(zone)
    try:
        schedule = croniter(cron, start, second_at_beginning=True)
        this_very_moment = croniter.match(cron, start, second_at_beginning=True)
        if this_very_moment and start.microsecond == 0:
            return until.astimezone(UTC)
        return schedule.get_prev(datetime).astimezone(UTC)
    except CroniterError as failure:
        raise _unusable(cron, str(failure)) from failure


def read_timezone(name: str) -> ZoneInfo:
    """Return the time zone of that name; raises as :func:`next_fire`."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as failure:
        key = "materialized-table.schedule.timezone"
        reason = "no such time zone is known"
        raise error(Code.MT_OPTION_VALUE, key=key, value=name, reason=reason) from failure


def _fires(cron: str, timezone: str, after: datetime) -> Iterator[datetime]:
    zone = read_timezone(timezone)
    try:
        schedule = croniter(cron, after.astimezone(zone), second_at_beginning=True)
        while True:
            yield schedule.get_next(datetime).astimezone(UTC)
    except CroniterBadDateError as failure:
        raise _unusable(cron, "it never fires again") from failure
    except CroniterError as failure:
        raise _unusable(cron, str(failure)) from failure


def _unusable(cron: str, reason: str) -> Exception:
    key = "materialized-table.schedule.cron"
    return error(Code.MT_OPTION_VALUE, key=key, value=cron, reason=reason)
