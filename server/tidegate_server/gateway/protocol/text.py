"""Formats dates, timestamps and decimals as Spark does, a whole column at a time.

A column becomes a byte matrix: four bytes of length and then the text at its widest, with one
matrix row per position and one matrix column per value, so that writes are sequential in memory.
Transposed, and without the bytes that a mask excludes, it is the encoding on the wire.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate_server.gateway.session.local_time import (
    MICROSECONDS_PER_DAY,
    Longs,
    fill_nulls,
    local_microseconds,
)

Bytes = npt.NDArray[np.uint8]

_TENS: Final[Bytes] = np.array([48 + n // 10 for n in range(100)], dtype=np.uint8)
_UNITS: Final[Bytes] = np.array([48 + n % 10 for n in range(100)], dtype=np.uint8)
# Days since 1970 of 0001-01-01 and 9999-12-31: between them every year has four digits.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_MINUS, _DOT, _COLON, _SPACE = b"-.: "


def date_cells(array: Any) -> bytes:
    """Return a date column as length-prefixed ``yyyy-MM-dd``; nulls become placeholders."""
    days = fill_nulls(array.cast(pa.date32()).view(pa.int32())).astype(np.int64)
    if not _has_plain_years(days):
        return _prefix_texts([_date_text(day) for day in days.tolist()])
    matrix = np.empty((14, len(days)), dtype=np.uint8)
    _write_length(matrix, 10)
    _write_date(matrix[4:], days)
    return _transpose(matrix)


def timestamp_cells(array: Any) -> bytes:
    """Return a timestamp column as length-prefixed text in the column's time zone.

    The fraction of a second has no trailing zeros and is omitted if it is zero.
    """
    micros = local_microseconds(array)
    days = micros // MICROSECONDS_PER_DAY
    if not _has_plain_years(days):
        return _prefix_texts([_timestamp_text(value) for value in micros.tolist()])
    rest = micros - days * MICROSECONDS_PER_DAY
    seconds = rest // 1_000_000
    fraction = (rest - seconds * 1_000_000).astype(np.int32)
    matrix = np.empty((30, len(micros)), dtype=np.uint8)
    _write_date(matrix[4:], days)
    _write_time(matrix[14:], seconds.astype(np.int32))
    if not fraction.any():
        _write_length(matrix, 19)
        return _transpose(matrix[:23])
    return _with_fraction(matrix, fraction)


def decimal_cells(array: Any) -> bytes:
    """Return a decimal column as length-prefixed digits with the full scale."""
    if array.null_count:
        array = array.fill_null(0)
    if pa.types.is_decimal128(array.type) and array.type.scale >= 0:
        words = np.frombuffer(array.buffers()[1], dtype="<i8").reshape(-1, 2)
        words = words[array.offset : array.offset + len(array)]
        low, high = words[:, 0], words[:, 1]
        fits = bool((high == (low >> 63)).all()) and not bool((low == np.iinfo(np.int64).min).any())
        if fits:
            return _small_decimals(low, array.type.scale)
    return _prefix_texts([format(value, "f") for value in array.to_pylist()])


def _small_decimals(unscaled: Longs, scale: int) -> bytes:
    if not len(unscaled):
        return b""
    magnitude = np.abs(unscaled)
    digits = max(len(str(int(magnitude.max()))), scale + 1)
    point = 1 if scale else 0
    width = 4 + 1 + digits + point
    matrix = np.empty((width, len(unscaled)), dtype=np.uint8)
    matrix[4] = _MINUS
    written = _digits(magnitude, digits)
    whole = digits - scale
    matrix[5 : 5 + whole] = written[:whole]
    if scale:
        matrix[5 + whole] = _DOT
        matrix[6 + whole :] = written[whole:]
    shown = _significant_digits(magnitude, digits, scale)
    negative = unscaled < 0
    lengths = shown + point + negative
    _write_lengths(matrix, lengths)
    if bool((lengths == width - 4).all()):
        return _transpose(matrix)
    keep = np.ones(matrix.shape, dtype=bool)
    keep[4] = negative
    for position in range(whole):
        keep[5 + position] = shown >= digits - position
    return _transpose(matrix, keep)


def _transpose(matrix: Bytes, keep: npt.NDArray[np.bool_] | None = None) -> bytes:
    """Return the matrix value by value, only with the bytes in ``keep``."""
    if keep is None:
        return matrix.T.tobytes()
    return np.ascontiguousarray(matrix.T)[np.ascontiguousarray(keep.T)].tobytes()


def _significant_digits(magnitude: Longs, digits: int, scale: int) -> Longs:
    """Return the number of digits of each value: no leading zeros but one before the point."""
    powers = np.array([10**k for k in range(1, min(digits, 19))], dtype=np.int64)
    counted = np.searchsorted(powers, magnitude, side="right") + 1
    return np.maximum(counted, scale + 1)


def _digits(magnitude: Longs, digits: int) -> Bytes:
    even = digits + digits % 2
    written = np.empty((even, len(magnitude)), dtype=np.uint8)
    rest = magnitude
    for position in range(even - 2, -1, -2):
        higher = rest // 100
        _write_pair(written[position:], rest - higher * 100)
        rest = higher
    return written[even - digits :]


def _has_plain_years(days: Longs) -> bool:
    return not len(days) or (bool(days.min() > _FIRST_DAY) and bool(days.max() < _LAST_DAY))


def _write_length(matrix: Bytes, length: int) -> None:
    matrix[0:3] = 0
    matrix[3] = length


def _write_lengths(matrix: Bytes, lengths: npt.NDArray[Any]) -> None:
    # No text here is longer than 255 bytes.
    matrix[0:3] = 0
    matrix[3] = lengths


def _write_pair(matrix: Bytes, values: npt.NDArray[Any]) -> None:
    """Write numbers below 100 as two digits into the first two rows."""
    np.take(_TENS, values, out=matrix[0])
    np.take(_UNITS, values, out=matrix[1])


def _write_date(matrix: Bytes, days: Longs) -> None:
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    day = (dates - months.astype("datetime64[D]")).astype(np.int32) + 1
    month_number = months.astype(np.int32)
    year = month_number // 12
    month = month_number - year * 12 + 1
    year += 1970
    century = year // 100
    _write_pair(matrix[0:], century)
    _write_pair(matrix[2:], year - century * 100)
    matrix[4] = _MINUS
    _write_pair(matrix[5:], month)
    matrix[7] = _MINUS
    _write_pair(matrix[8:], day)


def _write_time(matrix: Bytes, seconds: npt.NDArray[np.int32]) -> None:
    minutes = seconds // 60
    hours = minutes // 60
    matrix[0] = _SPACE
    _write_pair(matrix[1:], hours)
    matrix[3] = _COLON
    _write_pair(matrix[4:], minutes - hours * 60)
    matrix[6] = _COLON
    _write_pair(matrix[7:], seconds - minutes * 60)


def _with_fraction(matrix: Bytes, fraction: npt.NDArray[np.int32]) -> bytes:
    high = fraction // 10_000
    middle = fraction // 100
    matrix[23] = _DOT
    _write_pair(matrix[24:], high)
    _write_pair(matrix[26:], middle - high * 100)
    _write_pair(matrix[28:], fraction - middle * 100)
    shown = np.full(len(fraction), 7, dtype=np.uint8)
    for length, unit in ((6, 10), (5, 100), (4, 1000), (3, 10_000), (2, 100_000)):
        shown[fraction % unit == 0] = length
    shown[fraction == 0] = 0
    _write_lengths(matrix, shown + 19)
    if bool((shown == 7).all()):
        return _transpose(matrix)
    keep = np.ones(matrix.shape, dtype=bool)
    for position in range(7):
        keep[23 + position] = shown > position
    return _transpose(matrix, keep)


def _prefix_texts(texts: list[str]) -> bytes:
    return b"".join(len(t).to_bytes(4, "big") + t.encode("ascii") for t in texts)


def _date_text(day: int) -> str:
    text = str(np.datetime64(day, "D"))
    year, month, number = text.rsplit("-", 2)
    value = int(year)
    sign = "-" if value < 0 else "+" if value > 9999 else ""
    return f"{sign}{abs(value):04d}-{month}-{number}"


def _timestamp_text(micros: int) -> str:
    day, rest = divmod(micros, MICROSECONDS_PER_DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    tail = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"{_date_text(day)} {clock}{tail}"
