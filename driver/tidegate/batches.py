"""Many sets of parameters for one INSERT as few statements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tidegate.parameters import Parameters, bind

MAX_ROWS: Final = 1000
"""Rows per statement; Spark's parser slows down with more."""

MAX_CHARACTERS: Final = 1 << 20
"""Characters of values per statement."""

_TOKEN = re.compile(
    r"""
      '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*` | --[^\n]* | /\*.*?\*/
    | (?P<values> \bVALUES\b ) | (?P<open> \( ) | (?P<close> \) )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_INSERT = re.compile(r"\s*INSERT\b", re.IGNORECASE)
_MARKER = re.compile(r"%\([^)]*\)s|%s|\?")


def insert_batches(sql: str, parameter_sets: Iterable[Parameters]) -> Iterator[str]:
    """Yield the bound statements that run ``sql`` once per set of parameters.

    An INSERT that ends in one ``VALUES (…)`` takes many sets at a time, since every statement is
    a commit of its own. Sets whose values differ in type are never mixed: within one VALUES,
    Spark would convert them to a common type.
    """
    split = split_insert(sql)
    if split is None:
        for parameters in parameter_sets:
            yield bind(sql, parameters)
        return
    head, group = split
    rows: list[str] = []
    kinds: dict[int, type] = {}
    characters = 0
    for parameters in parameter_sets:
        row = bind(group, parameters)
        full = len(rows) == MAX_ROWS or characters + len(row) > MAX_CHARACTERS
        if rows and (full or not _agree(kinds, parameters)):
            yield head + ", ".join(rows)
            rows, kinds, characters = [], {}, 0
        rows.append(row)
        characters += len(row)
        kinds |= _kinds(parameters)
    if rows:
        yield head + ", ".join(rows)


def split_insert(sql: str) -> tuple[str, str] | None:
    """Return an INSERT's text up to its one group of values, and that group.

    None for any other statement, and where markers stand outside of the group.
    """
    if not _INSERT.match(sql):
        return None
    start = _group_start(sql)
    if start is None or _group_end(sql, start) != len(sql.rstrip("; \t\r\n")):
        return None
    head, group = sql[:start], sql[start:].rstrip("; \t\r\n")
    if _MARKER.search(head) or not _MARKER.search(group):
        return None
    return head.replace("%%", "%"), group


def _group_start(sql: str) -> int | None:
    after_values = False
    for token in _TOKEN.finditer(sql):
        if after_values and token["open"]:
            return token.start()
        after_values = token["values"] is not None
    return None


def _group_end(sql: str, start: int) -> int | None:
    depth = 0
    for token in _TOKEN.finditer(sql, start):
        depth += (token["open"] is not None) - (token["close"] is not None)
        if depth == 0:
            return token.end()
    return None


def _kinds(parameters: Parameters) -> dict[int, type]:
    values = parameters.values() if isinstance(parameters, Mapping) else parameters
    return {position: type(value) for position, value in enumerate(values) if value is not None}


def _agree(kinds: dict[int, type], parameters: Parameters) -> bool:
    return all(kinds.get(position, kind) is kind for position, kind in _kinds(parameters).items())
