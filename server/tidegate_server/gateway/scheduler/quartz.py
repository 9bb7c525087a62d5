"""Quartz cron expressions, parsed into sets of values and searched field by field; pure.

The fields are seconds, minutes, hours, day of month, month, day of week and, optionally, year. They
have the semantics of Quartz 2.5: weekdays count from 1 = SUN, and exactly one of the day fields is
``?``.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache

FIELDS = "second minute hour day-of-month month day-of-week [year]"
"""The fields of an expression, for messages."""
FIRST_YEAR, LAST_YEAR = 1970, 2099

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
"""The days of the week; Quartz numbers them from 1."""
_LAST = -1
_SATURDAY, _SUNDAY = 5, 6  # as Python counts them
_MOST_OFFSET = 30

_ITEM = re.compile(
    r"(?P<start>\*|[A-Z]{3}|\d{1,4})?(?:-(?P<end>[A-Z]{3}|\d{1,4}))?(?:/(?P<step>\d+))?", re.ASCII
)
_OF_MONTH = re.compile(r"(?:(?P<day>\d{1,2})|L(?:-(?P<offset>\d{1,2}))?)(?P<nearest>W)?", re.ASCII)
_OF_WEEK = re.compile(r"(?P<day>[A-Z]{3}|\d)(?:#(?P<week>\d+)|(?P<last>L))", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Field:
    """The allowed values of a field."""

    name: str
    low: int
    high: int
    longest_step: int
    names: Mapping[str, int]
    wraps: bool = True
    """Whether a range may wrap around, such as 22-2."""


_SECOND = _Field("second", 0, 59, 59, {})
_MINUTE = _Field("minute", 0, 59, 59, {})
_HOUR = _Field("hour", 0, 23, 23, {})
_DAY = _Field("day of month", 1, 31, 31, {})
_MONTH = _Field("month", 1, 12, 12, {name: n for n, name in enumerate(_MONTHS, 1)})
_WEEKDAY = _Field("day of week", 1, 7, 7, {name: n for n, name in enumerate(WEEKDAYS, 1)})
_YEAR = _Field("year", FIRST_YEAR, LAST_YEAR, LAST_YEAR - FIRST_YEAR, {}, wraps=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthDays:
    """Days of the month: the union of four kinds.

    ``offsets`` count back from the last day, which is 0. ``nearest`` and ``nearest_offsets`` stand
    for the closest day from Monday to Friday in the same month.
    """

    days: frozenset[int] = frozenset()
    offsets: frozenset[int] = frozenset()
    nearest: frozenset[int] = frozenset()
    nearest_offsets: frozenset[int] = frozenset()

    def within(self, year: int, month: int) -> list[int]:
        """Return the days that exist in a month, in order."""
        last = monthrange(year, month)[1]
        plain = {*self.days, *(last - back for back in self.offsets)}
        moved = {*self.nearest, *(last - back for back in self.nearest_offsets)}
        found = {day for day in plain if 1 <= day <= last}
        found |= {_nearest(year, month, day, last) for day in moved if 1 <= day <= last}
        return sorted(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekDays:
    """Days of the week, from 1 = SUN; ``week`` picks the n-th of a month, or the last with -1."""

    days: frozenset[int]
    week: int | None = None

    def within(self, year: int, month: int) -> list[int]:
        """Return the days of a month, in order."""
        first, last = monthrange(year, month)
        # Python's Monday is 0, Quartz's is 2.
        found = [day for day in range(1, last + 1) if (first + day) % 7 + 1 in self.days]
        if self.week is None:
            return found
        index = self.week if self.week == _LAST else self.week - 1
        return found[index : index + 1 or None] if len(found) > index else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Quartz:
    """A parsed expression; every sequence is in order."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: MonthDays | WeekDays
    months: tuple[int, ...]
    years: tuple[int, ...]

    @property
    def every_hour(self) -> bool:
        """Whether it fires in all hours of a day."""
        return len(self.hours) == 24

    def next_after(self, local: datetime) -> datetime | None:
        """Return the first match later than a wall-clock time; None if there is none."""
        start = local.replace(microsecond=0) + timedelta(seconds=1)
        for day in self._days_from(start.date()):
            first = start.time() if day == start.date() else time()
            if (found := self._time_from(first)) is not None:
                return datetime.combine(day, found)
        return None

    def _days_from(self, start: date) -> Iterator[date]:
        for year in self.years[bisect_left(self.years, start.year) :]:
            for month in self.months:
                if (year, month) < (start.year, start.month):
                    continue
                for number in self.days.within(year, month):
                    if (day := date(year, month, number)) >= start:
                        yield day

    def _time_from(self, start: time) -> time | None:
        """Return the first matching time of a day that is not before ``start``."""
        for hour in self.hours[bisect_left(self.hours, start.hour) :]:
            if hour > start.hour:
                return time(hour, self.minutes[0], self.seconds[0])
            for minute in self.minutes[bisect_left(self.minutes, start.minute) :]:
                if minute > start.minute:
                    return time(hour, minute, self.seconds[0])
                later = self.seconds[bisect_left(self.seconds, start.second) :]
                if later:
                    return time(hour, minute, later[0])
        return None


