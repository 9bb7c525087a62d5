"""Words of numbers in texts that people read."""

from __future__ import annotations


def number_of(count: int, noun: str) -> str:
    """Return a count with its noun, whose plural ends in s, as in ``1 row`` or ``2 rows``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
