"""Row factories: the shapes of a fetched row."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

Row = tuple[Any, ...]
RowMaker = Callable[[Row], Any]
RowFactory = Callable[[Sequence[str]], RowMaker]
"""Takes the column names and returns the function that makes a row of a tuple of values."""


def tuple_row(names: Sequence[str]) -> RowMaker:
    """Rows are plain tuples; the default."""
    return _identity


def _identity(values: Row) -> Row:
    return values


def dict_row(names: Sequence[str]) -> RowMaker:
    """Rows are dictionaries by column name; of columns with the same name the last one wins."""
    keys = tuple(names)

    def make(values: Row) -> dict[str, Any]:
        return dict(zip(keys, values, strict=True))

    return make


def namedtuple_row(names: Sequence[str]) -> RowMaker:
    """Rows are named tuples; names that are not identifiers become ``_0``, ``_1`` and so on."""
    kind: Any = namedtuple("Row", tuple(names), rename=True)  # type: ignore[misc]
    make: RowMaker = kind._make
    return make
