"""Window table functions and group windows.

https://nightlies.apache.org/flink/flink-docs-stable/docs/dev/table/sql/queries/window-tvf/

Windows are counted in local time from 1970, half open, also before it. Rows without a time are in
no window. The functions and Spark's ``window`` keep queries deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate_server.core.sql.flink.intervals import Interval, interval
from tidegate_server.core.sql.flink.output import Parts
from tidegate_server.core.sql.flink.rewriter import Argument, Call, Rule
from tidegate_server.core.sql.flink.tokens import Item, sees, split

_NONE = "INTERVAL '0' SECOND"
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
    "SESSION": ("DATA", "TIMECOL", "GAP"),
}
_LENGTHS = "Write a literal of days, hours, minutes or seconds: INTERVAL '10' MINUTES."


class _Table:
    """The arguments of a window table function."""

    def __init__(self, call: Call) -> None:
        self.call = call
        names = _PARAMETERS[call.name]
        self.given: dict[str, tuple[Item, ...]] = {}
        for i, part in enumerate(split(call.group.inner)):
            if len(part) > 2 and part[1].word == "=>":
                name, items = part[0].word, part[2:]
            else:
                name, items = (names[i] if i < len(names) else ""), part
            if name not in names or name in self.given or not items:
                raise call.rewriter.unexpected(part, 0, f"one of {', '.join(names)}")
            self.given[name] = items
        for name in names:
            if name not in self.given and name != "OFFSET":
                raise call.refuse(f"Give {name}.", f"{call.name} without {name}")
        self.data, self.keys = self._data()
        self.time = self._descriptor()

    def length(self, name: str, least: int = 1) -> Interval:
        """Return an interval of at least ``least`` microseconds."""
        return _length(self.call, self.given[name], name, least)

    @property
    def offset(self) -> str:
        """Spark's literal of the offset."""
        if "OFFSET" not in self.given:
            return _NONE
        return self.length("OFFSET", -(10**15)).literal

    def _data(self) -> tuple[Parts, tuple[Parts, ...]]:
        items = self.given["DATA"]
        if items[0].word != "TABLE":
            raise self.call.rewriter.unexpected(items, 0, "TABLE and the name of a table")
        by = next((i for i, item in enumerate(items) if item.word == "PARTITION"), len(items))
        order = next((i for i, item in enumerate(items) if item.word == "ORDER"), len(items))
        table = items[1 : min(by, order)]
        if not table:
            raise self.call.rewriter.unexpected(items, 1, "the name of a table")
        data = self.call.rewriter.relation(table)
        if by == len(items):
            return data, ()
        if self.call.name != "SESSION":
            hint = "Leave it out: it does not change the windows of a row."
            raise self.call.refuse(hint, f"PARTITION BY in {self.call.name}")
        if not sees(items, by, "PARTITION", "BY") or by + 2 >= len(items):
            raise self.call.rewriter.unexpected(items, by + 1, "BY and columns")
        keys = items[by + 2 : order if order > by else len(items)]
        listed = keys[0].inner if len(keys) == 1 and keys[0].opens("(") else keys
        return data, tuple(self.call.rewriter.expression(key) for key in split(listed))

    def _descriptor(self) -> Parts:
        items = self.given["TIMECOL"]
        if len(items) != 2 or items[0].word != "DESCRIPTOR" or not items[1].opens("("):
            raise self.call.rewriter.unexpected(items, 0, "DESCRIPTOR(column)")
        if len(items[1].inner) != 1 or not items[1].inner[0].named:
            raise self.call.rewriter.unexpected(items[1].inner, 0, "the name of one column")
        return self.call.rewriter.expression(items[1].inner)


def _length(call: Call, items: Sequence[Item], name: str, least: int = 1) -> Interval:
    found = interval(items, 0) if items else None
    if found is None or found.next != len(items) or found.micros is None:
        raise call.refuse(_LENGTHS, f"The {name} of {call.name}")
    if found.micros < least or found.micros % 1000:
        raise call.refuse(_LENGTHS, f"The {name} of {call.name}")
    return found


def _multiple(call: Call, whole: Interval, part: Interval, names: str) -> None:
    if (whole.micros or 0) % (part.micros or 1):
        raise call.refuse("The size has to be a multiple.", f"{call.name} with other {names}")


def is_table(call: Call) -> bool:
    """Return whether a window function is called with a table."""
    items = call.group.inner
    return sees(items, 0, "TABLE") or (len(items) > 1 and items[1].word == "=>")


# ---- table functions ---------------------------------------------------------------------------


def _tumble_table(call: Call) -> Parts:
    table = _Table(call)
    time, size = table.time, table.length("SIZE").literal
    end = ("flink_window_end(", time, f", {size}, {table.offset})")
    return call.made(
        "(SELECT *, flink_window_start(", time, f", {size}, {table.offset}) AS window_start, ",
        *end, " AS window_end, flink_window_time(", time, ", ", *end, ") AS window_time FROM ",
        table.data, " WHERE ", time, " IS NOT NULL)",
    )  # fmt: skip


def _hop_table(call: Call) -> Parts:
    table = _Table(call)
    slide, size = table.length("SLIDE"), table.length("SIZE")
    _multiple(call, size, slide, "sizes than multiples of the slide")
    time, end = table.time, f"window_start + {size.literal}"
    return call.made(
        f"(SELECT *, {end} AS window_end, flink_window_time(", time, f", {end}) AS window_time ",
        "FROM (SELECT *, explode(flink_hop_starts(", time,
        f", {slide.literal}, {size.literal}, {table.offset})) AS window_start FROM ",
        table.data, "))",
    )  # fmt: skip


