"""Whether a condition can choose immutable rows: the same ones, or more of them as time goes by."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame

from tidegate_server.core.errors import Code, error
from tidegate_server.core.sql.clock import at_moment
from tidegate_server.engine.storage.jvm import items, kind
from tidegate_server.engine.storage.predicate import select_matching

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
"""Functions of a moment that never fall as it rises, with the place of the moment."""
_MOMENTS = frozenset({"date", "timestamp", "timestamp_ntz"})
_SORTABLE = re.compile(r"yyyy(\W?MM(\W?dd(\W?HH(\W?mm(\W?ss)?)?)?)?)?")
"""Patterns by which later moments are written as greater texts."""


def check_region(rows: DataFrame, predicate: str) -> None:
    """Check the condition of IMMUTABLE WHERE over rows of the table's columns.

    :raises pyspark.errors.PySparkException: what Spark's analyzer says of it.
    :raises ServerError: MT_PREDICATE if it reads tables, is not the same every time, or if rows
        might cease to fulfil it.
    """
    at_some_time = at_moment(predicate, _SOME_TIME, rows.columns)
    select_matching(rows, at_some_time)
    if at_some_time == predicate:
        return
    analyzed: Any = rows.where(predicate)._jdf.queryExecution().analyzed()
    jvm: Any = rows.sparkSession._jvm
    clock = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    if not _grows(analyzed.condition(), clock):
        reason = (
            "rows might leave the region as time goes by; the time may only stand as in "
            "column < current_timestamp() - INTERVAL '1' DAY"
        )
        raise error(Code.MT_PREDICATE, predicate=predicate, reason=reason)


def _grows(condition: Any, clock: Any) -> bool:
    """Say whether a row that fulfils a condition goes on to do so."""
    if not condition.containsPattern(clock):
        return True
    found, below = kind(condition), list(items(condition.children()))
    if found in ("And", "Or"):
        return all(_grows(child, clock) for child in below)
    if found in _LESS:
        return not below[0].containsPattern(clock) and _rises(below[1], clock)
    if found in _GREATER:
        return not below[1].containsPattern(clock) and _rises(below[0], clock)
    return False


def _rises(value: Any, clock: Any) -> bool:
    """Say whether a value never falls as time goes by."""
    found, below = kind(value), list(items(value.children()))
    if found in _CLOCKS:
        return True
    if found == "Cast":
        start = str(below[0].dataType().typeName())
        end = str(value.dataType().typeName())
        sorts = end in _MOMENTS or (start == "date" and end == "string")
        return start in _MOMENTS and sorts and _rises(below[0], clock)
    if found == "DateFormatClass":
        pattern = below[1]
        known = kind(pattern) == "Literal" and _SORTABLE.fullmatch(str(pattern.value()))
        return bool(known) and _rises(below[0], clock)
    place = _RISING.get(found)
    if place is None:
        return False
    others = below[:place] + below[place + 1 :]
    return _rises(below[place], clock) and not any(o.containsPattern(clock) for o in others)
