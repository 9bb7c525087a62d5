"""Checks that rows which a condition of IMMUTABLE WHERE selects stay selected as time passes."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame

from tidegate_server.core.errors import Code, error
from tidegate_server.core.sql.clock import at_moment
from tidegate_server.engine.storage.content.predicate import select_matching
from tidegate_server.engine.storage.jvm import items, kind

_SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_CLOCKS = frozenset({"CurrentTimestamp", "Now", "CurrentDate", "LocalTimestamp"})
_LESS = frozenset({"LessThan", "LessThanOrEqual"})
_GREATER = frozenset({"GreaterThan", "GreaterThanOrEqual"})
_RISING = {
    **dict.fromkeys(("TimestampAddInterval", "TimestampAddYMInterval", "DateAddInterval"), 0),
    **dict.fromkeys(("DateAddYMInterval", "DateAdd", "DateSub", "AddMonths", "TruncDate"), 0),
    **dict.fromkeys(("DatetimeSub", "ParseToDate", "ParseToTimestamp"), 0),
    **dict.fromkeys(("TimestampAdd", "TruncTimestamp"), 1),
}
"""Functions that never fall as one argument, a time, rises; with the position of that argument."""
_MOMENTS = frozenset({"date", "timestamp", "timestamp_ntz"})
_SORTABLE = re.compile(r"yyyy(\W?MM(\W?dd(\W?HH(\W?mm(\W?ss)?)?)?)?)?")
"""Date patterns whose texts sort in chronological order."""


def check_region(rows: DataFrame, predicate: str) -> None:
    """Check the condition of IMMUTABLE WHERE over rows of the table's columns.

    :raises pyspark.errors.PySparkException: if Spark's analyzer rejects it.
    :raises ServerError: MT_PREDICATE if it reads tables, is not deterministic, or might become
        false for a row.
    """
    at_some_time = at_moment(predicate, _SOME_TIME, rows.columns)
    select_matching(rows, at_some_time)
    if at_some_time == predicate:
        return
    analyzed: Any = rows.where(predicate)._jdf.queryExecution().analyzed()
    jvm: Any = rows.sparkSession._jvm
    clock = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    if not _stays_true(analyzed.condition(), clock):
        reason = (
            "rows might leave the region as time passes; use the time only as in "
            "column < current_timestamp() - INTERVAL '1' DAY"
        )
        raise error(Code.MT_PREDICATE, predicate=predicate, reason=reason)


def _stays_true(condition: Any, clock: Any) -> bool:
    """Say whether a condition that is true for a row remains true."""
    if not condition.containsPattern(clock):
        return True
    found, below = kind(condition), list(items(condition.children()))
    if found in ("And", "Or"):
        return all(_stays_true(child, clock) for child in below)
    if found in _LESS:
        return not below[0].containsPattern(clock) and _never_falls(below[1], clock)
    if found in _GREATER:
        return not below[1].containsPattern(clock) and _never_falls(below[0], clock)
    return False


def _never_falls(value: Any, clock: Any) -> bool:
    """Say whether a value never falls as time passes."""
    found, below = kind(value), list(items(value.children()))
    if found in _CLOCKS:
        return True
    if found == "Cast":
        start = str(below[0].dataType().typeName())
        end = str(value.dataType().typeName())
        sorts = end in _MOMENTS or (start == "date" and end == "string")
        return start in _MOMENTS and sorts and _never_falls(below[0], clock)
    if found == "DateFormatClass":
        pattern = below[1]
        known = kind(pattern) == "Literal" and _SORTABLE.fullmatch(str(pattern.value()))
        return bool(known) and _never_falls(below[0], clock)
    place = _RISING.get(found)
    if place is None:
        return False
    others = below[:place] + below[place + 1 :]
    return _never_falls(below[place], clock) and not any(o.containsPattern(clock) for o in others)
