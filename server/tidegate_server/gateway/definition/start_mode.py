"""START_MODE: its value for a definition and the partitions of a first load."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.clauses import StartKind, StartMode
from tidegate_server.core.model.table import Definition, RefreshMode
from tidegate_server.core.model.versions import PartitionSpec
from tidegate_server.gateway.definition.checks import Setting
from tidegate_server.gateway.options import START_MODE_KEY
from tidegate_server.gateway.scheduler.partitions import (
    Grain,
    partition_at,
    partitions_between,
    pattern_grain,
)

_RESUME = "RESUME_OR_"
BEGINNINGS = (StartKind.FROM_BEGINNING, StartKind.RESUME_OR_FROM_BEGINNING)
_MOST_PARTITIONS = 1000
_LENGTHS: Mapping[Grain, timedelta] = {
    Grain.SECOND: timedelta(seconds=1),
    Grain.MINUTE: timedelta(minutes=1),
    Grain.HOUR: timedelta(hours=1),
    Grain.DAY: timedelta(days=1),
    Grain.MONTH: timedelta(days=28),
    Grain.YEAR: timedelta(days=365),
}


def start_mode(
    written: StartMode | None,
    mode: RefreshMode,
    formatters: Mapping[str, str],
    setting: Setting,
    *,
    or_alter: bool,
    on_update: bool = False,
) -> StartMode | None:
    """Return the start mode of a definition; defaults to the configured one.

    :raises ServerError: MT_START_MODE_CREATE, MT_START_MODE_UNSUPPORTED.
    """
    if written is None:
        chosen = _default(setting, or_alter=or_alter)
    else:
        chosen = written
        if not or_alter and resumes(written):
            raise error(Code.MT_START_MODE_CREATE, kind=written.kind.value)
    if chosen is None or chosen.kind in BEGINNINGS:
        return chosen
    if mode is RefreshMode.CONTINUOUS or on_update:
        if resumes(chosen):
            return chosen
        what = "with REFRESH_TRIGGER = ON UPDATE" if on_update else "CONTINUOUS"
        words = f"table {what}" if on_update else f"{what} table"
        raise _unsupported_error(
            chosen,
            f"a {words} always equals its query, which begins with its sources",
            "Use FROM_BEGINNING, or restrict the query with WHERE.",
        )
    if not formatters:
        raise _unsupported_error(
            chosen,
            f"a {mode.value} table begins at a moment only by its partitions",
            "Declare a partition column with 'partition.fields.<column>.date-formatter'.",
        )
    return chosen


def resumes(mode: StartMode | None) -> bool:
    """Say whether a start mode resumes from the last refresh."""
    return mode is not None and mode.kind.value.startswith(_RESUME)


def start_of(definition: Definition, now: datetime, zone: tzinfo) -> datetime | None:
    """Return the time from which the first load covers partitions; None for all.

    :param zone: the time zone for a TIMESTAMP without one.
    """
    mode = definition.start_mode
    if mode is None or mode.kind in BEGINNINGS:
        return None
    if mode.timestamp is not None:
        return _moment(mode, mode.timestamp, zone)
    return now - (mode.interval.duration if mode.interval is not None else timedelta(0))


def first_partitions(
    definition: Definition, now: datetime, zone: tzinfo
) -> tuple[PartitionSpec, ...]:
    """Return the partitions of the first load; empty for the whole table.

    :raises ServerError: MT_START_MODE_UNSUPPORTED if there are too many for one commit.
    """
    start = start_of(definition, now, zone)
    if start is None or definition.start_mode is None:
        return ()
    formatters, reach = definition.date_formatters(), max(now - start, timedelta(0))
    least = min(_LENGTHS[pattern_grain(pattern)] for pattern in formatters.values())
    if reach > _MOST_PARTITIONS * least:
        raise _unsupported_error(
            definition.start_mode,
            f"its first load would cover more than {_MOST_PARTITIONS} partitions",
            "Begin later, and refresh older partitions with REFRESH PARTITION.",
        )
    window = partitions_between(formatters, start, now, zone)
    current = partition_at(formatters, now, zone)
    return (*(spec for spec in window if spec != current), current)


def _default(setting: Setting, *, or_alter: bool) -> StartMode | None:
    value = setting(START_MODE_KEY)
    if value is None:
        return None
    word = value.strip().upper()
    # A server-wide default has to work for plain CREATE as well.
    kind = StartKind(word if or_alter else word.removeprefix(_RESUME))
    return None if kind is StartKind.FROM_BEGINNING else StartMode(kind=kind)


def _moment(mode: StartMode, text: str, zone: tzinfo) -> datetime:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=zone)
    except ValueError as failure:
        raise error(
            Code.MT_START_MODE_ARGUMENT,
            kind=mode.kind.value,
            expected="a timestamp",
            found=repr(text),
        ) from failure


def _unsupported_error(mode: StartMode, reason: str, hint: str) -> ServerError:
    return error(Code.MT_START_MODE_UNSUPPORTED, kind=mode.kind.value, reason=reason, hint=hint)