@lru_cache(maxsize=1024)
def parse_quartz(expression: str) -> Quartz:
    """Parse an expression, ignoring case.

    :raises ValueError: with one clause that says what is wrong.
    """
    fields = expression.upper().split()
    if not 6 <= len(fields) <= 7:
        raise ValueError(
            f"a Quartz expression has the fields {FIELDS}, but this one has {len(fields)}"
        )
    second, minute, hour, of_month, month, of_week, year = [*fields, "*"][:7]
    for name, text in zip(
        ("second", "minute", "hour", "month", "year"),
        (second, minute, hour, month, year),
        strict=True,
    ):
        if "?" in text:
            raise ValueError(f"? is only allowed in the day fields, not in the {name}")
    if (of_month == "?") == (of_week == "?"):
        found = "both are" if of_week == "?" else "neither is"
        raise ValueError(f"exactly one of day of month and day of week must be ?, but {found}")
    return Quartz(
        seconds=_values(second, _SECOND),
        minutes=_values(minute, _MINUTE),
        hours=_values(hour, _HOUR),
        days=_month_days(of_month) if of_week == "?" else _week_days(of_week),
        months=_values(month, _MONTH),
        years=_values(year, _YEAR),
    )


def _values(text: str, field: _Field) -> tuple[int, ...]:
    return tuple(sorted({value for item in text.split(",") for value in _item(item, field)}))


def _item(item: str, field: _Field) -> Sequence[int]:
    """Return the values of ``5``, ``*``, ``1-5``, ``0/15``, ``*/15``, ``/15`` or ``1-30/5``."""
    found = _ITEM.fullmatch(item)
    if found is None or not (found["start"] or found["step"]):
        raise ValueError(f"{item or 'nothing'} is not a value of the {field.name}")
    step = int(found["step"] or 1)
    if not 1 <= step <= field.longest_step:
        raise ValueError(f"a step of the {field.name} is 1 to {field.longest_step}, not {step}")
    if found["start"] in (None, "*"):
        if found["end"] is not None:
            raise ValueError(f"{item} is not a range of the {field.name}")
        return range(field.low, field.high + 1, step)
    start = _value(found["start"], field)
    if found["end"] is None:
        return range(start, (field.high if found["step"] else start) + 1, step)
    end = _value(found["end"], field)
    if end >= start:
        return range(start, end + 1, step)
    if not field.wraps:
        raise ValueError(f"the range {item} of the {field.name} ends before it begins")
    length = field.high - field.low + 1
    return [field.low + (n - field.low) % length for n in range(start, end + length + 1, step)]


def _value(text: str, field: _Field) -> int:
    value = int(text) if text.isdigit() else field.names.get(text)
    if value is None or not field.low <= value <= field.high:
        names = f" or {next(iter(field.names))}-{list(field.names)[-1]}" if field.names else ""
        raise ValueError(f"the {field.name} is {field.low}-{field.high}{names}, not {text}")
    return value


def _month_days(text: str) -> MonthDays:
    days: set[int] = set()
    offsets: set[int] = set()
    nearest: set[int] = set()
    nearest_offsets: set[int] = set()
    for item in text.split(","):
        found = _OF_MONTH.fullmatch(item)
        if found is None or (found["day"] and not found["nearest"]):
            if "W" in item or "L" in item:
                raise ValueError(f"{item} is not a day of month: write L, L-3, LW, L-3W or 15W")
            days.update(_item(item, _DAY))
        elif found["day"]:
            nearest.add(_value(found["day"], _DAY))
        else:
            offset = int(found["offset"] or 0)
            if offset > _MOST_OFFSET:
                raise ValueError(f"L-{offset} is before the first day of every month")
            (nearest_offsets if found["nearest"] else offsets).add(offset)
    return MonthDays(
        days=frozenset(days),
        offsets=frozenset(offsets),
        nearest=frozenset(nearest),
        nearest_offsets=frozenset(nearest_offsets),
    )


def _week_days(text: str) -> WeekDays:
    if text == "L":
        return WeekDays(days=frozenset({_WEEKDAY.high}))
    found = _OF_WEEK.fullmatch(text)
    if found is None:
        if "#" in text or "L" in text:
            raise ValueError(f"{text} is not a day of week: write one of 6L, FRIL, 6#3 or FRI#3")
        return WeekDays(days=frozenset(_values(text, _WEEKDAY)))
    day = frozenset({_value(found["day"], _WEEKDAY)})
    if found["last"]:
        return WeekDays(days=day, week=_LAST)
    week = int(found["week"])
    if not 1 <= week <= 5:
        raise ValueError(f"the number after # is 1 to 5, not {week}")
    return WeekDays(days=day, week=week)


def _nearest(year: int, month: int, day: int, last: int) -> int:
    """Return the day from Monday to Friday that is closest to a day, in the same month."""
    weekday = date(year, month, day).weekday()
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == _SUNDAY:
        return day + 1 if day < last else day - 2
    return day
