"""The partitions that a scheduled refresh covers; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import Enum

from babel.dates import parse_pattern

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.versions import PartitionSpec, SourceVector

POLICY_OPTION = "materialized-table.partition-refresh.policy"


class PartitionPolicy(Enum):
    """Which partitions a run at schedule time T refreshes, F being the freshness.

    SCHEDULE_TIME: the one of T, and those since the previous run (at least since T - F) that no
    refresh has read since they ended; a table's first run only refreshes the one of T.
    WINDOW_START: the one of T - F. WINDOW: all that overlap [T - F, T).
    """

    SCHEDULE_TIME = "SCHEDULE_TIME"
    WINDOW_START = "WINDOW_START"
    WINDOW = "WINDOW"


class Grain(Enum):
    """The smallest unit in a date pattern, smallest first."""

    SECOND = 0
    MINUTE = 1
    HOUR = 2
    DAY = 3
    MONTH = 4
    YEAR = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRefresh:
    """A successful refresh: when it read, for which fire, and its partitions (empty: all)."""

    read_at: datetime
    schedule_time: datetime | None = None
    partitions: tuple[PartitionSpec, ...] = ()
    vector: SourceVector | None = None
    """The source versions that it read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """How long after their end partitions accept data, and the current source versions."""

    lateness: timedelta = timedelta()
    newest: SourceVector | None = None
    """None if they are not known, so that data may have arrived."""


@dataclass(frozen=True, slots=True)
class _Span:
    """One partition and the moment it ends."""

    spec: PartitionSpec
    end: datetime


_GRAINS: Mapping[str, Grain] = {
    **dict.fromkeys("yu", Grain.YEAR),
    **dict.fromkeys("ML", Grain.MONTH),
    **dict.fromkeys("dD", Grain.DAY),
    **dict.fromkeys("HkKh", Grain.HOUR),
    "m": Grain.MINUTE,
    "s": Grain.SECOND,
}
_NONE, _HOUR, _DAY = timedelta(0), timedelta(hours=1), timedelta(days=1)
_QUOTED = re.compile(r"'[^']*'")
_RESERVED = frozenset("[]{}#")


def pattern_grain(pattern: str) -> Grain:
    """Return the grain of a Java date pattern.

    :raises ServerError: MT_DATE_FORMATTER_PATTERN if it cannot name partitions.
    """
    if pattern.count("'") % 2:
        raise _pattern_error(pattern, "a quote is unclosed")
    fields = _QUOTED.sub("", pattern)
    for character in fields:
        if (
            character.isalpha() and character not in _GRAINS and character != "a"
        ) or character in _RESERVED:
            raise _pattern_error(pattern, f"{character} cannot name a partition")
    grains = [_GRAINS[letter] for letter in fields if letter in _GRAINS]
    if not grains:
        raise _pattern_error(pattern, "it has no date fields")
    try:
        format_partition(pattern, datetime(2024, 1, 1, tzinfo=UTC))
    except (ValueError, KeyError) as error:
        raise _pattern_error(pattern, str(error)) from error
    return min(grains, key=lambda grain: grain.value)


def check_formatters(formatters: Mapping[str, str]) -> None:
    """Reject invalid date patterns; raises as :func:`pattern_grain`."""
    for pattern in formatters.values():
        pattern_grain(pattern)


def read_policy(text: str | None) -> PartitionPolicy:
    """Return the policy with that name, the default for None.

    :raises ServerError: MT_OPTION_VALUE for an unknown name.
    """
    if text is None:
        return PartitionPolicy.SCHEDULE_TIME
    try:
        return PartitionPolicy(text.strip().upper())
    except ValueError as cause:
        reason = "it must be one of " + ", ".join(policy.value for policy in PartitionPolicy)
        raise error(Code.MT_OPTION_VALUE, key=POLICY_OPTION, value=text, reason=reason) from cause


def scheduled_partitions(
    formatters: Mapping[str, str],
    freshness: timedelta,
    schedule_time: datetime,
    zone: tzinfo,
    policy: PartitionPolicy = PartitionPolicy.SCHEDULE_TIME,
    past: Sequence[PastRefresh] = (),
    late: Late | None = None,
) -> tuple[PartitionSpec, ...]:
    """Return the partitions that a scheduled run covers, oldest first.

    Without date-formatters the result is empty: the run covers the whole table.

    :param formatters: Java date pattern by partition column.
    :param schedule_time: the fire (aware), formatted in ``zone``.
    :param past: the successful refreshes, in any order.
    :param late: the lateness, which keeps ended partitions open; for the policy SCHEDULE_TIME.
    :raises ServerError: MT_DATE_FORMATTER_PATTERN.
    """
    if not formatters:
        return ()
    check_formatters(formatters)
    opening = _window_start(schedule_time, freshness, zone)
    match policy:
        case PartitionPolicy.WINDOW_START:
            return (partition_at(formatters, opening, zone),)
        case PartitionPolicy.WINDOW:
            return partitions_between(formatters, opening, schedule_time, zone)
        case PartitionPolicy.SCHEDULE_TIME:
            closing = _partitions_to_close(
                formatters, opening, schedule_time, zone, past, late or Late()
            )
            current = partition_at(formatters, schedule_time, zone)
            return (*(spec for spec in closing if spec != current), current)


def partition_at(formatters: Mapping[str, str], moment: datetime, zone: tzinfo) -> PartitionSpec:
    """Return the partition of a moment (aware) in ``zone``."""
    return _spec_at(formatters, moment.astimezone(zone))


