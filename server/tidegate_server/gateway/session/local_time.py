"""The local time of instants, a whole column at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Longs = npt.NDArray[np.int64]

MICROSECONDS_PER_DAY: Final = 86_400_000_000
_FIRST_INSTANT: Final = -719_161 * MICROSECONDS_PER_DAY
"""The second day of the year 1: before it, a local time may be in a year that Arrow cannot show."""
# Arrow's time zones have no daylight saving from 2038 on; Python's do.
_ARROW_RULES_END: Final = 24_837 * MICROSECONDS_PER_DAY
_QUARTER: Final = 900_000_000
_CALENDAR_CYCLE: Final = 146_097 * 86_400
_FIRST_PYTHON_SECOND, _LAST_PYTHON_SECOND = -62_135_510_400, 253_402_214_400


def local_microseconds(array: Any) -> Longs:
    """Return a timestamp column as microseconds of its own time zone since 1970; nulls are 0."""
    zone = array.type.tz
    array = array.cast(pa.timestamp("us", zone))
    instants = fill_nulls(array.view(pa.int64()))
    if zone is None or zone.upper() in ("UTC", "ETC/UTC", "Z", "GMT"):
        return instants
    if not len(instants):
        return instants
    if zone[0] in "+-":
        return instants + _fixed_offset(zone)
    if int(instants.min()) > _FIRST_INSTANT and int(instants.max()) < _ARROW_RULES_END:
        local = pc.local_timestamp(pa.array(instants).view(array.type))
        return np.asarray(local.view(pa.int64()).to_numpy())
    quarters, inverse = np.unique(instants // _QUARTER, return_inverse=True)
    offsets = [_offset(quarter * _QUARTER, zone) for quarter in quarters.tolist()]
    return instants + np.array(offsets, dtype=np.int64)[inverse]


def _offset(instant: int, zone: str) -> int:
    """Return a zone's offset in microseconds; beyond Python's range, that of 400 years earlier."""
    seconds = instant // 1_000_000
    if seconds > _LAST_PYTHON_SECOND:
        cycles = (seconds - _LAST_PYTHON_SECOND) // _CALENDAR_CYCLE + 1
        seconds -= cycles * _CALENDAR_CYCLE
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        seconds=max(seconds, _FIRST_PYTHON_SECOND)
    )
    offset = moment.astimezone(ZoneInfo(zone)).utcoffset() or timedelta()
    return offset // timedelta(microseconds=1)


def _fixed_offset(zone: str) -> int:
    """Return the microseconds of an offset such as ``+05:30`` or ``-08:30:15``."""
    hours, minutes, seconds = (int(part) for part in f"{zone[1:]}:0:0".split(":")[:3])
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds) // timedelta(microseconds=1)
    return -offset if zone[0] == "-" else offset


def fill_nulls(array: Any) -> Longs:
    """Return a column of integers with 0 for null."""
    plain = array.fill_null(0) if array.null_count else array
    return np.asarray(plain.to_numpy())
