"""Replaces the clock functions in a condition with a fixed moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.dialect import tokenize

_CLOCKS: Mapping[str, str] = {
    "CURRENT_TIMESTAMP": "{moment}",
    "NOW": "{moment}",
    "CURRENT_DATE": "CAST({moment} AS DATE)",
    "CURDATE": "CAST({moment} AS DATE)",
    "LOCALTIMESTAMP": "CAST({moment} AS TIMESTAMP_NTZ)",
}
_BARE = frozenset({"CURRENT_TIMESTAMP", "CURRENT_DATE", "LOCALTIMESTAMP"})
"""Functions that need no brackets, unless a column has the name."""


def at_moment(condition: str, moment: datetime, columns: Collection[str]) -> str:
    """Return the condition with ``current_timestamp`` and similar functions replaced by ``moment``.

    Unknown spellings are kept, for Spark's analyzer to find.

    :param columns: names that mean a column unless followed by brackets.
    """
    literal = f"TIMESTAMP '{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%fZ}'"
    shadowed = {name.upper() for name in columns}
    at = Cursor(condition, tokenize(condition))
    done, parts, after_dot = 0, list[str](), False
    while not at.ended:
        start, word = at.offset, at.spelling()
        at.advance()
        known = word in _CLOCKS and not after_dot
        after_dot = word == "."
        if not known:
            continue
        if at.accept("(", ")") or (
            word in _BARE and word not in shadowed and not at.sees("(") and not at.sees(".")
        ):
            parts += [condition[done:start], f"({_CLOCKS[word].format(moment=literal)})"]
            done = at.passed
    return "".join([*parts, condition[done:]])
