"""Clauses of a query as a whole: FETCH, and the rows that group windows leave out."""

from __future__ import annotations

from tidegate_server.core.sql.flink.failures import misread
from tidegate_server.core.sql.flink.output import Parts, made
from tidegate_server.core.sql.flink.units import Frame, Unit, is_keyword, joined


def finish_query(text: str, units: list[Unit], frame: Frame) -> list[Unit]:
    """Translate what concerns clauses as a whole: FETCH, and rows without a time."""
    units = _limited(text, units)
    for index, parts in reversed(frame.required):
        _require(units, frame.units[index - 1].start if index else -1, parts)
    return units


def _require(units: list[Unit], place: int, time: Parts) -> None:
    """Add a condition to the WHERE of the query that a place belongs to."""
    first = max(
        (i for i, unit in enumerate(units) if is_keyword(unit, "SELECT") and unit.start <= place),
        default=None,
    )
    if first is None:
        return
    where = group = None
    for i in range(first, len(units)):
        if is_keyword(units[i], "WHERE"):
            where = i
        if is_keyword(units[i], "GROUP"):
            group = i
            break
    if group is None:
        return
    unit = units[group]
    if where is None:
        unit.parts = made(unit.start, "WHERE ", time, " IS NOT NULL ", unit.parts)
    else:
        head, last = units[where + 1], units[group - 1]
        head.parts = made(head.start, "(", head.parts)
        last.parts = made(last.start, last.parts, ") AND ", time, " IS NOT NULL")


def _limited(text: str, units: list[Unit]) -> list[Unit]:
    """Translate OFFSET n ROWS FETCH FIRST m ROWS ONLY."""
    found: list[Unit] = []
    offset: Unit | None = None
    at = 0
    while at < len(units):
        unit = units[at]
        if (
            is_keyword(unit, "OFFSET")
            and at + 2 < len(units)
            and units[at + 2].word in ("ROW", "ROWS")
        ):
            unit = joined(text, unit, units[at + 1])
            offset = Unit(unit.start, units[at + 2].end, unit.parts)
            found.append(offset)
            at += 3
        elif (
            is_keyword(unit, "FETCH")
            and at + 1 < len(units)
            and units[at + 1].word in ("FIRST", "NEXT")
        ):
            counted = at + 2 < len(units) and units[at + 2].word not in ("ROW", "ROWS")
            rows = units[at + 2].parts if counted else made(unit.start, "1")
            end = at + (4 if counted else 3)
            if end >= len(units) or units[end].word != "ONLY":
                raise misread(text, unit.start, "FETCH", "FETCH FIRST n ROWS ONLY")
            parts = made(unit.start, "LIMIT ", rows)
            if offset is not None:  # Spark wants the limit first
                offset.parts, parts = parts, offset.parts
            found.append(Unit(unit.start, units[end].end, parts))
            at = end + 1
        else:
            found.append(unit)
            at += 1
    return found
