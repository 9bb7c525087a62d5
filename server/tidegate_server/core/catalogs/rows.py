"""Rows that a catalog written in Python reads and writes itself, where Spark has no data source.

The tables have the format :data:`ROWS`. The catalog plans what a query reads; its functions then
run in Spark's workers of Python, in as many tasks as the plan has parts, and exchange batches of
Arrow. Every state of a table has a number, so that refreshes read the state with which they were
planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

import pyarrow as pa

ROWS: Final = "rows"
"""The format of tables whose rows the catalog reads itself."""
WEIGHT: Final = "__weight"
"""The column of a change: 1 for an added row, -1 for a removed one."""
EMPTY: Final = 0
"""The version of a table to which nothing was ever written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """One state of the rows of a table."""

    table_id: str
    """Another one for a table that was dropped and created again."""
    version: int
    """Its number; of the newest state, that of the last one that may have changed rows. Later
    states have greater numbers."""
    newest: int
    """Its number in any case; the one to read."""
    commit: str
    """The number ``version``, then ``-`` and what identifies this state whatever the history, then
    ``@`` and what identifies the columns of the table; only the last for an empty table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """A condition on rows; Spark tests it again, so that it only has to keep enough rows."""

    op: str
    """``=``, ``<``, ``<=``, ``>``, ``>=``, ``in``, ``starts with``, ``is null``, ``is not null``
    compare a column; ``and`` and ``or`` join conditions."""
    column: str = ""
    values: tuple[str, ...] = ()
    """What the column is compared with, as text."""
    parts: tuple[RowFilter, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowScan:
    """What is read of a table."""

    version: int
    columns: tuple[str, ...]
    """Their names, and perhaps :data:`WEIGHT`, in the order in which they are wanted."""
    filters: tuple[RowFilter, ...] = ()
    """All of them hold for the rows that are needed."""
    after: int | None = None
    """Read the rows that were added or removed after this version, instead of all; the same row
    can be among both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReader:
    """How a scan is carried out."""

    parts: tuple[bytes, ...]
    """What each task reads."""
    read: Callable[[bytes], Iterator[pa.RecordBatch]]
    """Reads a part, in a worker that cannot reach the catalog; is pickled."""
    rows: int
    """At most; for the choice of a plan."""
    size: int
    """Bytes in storage, roughly; for the choice of a plan."""
    removed: int = 0
    """Of the rows of a change, those that were removed."""


class Overwrite(Enum):
    """Which rows a write replaces."""

    NOTHING = "nothing"
    ALL = "all"
    PARTITIONS = "partitions"
    """Those of the partitions that it writes rows to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWriter:
    """How rows are written, before :meth:`WritesRows.commit` makes them visible."""

    write: Callable[[Iterator[pa.RecordBatch]], bytes]
    """Writes the rows of a task, in a worker; returns what is to be committed. Is pickled."""
    cluster_by: tuple[str, ...] = ()
    """Columns: rows that are equal in them are written by one task."""
    one_task: bool = False
    """Whether all rows are written by one task, if there is ``cluster_by``."""


class ReadsRows(Protocol):
    """What a catalog offers whose tables have the format :data:`ROWS`."""

    def table_version(
        self, schema: str, name: str, version: str | None, millis: int | None
    ) -> TableVersion | None:
        """Return the state of a table; None if there is no such table.

        :param version: what VERSION AS OF names; None for the newest.
        :param millis: the time that TIMESTAMP AS OF names, in milliseconds since 1970.
        :raises CatalogError: if there is no such state.
        """
        ...

    def read_rows(self, schema: str, name: str, scan: RowScan) -> RowReader:
        """Plan a scan.

        :raises CatalogError: if a version does not exist any more.
        """
        ...


class WritesRows(Protocol):
    """What a catalog offers if rows are inserted into such tables."""

    def write_rows(self, schema: str, name: str, overwrite: Overwrite) -> RowWriter:
        """Return how rows are written."""
        ...

    def commit_rows(
        self, schema: str, name: str, overwrite: Overwrite, written: Sequence[bytes]
    ) -> None:
        """Make what the tasks have written visible, in one step."""
        ...

    def discard_rows(self, schema: str, name: str, written: Sequence[bytes]) -> None:
        """Delete what tasks have written, since others failed."""
        ...