def _cumulate_table(call: Call) -> Parts:
    table = _Table(call)
    step, size = table.length("STEP"), table.length("SIZE")
    _multiple(call, size, step, "sizes than multiples of the step")
    time = table.time
    return call.made(
        "(SELECT *, flink_window_time(", time, ", window_end) AS window_time FROM (SELECT *, ",
        "flink_window_start(", time, f", {size.literal}, {table.offset}) AS window_start, ",
        "explode(flink_cumulate_ends(", time,
        f", {step.literal}, {size.literal}, {table.offset})) AS window_end FROM ",
        table.data, "))",
    )  # fmt: skip


def _session_table(call: Call) -> Parts:
    """Number the sessions of each key: one begins after a gap without rows."""
    table = _Table(call)
    gap, time = table.length("GAP").literal, table.time
    local = ("CAST(", time, " AS TIMESTAMP_NTZ)")
    keys: list[str | Parts] = []
    for i, key in enumerate(table.keys):
        keys += [", " if i else "", key]
    by = ("PARTITION BY ", *keys, " ") if keys else ()
    ordered = (*by, "ORDER BY ", *local)
    listed = ("PARTITION BY ", *keys, ", " if keys else "", "tidegate_session")
    end = ("max(", *local, f") OVER tidegate_window + {gap}")
    return call.made(
        "(SELECT * EXCEPT (tidegate_begins, tidegate_session), min(", *local,
        ") OVER tidegate_window AS window_start, ", *end, " AS window_end, flink_window_time(",
        time, ", ", *end, ") AS window_time FROM (SELECT *, sum(tidegate_begins) OVER (", *ordered,
        ") AS tidegate_session FROM (SELECT *, CASE WHEN lag(", *local, ") OVER (", *ordered,
        f") + {gap} >= ", *local, " THEN 0 ELSE 1 END AS tidegate_begins FROM ", table.data,
        " WHERE ", time, " IS NOT NULL)) WINDOW tidegate_window AS (", *listed, "))",
    )  # fmt: skip


# ---- group windows -----------------------------------------------------------------------------


def _tumble(call: Call) -> Parts | None:
    if is_table(call):
        return _tumble_table(call)
    time, size, offset = _tumbling(call)
    call.rewriter.require_time(time)
    return call.made("flink_window_start(", time, f", {size}, {offset})")


def _tumble_start(call: Call) -> Parts | None:
    time, size, offset = _tumbling(call)
    return call.made("flink_window_start(", time, f", {size}, {offset})")


def _tumble_end(call: Call) -> Parts | None:
    time, size, offset = _tumbling(call)
    return call.made("flink_window_end(", time, f", {size}, {offset})")


def _tumble_time(call: Call) -> Parts | None:
    time, size, offset = _tumbling(call)
    end = ("flink_window_end(", time, f", {size}, {offset})")
    return call.made("flink_window_time(", time, ", ", *end, ")")


def _tumbling(call: Call) -> tuple[Parts, str, str]:
    arguments = _arguments(call, 2)
    size = _length(call, arguments[1].items, "size").literal
    return arguments[0].parts, size, _NONE


def _arguments(call: Call, count: int) -> list[Argument]:
    if len(call.arguments) != count:
        hint = f"Use the window table function: TABLE({call.name.split('_')[0]}(TABLE t, ...))."
        raise call.refuse(hint, f"{call.name} with {len(call.arguments)} arguments")
    return call.arguments


def _hop(call: Call) -> Parts | None:
    if is_table(call):
        return _hop_table(call)
    time, slide, size = _arguments(call, 3)
    slides, sizes = _length(call, slide.items, "slide"), _length(call, size.items, "size")
    if (slides.micros or 0) > (sizes.micros or 0):
        raise call.refuse("The slide must not exceed the size.", "HOP with gaps")
    call.rewriter.require_time(time.parts)
    return call.made(
        "window(CAST(", time.parts, f" AS TIMESTAMP_NTZ), '{sizes.micros} microseconds', ",
        f"'{slides.micros} microseconds')",
    )  # fmt: skip


def _session(call: Call) -> Parts | None:
    if is_table(call):
        return _session_table(call)
    time, gap = _arguments(call, 2)
    length = _length(call, gap.items, "gap")
    call.rewriter.require_time(time.parts)
    return call.made(
        "session_window(CAST(", time.parts, f" AS TIMESTAMP_NTZ), '{length.micros} microseconds')"
    )


def _bound(count: int, name: str) -> Rule:
    def rule(call: Call) -> Parts | None:
        _arguments(call, count)
        return call.made(name)

    return rule


def _cumulate(call: Call) -> Parts | None:
    return _cumulate_table(call) if is_table(call) else None


def _unknown_time(call: Call) -> Parts | None:
    name = call.name.split("_")[0]
    raise call.refuse(f"Use window_time of TABLE({name}(TABLE t, DESCRIPTOR(column), ...)).")


WINDOW_CALLS: Mapping[str, Rule] = {
    "TUMBLE": _tumble,
    "TUMBLE_START": _tumble_start,
    "TUMBLE_END": _tumble_end,
    "TUMBLE_ROWTIME": _tumble_time,
    "HOP": _hop,
    "HOP_START": _bound(3, "window.start"),
    "HOP_END": _bound(3, "window.end"),
    "SESSION": _session,
    "SESSION_START": _bound(2, "session_window.start"),
    "SESSION_END": _bound(2, "session_window.end"),
    "CUMULATE": _cumulate,
    **dict.fromkeys(
        ("HOP_ROWTIME", "SESSION_ROWTIME", "TUMBLE_PROCTIME", "HOP_PROCTIME", "SESSION_PROCTIME"),
        _unknown_time,
    ),
}