def partitions_between(
    formatters: Mapping[str, str], begin: datetime, end: datetime, zone: tzinfo
) -> tuple[PartitionSpec, ...]:
    """Return the partitions that overlap [begin, end), oldest first.

    :raises ServerError: MT_DATE_FORMATTER_PATTERN.
    """
    return _distinct(span.spec for span in _spans(formatters, begin, end, zone))


def _window_start(schedule_time: datetime, freshness: timedelta, zone: tzinfo) -> datetime:
    """Return when the window of a fire begins: T - F, on the clock that its schedule follows.

    Days, and hours that divide a day, are counted on the wall clock, so that the day before is
    correct even if it has 23 or 25 hours. Everything else is elapsed time, including a single hour,
    which may occur twice or not at all, unless the clock change is a fraction of an hour.
    """
    elapsed = schedule_time - freshness
    local = schedule_time.astimezone(zone)
    named = freshness >= _HOUR and freshness % _HOUR == _NONE and _DAY % freshness == _NONE
    if freshness == _HOUR:
        before = elapsed.astimezone(zone).utcoffset() or _NONE
        named = ((local.utcoffset() or _NONE) - before) % _HOUR != _NONE
    if freshness % _DAY != _NONE and not named:
        return elapsed
    wall = local.replace(tzinfo=None, fold=0) - freshness
    return wall.replace(tzinfo=zone).astimezone(UTC)


def _partitions_to_close(
    formatters: Mapping[str, str],
    opening: datetime,
    schedule_time: datetime,
    zone: tzinfo,
    past: Sequence[PastRefresh],
    late: Late,
) -> tuple[PartitionSpec, ...]:
    """Return the incomplete partitions up to a fire.

    Partitions before the table's first scheduled run are left alone. If the previous run is longer
    ago than the freshness, the window begins there, so that the catch-up run for a missed fire
    closes the partitions that the missed fire would have closed. Partitions whose lateness had not
    passed at the previous run are examined again, and included unless the sources are unchanged.
    """
    earlier = [run.schedule_time for run in past if run.schedule_time is not None]
    earlier = [time for time in earlier if time < schedule_time]
    if not earlier:
        return ()
    begin = max(min(earlier), min(opening, max(earlier)) - late.lateness)
    return _distinct(
        span.spec
        for span in _spans(formatters, begin, schedule_time, zone)
        if not _is_complete(span, past, late)
    )


def _is_complete(span: _Span, past: Sequence[PastRefresh], late: Late) -> bool:
    """Return whether a partition has all its data, as far as the sources show."""
    since = [run for run in past if run.read_at >= span.end and covers(run.partitions, span.spec)]
    if not since:
        return False
    last = max(since, key=lambda run: run.read_at)
    over = last.read_at >= span.end + late.lateness
    return over or (late.newest is not None and last.vector == late.newest)


def _spans(
    formatters: Mapping[str, str], begin: datetime, end: datetime, zone: tzinfo
) -> Iterator[_Span]:
    """Yield the partitions that overlap [begin, end), stepping on the wall clock of ``zone``."""
    grains = [pattern_grain(pattern) for pattern in formatters.values()]
    grain = min(grains, key=lambda one: one.value)
    moment = begin.astimezone(UTC)
    while moment < end:
        local = moment.astimezone(zone)
        following = next_step(local.replace(tzinfo=None, fold=0), grain).replace(tzinfo=zone)
        moment = following.astimezone(UTC)
        yield _Span(_spec_at(formatters, local), moment)


def step_of(grain: Grain) -> timedelta:
    """Return the shortest length of a step of the grain."""
    lengths = (1, 60, 3_600, 82_800, 28 * 86_400, 365 * 86_400)
    return timedelta(seconds=lengths[grain.value])


def next_step(local: datetime, grain: Grain) -> datetime:
    """Return the start of the next step of the grain, as wall-clock time."""
    second = local.replace(microsecond=0)
    match grain:
        case Grain.SECOND:
            return second + timedelta(seconds=1)
        case Grain.MINUTE:
            return second.replace(second=0) + timedelta(minutes=1)
        case Grain.HOUR:
            return second.replace(second=0, minute=0) + timedelta(hours=1)
    midnight = second.replace(second=0, minute=0, hour=0)
    match grain:
        case Grain.DAY:
            return midnight + timedelta(days=1)
        case Grain.MONTH:
            return (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)
        case Grain.YEAR:
            return midnight.replace(year=midnight.year + 1, month=1, day=1)


def _spec_at(formatters: Mapping[str, str], local: datetime) -> PartitionSpec:
    return {column: format_partition(pattern, local) for column, pattern in formatters.items()}


def format_partition(pattern: str, moment: datetime) -> str:
    """Return the name of the partition of a wall-clock time."""
    # Unicode's date patterns agree with Java's in every letter that pattern_grain accepts.
    return parse_pattern(pattern).apply(moment, "en_US")


def covers(partitions: Sequence[PartitionSpec], spec: PartitionSpec) -> bool:
    """Return whether a refresh of these partitions (empty: all) replaced a whole partition."""
    if not partitions:
        return True
    return any(
        all(spec.get(column) == value for column, value in covered.items())
        for covered in partitions
    )


def _distinct(specs: Iterator[PartitionSpec]) -> tuple[PartitionSpec, ...]:
    seen: dict[tuple[tuple[str, str], ...], PartitionSpec] = {}
    for spec in specs:
        seen.setdefault(tuple(spec.items()), spec)
    return tuple(seen.values())


def _pattern_error(pattern: str, reason: str) -> Exception:
    return error(Code.MT_DATE_FORMATTER_PATTERN, pattern=pattern, reason=reason)
