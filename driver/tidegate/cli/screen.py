"""What repeated results have in common: they fit on a screen, which is cleared between them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidegate.cli.formats import Page, Row
from tidegate.cli.run import Display

SHOWN_ROWS: Final = 1000
"""Rows that are kept of a result; further ones are not shown."""
_CLEAR = "\x1b[H\x1b[2J"


def clear(display: Display) -> None:
    """Clear the screen if there is one."""
    if display.out.isatty():
        display.out.write(_CLEAR)


def first_rows(pages: Iterable[Page]) -> tuple[list[Row], bool]:
    """Return the first rows, and whether there are more."""
    rows: list[Row] = []
    for page in pages:
        rows += page
        if len(rows) > SHOWN_ROWS:
            return rows[:SHOWN_ROWS], True
    return rows, False
