"""Conversion of freshness to schedules, and of schedules to points in time; pure.

A schedule is a Quartz cron expression (second, minute, hour, day of month, month, day of week,
year) or ``@every n UNIT``, counted from a Monday. Both are evaluated in a time zone: a clock change
neither loses nor doubles a fire. An expression that lists its hours fires once for each of them: at
the first of two equal times, and after the gap for a time that is skipped. An expression that fires
in every hour follows elapsed time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, tzinfo

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.core.model.zones import parse_zone
from tidegate_server.gateway.scheduler.dialects import why_not_quartz
from tidegate_server.gateway.scheduler.quartz import Quartz, parse_quartz

CRON_OPTION = "materialized-table.schedule.cron"
TIMEZONE_OPTION = "materialized-table.schedule.timezone"

_LIMITS = {TimeUnit.SECOND: 60, TimeUnit.MINUTE: 60, TimeUnit.HOUR: 24}
_FORMS = {
    TimeUnit.SECOND: "0/{n} * * * * ? *",
    TimeUnit.MINUTE: "0 0/{n} * * * ? *",
    TimeUnit.HOUR: "0 0 0/{n} * * ? *",
    TimeUnit.DAY: "0 0 0 * * ? *",
}
_EVERY = re.compile(r"@every (\d+) (\w+)")
_MONDAY = datetime(1970, 1, 5, tzinfo=UTC)
_SHIFT = timedelta(hours=3)
"""Longer than any clock change."""
_LOOK_BACK = timedelta(days=366 * 20)


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
        limit = _LIMITS[unit]
        factors = ", ".join(str(each) for each in range(1, limit) if limit % each == 0)
        raise error(
            Code.MT_FRESHNESS_NOT_FACTOR,
            limit=limit,
            unit=unit.name,
            value=value,
            factors=factors,
        )
    return _FORMS[unit].format(n=value)


def interval_schedule(freshness: Freshness) -> str:
    """Return the schedule that keeps a FULL table this fresh, whatever the interval."""
    try:
        return freshness_to_cron(freshness)
    except ServerError:
        return f"@every {freshness.value} {freshness.unit.name}"


def check_cron(expression: str) -> None:
    """Reject text that is not a Quartz expression, or that never fires.

    :raises ServerError: MT_OPTION_VALUE, with a translation if it is another system's cron syntax.
    """
    if _parse(expression).next_after(_MONDAY.replace(tzinfo=None)) is None:
        raise _cron_error(expression, "it never fires")


def next_fire(schedule: str, timezone: str, after: datetime) -> datetime:
    """Return the first fire later than ``after`` (aware), in UTC.

    :raises ServerError: MT_OPTION_VALUE if the expression or the time zone is invalid, or if
        the expression never fires again.
    """
    fire = fire_after(schedule, timezone, after)
    if fire is None:
        raise _cron_error(schedule, "it never fires again")
    return fire


def fire_after(schedule: str, timezone: str, after: datetime) -> datetime | None:
    """Return the same, or None for an expression whose years have passed.

    :raises ServerError: MT_OPTION_VALUE if the expression or the time zone is invalid.
    """
    zone = read_timezone(timezone)
    after = after.astimezone(UTC)
    if (interval := _EVERY.fullmatch(schedule)) is not None:
        return _next_interval(int(interval[1]), TimeUnit[interval[2]], zone, after)
    quartz = _parse(schedule)
    return (_next_elapsed if quartz.every_hour else _next_named)(quartz, zone, after)


def last_fire(schedule: str, timezone: str, until: datetime) -> datetime:
    """Return the latest fire not later than ``until``, in UTC.

    :raises ServerError: as :func:`fire_after`, and if it has not fired in twenty years.
    """

    def fires_within(step: timedelta) -> bool:
        fire = fire_after(schedule, timezone, until - step)
        return fire is not None and fire <= until

    step = timedelta(minutes=1)
    while not fires_within(step):
        step *= 2
        if step > _LOOK_BACK:
            raise _cron_error(schedule, "it has never fired")
    short, long = timedelta(0), step
    while long - short > timedelta(seconds=1):
        middle = short + (long - short) / 2
        if fires_within(middle):
            long = middle
        else:
            short = middle
    return next_fire(schedule, timezone, until - long)


def read_timezone(name: str) -> tzinfo:
    """Return the time zone with that name; raises as :func:`fire_after`."""
    zone = parse_zone(name)
    if zone is None:
        reason = "unknown time zone"
        raise error(Code.MT_OPTION_VALUE, key=TIMEZONE_OPTION, value=repr(name), reason=reason)
    return zone


def _parse(expression: str) -> Quartz:
    try:
        return parse_quartz(expression)
    except ValueError as error:
        raise _cron_error(expression, why_not_quartz(expression)) from error


def _next_named(quartz: Quartz, zone: tzinfo, after: datetime) -> datetime | None:
    """Follow the wall clock: fire at the first of two equal times, and late at a skipped one."""
    begin = after.astimezone(zone)
    if (after - _SHIFT).astimezone(zone).utcoffset() != begin.utcoffset():
        begin = (after - _SHIFT).astimezone(zone)
    local = quartz.next_after(begin.replace(tzinfo=None))
    while local is not None:
        fire = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if fire > after:
            return fire
        local = quartz.next_after(local)
    return None


def _next_elapsed(quartz: Quartz, zone: tzinfo, after: datetime) -> datetime | None:
    """Follow the wall clock with a fixed offset, starting again at each clock change."""
    offset = after.astimezone(zone).utcoffset() or timedelta()
    while True:
        local = quartz.next_after((after + offset).replace(tzinfo=None))
        if local is None:
            return None
        fire = local.replace(tzinfo=UTC) - offset
        if fire.astimezone(zone).utcoffset() == offset:
            return fire
        change = _first_change(zone, after, fire)
        offset = change.astimezone(zone).utcoffset() or timedelta()
        if local < (change + offset).replace(tzinfo=None):
            return change  # the clock skips this time
        after = change - timedelta(seconds=1)


def _first_change(zone: tzinfo, begin: datetime, end: datetime) -> datetime:
    """Return the second of the zone's first clock change between two moments."""
    step = timedelta(hours=1)
    before = begin.astimezone(zone).utcoffset()
    while begin + step < end and (begin + step).astimezone(zone).utcoffset() == before:
        begin += step
    end = min(end, begin + step)
    while end - begin > timedelta(microseconds=1):
        middle = begin + (end - begin) / 2
        if middle.astimezone(zone).utcoffset() == before:
            begin = middle
        else:
            end = middle
    return end.replace(microsecond=0)


def _next_interval(count: int, unit: TimeUnit, zone: tzinfo, after: datetime) -> datetime:
    if unit.value < TimeUnit.DAY.value:
        length = timedelta(seconds=count * unit.value)
        return _MONDAY + ((after - _MONDAY) // length + 1) * length
    days = count * unit.value // TimeUnit.DAY.value
    today = after.astimezone(zone).date()
    passed = (today - _MONDAY.date()).days // days
    while True:
        day = _MONDAY.date() + timedelta(days=passed * days)
        fire = datetime.combine(day, time(), zone).astimezone(UTC)
        if fire > after:
            return fire
        passed += 1


def _cron_error(cron: str, reason: str) -> Exception:
    return error(Code.MT_OPTION_VALUE, key=CRON_OPTION, value=repr(cron), reason=reason)
