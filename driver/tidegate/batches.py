"""Many sets of parameters for one INSERT as few statements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tidegate.lexical import compile_tokens, find_tokens
from tidegate.literals import is_null
from tidegate.parameters import Parameters, Template, bind

MAX_ROWS: Final = 1000
"""Rows per statement; Spark's parser slows down with more."""

MAX_VALUES: Final = 50_000
"""Values per statement; servers also limit the words and signs of a statement."""

MAX_BYTES: Final = 1 << 20
"""Bytes per statement, unless one row alone has more."""
_SEPARATOR: Final = ", "

_TOKEN = compile_tokens(r"(?P<values> \b(?i:VALUES)\b ) | (?P<open> \( ) | (?P<close> \) )")
_INSERT = re.compile(r"\s*INSERT\b", re.IGNORECASE)


def insert_batches(
    sql: str, parameter_sets: Iterable[Parameters], max_bytes: int = MAX_BYTES
) -> Iterator[str]:
    """Yield the bound statements that run ``sql`` once per set of parameters.

    An INSERT that ends in one ``VALUES (…)`` takes many sets at a time, since every statement is
    a commit of its own. Sets whose values differ in type are never mixed: within one VALUES,
    Spark would convert them to a common type.

    :param max_bytes: of a statement that takes several sets, in UTF-8.
    """
    split = split_insert(sql)
    if split is None:
        whole = Template(sql)
        for parameters in parameter_sets:
            yield whole.bind(parameters)
        return
    group = Template(split[1])
    head = split[0] if group.uses_question_marks else bind(split[0], ())
    rows: list[str] = []
    kinds: dict[int, type] = {}
    start = size = _size(head)
    for parameters in parameter_sets:
        row = group.bind(parameters)
        added = _size(row) + len(_SEPARATOR)
        full = (
            len(rows) == MAX_ROWS
            or (len(rows) + 1) * len(parameters) > MAX_VALUES
            or size + added > max_bytes
        )
        if rows and (full or not _agree(kinds, parameters)):
            yield head + _SEPARATOR.join(rows)
            rows, kinds, size = [], {}, start
        rows.append(row)
        size += added
        kinds |= _kinds(parameters)
    if rows:
        yield head + _SEPARATOR.join(rows)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def split_insert(sql: str) -> tuple[str, str] | None:
    """Return an INSERT's text up to its one group of values, and that group.

    None for any other statement, and if there are markers outside of the group.
    """
    if not _INSERT.match(sql):
        return None
    start = _group_start(sql)
    if start is None or _group_end(sql, start) != len(sql.rstrip("; \t\r\n")):
        return None
    head, group = sql[:start], sql[start:].rstrip("; \t\r\n")
    if Template(head).has_markers or not Template(group).has_markers:
        return None
    return head, group


def _group_start(sql: str) -> int | None:
    after_values = False
    for token in find_tokens(_TOKEN, sql):
        if after_values and token.kind == "open":
            return token.start
        after_values = token.kind == "values"
    return None


def _group_end(sql: str, start: int) -> int | None:
    depth = 0
    for token in find_tokens(_TOKEN, sql, start):
        depth += (token.kind == "open") - (token.kind == "close")
        if depth == 0:
            return token.end
    return None


def _kinds(parameters: Parameters) -> dict[int, type]:
    values = parameters.values() if isinstance(parameters, Mapping) else parameters
    return {position: type(value) for position, value in enumerate(values) if not is_null(value)}


def _agree(kinds: dict[int, type], parameters: Parameters) -> bool:
    return all(kinds.get(position, kind) is kind for position, kind in _kinds(parameters).items())
