"""Repeats a statement and marks what changed in its result."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from tidegate.cli.formats import Page, Row
from tidegate.cli.run import InterruptedStatementError, run_statement
from tidegate.cli.screen import clear, first_rows
from tidegate.cli.script import Workbench


def watch(
    bench: Workbench,
    sql: str,
    seconds: float,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Run a statement every ``seconds`` until Ctrl-C.

    From the second time on, the first column is ``+`` for rows that are new, and rows that are gone
    follow with ``-``.

    :raises tidegate.Error: if the statement fails.
    """
    display = bench.display
    before: Sequence[Row] | None = None

    def mark(names: Sequence[str], pages: Iterable[Page]) -> tuple[Sequence[str], Iterable[Page]]:
        nonlocal before
        rows, more = first_rows(pages)
        marked = [("", *row) for row in rows] if before is None else mark_changes(before, rows)
        before = rows
        if more:
            marked.append(("…", *("" for _ in names)))
        return ["", *names], [marked]

    try:
        while True:
            clear(display)
            text = " ".join(sql.split())
            display.notice(f"{time.strftime('%H:%M:%S')}, every {seconds:g} s: {text}")
            run_statement(bench.require(), sql, display, mark)
            sleep(seconds)
    except (InterruptedStatementError, KeyboardInterrupt):
        display.notice("")


def mark_changes(before: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """Return the rows with ``+`` before new ones, then those that are gone with ``-``."""
    # Rows may hold lists and maps, which are not hashable.
    known = Counter(map(repr, before))
    marked: list[Row] = []
    for row in rows:
        key = repr(row)
        marked.append(("" if known[key] else "+", *row))
        known[key] -= known[key] > 0
    for row in before:
        key = repr(row)
        if known[key]:
            marked.append(("-", *row))
            known[key] -= 1
    return marked
