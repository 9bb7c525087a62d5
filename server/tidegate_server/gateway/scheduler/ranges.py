"""The partitions of a range, from the date patterns of their columns; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.versions import PartitionSpec
from tidegate_server.gateway.scheduler.partitions import format_partition, next_step, pattern_grain

LONGEST = 10_000
"""Maximum number of partitions in a range."""

_FIELDS: Mapping[str, tuple[str, str]] = {
    "yyyy": ("year", r"\d{4}"),
    "uuuu": ("year", r"\d{4}"),
    "MM": ("month", r"\d{2}"),
    "dd": ("day", r"\d{2}"),
    "HH": ("hour", r"\d{2}"),
    "mm": ("minute", r"\d{2}"),
    "ss": ("second", r"\d{2}"),
}
_TOKEN = re.compile(r"'(?P<quoted>[^']*)'|(?P<letters>([A-Za-z])\3*)|(?P<sign>[^A-Za-z'])")


def check_range(start: PartitionSpec, end: PartitionSpec) -> None:
    """Reject a range whose ends name different columns.

    :raises ServerError: MT_PARTITION_RANGE.
    """
    if start.keys() != end.keys():
        reason = f"FROM names {', '.join(start)}, TO names {', '.join(end)}"
        raise error(Code.MT_PARTITION_RANGE, reason=reason)


def dated_range(
    formatters: Mapping[str, str], start: PartitionSpec, end: PartitionSpec
) -> tuple[PartitionSpec, ...] | None:
    """Return every partition from ``start`` to ``end``, both included, oldest first.

    None unless all columns of the range have a date pattern that can be parsed.

    :raises ServerError: MT_PARTITION_RANGE for a value that does not match its pattern, for
        reversed ends, or for too many partitions.
    """
    patterns = {column: formatters[column] for column in start if column in formatters}
    readers = {column: _pattern_reader(pattern) for column, pattern in patterns.items()}
    if len(patterns) < len(start) or not all(readers.values()):
        return None
    expressions = {column: reader for column, reader in readers.items() if reader is not None}
    if not any("year" in reader.groupindex for reader in expressions.values()):
        return None
    moment, last = (_moment(spec, patterns, expressions) for spec in (start, end))
    if moment > last:
        raise error(Code.MT_PARTITION_RANGE, reason="FROM is after TO")
    grain = min((pattern_grain(p) for p in patterns.values()), key=lambda grain: grain.value)
    found: dict[tuple[str, ...], PartitionSpec] = {}
    while moment <= last:
        spec = {column: format_partition(pattern, moment) for column, pattern in patterns.items()}
        found.setdefault(tuple(spec.values()), spec)
        if len(found) > LONGEST:
            raise error(Code.MT_PARTITION_RANGE, reason=f"it has more than {LONGEST} partitions")
        moment = next_step(moment, grain)
    return tuple(found.values())


def partition_end(
    formatters: Mapping[str, str], spec: PartitionSpec, zone: tzinfo
) -> datetime | None:
    """Return when a partition ends; None if its columns do not determine that."""
    dated = {column: value for column, value in spec.items() if column in formatters}
    patterns = {column: formatters[column] for column in dated}
    readers = {
        column: reader
        for column, pattern in patterns.items()
        if (reader := _pattern_reader(pattern)) is not None
    }
    named = {field for reader in readers.values() for field in reader.groupindex}
    if len(readers) < len(patterns) or "year" not in named:
        return None
    try:
        begin = _moment(dated, patterns, readers)
    except ServerError:
        return None  # a value that does not match its pattern
    grain = min((pattern_grain(p) for p in patterns.values()), key=lambda grain: grain.value)
    return next_step(begin.replace(tzinfo=None), grain).replace(tzinfo=zone)


def _pattern_reader(pattern: str) -> re.Pattern[str] | None:
    """Return an expression that parses a pattern's fields, or None if that is not possible."""
    parts, seen = [], set()
    for token in _TOKEN.finditer(pattern):
        if (letters := token["letters"]) is None:
            parts.append(re.escape(token["sign"] or token["quoted"] or "'"))
            continue
        name, digits = _FIELDS.get(letters, ("", ""))
        if not name or name in seen:
            return None
        seen.add(name)
        parts.append(f"(?P<{name}>{digits})")
    return re.compile("".join(parts), re.ASCII)


def _moment(
    spec: PartitionSpec, patterns: Mapping[str, str], readers: Mapping[str, re.Pattern[str]]
) -> datetime:
    """Return when a partition begins, on the wall clock."""
    fields: dict[str, int] = {}
    for column, value in spec.items():
        found = readers[column].fullmatch(value)
        if found is None:
            raise _value_error(column, value, patterns[column])
        fields.update({name: int(digits) for name, digits in found.groupdict().items()})
    try:
        return datetime(
            fields["year"],
            fields.get("month", 1),
            fields.get("day", 1),
            fields.get("hour", 0),
            fields.get("minute", 0),
            fields.get("second", 0),
            tzinfo=UTC,
        )
    except ValueError as error:
        column = next(iter(spec))
        raise _value_error(column, spec[column], patterns[column]) from error


def _value_error(column: str, value: str, pattern: str) -> Exception:
    reason = f"{column} = {value!r} does not match {pattern}"
    return error(Code.MT_PARTITION_RANGE, reason=reason)
