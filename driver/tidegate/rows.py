"""Rows: made of columns, in the shapes of row factories."""

from __future__ import annotations

import gc
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

Values: TypeAlias = tuple[Any, ...]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Row = TypeVar("Row", default=Values)
else:
    from typing import TypeVar

    # Before Python 3.13, typing's own has no default.
    Row = TypeVar("Row")

RowMaker: TypeAlias = Callable[[Values], Row]
RowFactory: TypeAlias = Callable[[Sequence[str]], RowMaker[Row]]
"""Takes the column names and returns the function that makes a row of a tuple of values."""


def tuple_row(names: Sequence[str]) -> RowMaker[Values]:
    """Rows are plain tuples; the default."""
    return _identity


def _identity(values: Values) -> Values:
    return values


def dict_row(names: Sequence[str]) -> RowMaker[dict[str, Any]]:
    """Rows are dictionaries by column name; of columns with the same name the last one wins."""
    keys = tuple(names)

    def make(values: Values) -> dict[str, Any]:
        return dict(zip(keys, values, strict=True))

    return make


def namedtuple_row(names: Sequence[str]) -> RowMaker[Any]:
    """Rows are named tuples; names that are not identifiers become ``_0``, ``_1`` and so on."""
    kind: Any = namedtuple("Row", tuple(names), rename=True)  # type: ignore[misc]
    make: RowMaker[Any] = kind._make
    return make


def rows_of(columns: Sequence[Sequence[Any]]) -> list[Values]:
    """Return columns of the same length as rows.

    The garbage collector is off meanwhile. It would start after every few hundred tuples, find no
    garbage among them, and take longer than making them.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return list(zip(*columns, strict=True))
    finally:
        if collecting:
            gc.enable()
