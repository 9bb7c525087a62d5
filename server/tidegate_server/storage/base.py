"""What a table format promises to the engine.

Guarantees: a write is one atomic commit that carries data, epoch and vector together; readers see
whole commits only; an epoch equal to or lower than the last one writes nothing and is reported as
MT_REFRESH_FENCED; a version once read can be read again until the format's own retention ends.
Not guaranteed: that commits come only from refreshes; ``last_commit`` tells of others.
Recovery: after a crash ``last_commit`` says what was committed; whatever was not is not visible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from tidegate_server.model.names import TableName, quote_identifier
from tidegate_server.model.types import Schema
from tidegate_server.model.versions import PartitionSpec
from tidegate_server.refresh.request import CommittedRefresh, RefreshOrder


def is_path(name: TableName) -> bool:
    """Say whether this is a table named by its path, such as delta.`/place`."""
    return name.table.startswith("/")


def table_sql(name: TableName) -> str:
    """Return the name in SQL; a table named by its path has no catalog."""
    if is_path(name):
        return f"{quote_identifier(name.schema)}.{quote_identifier(name.table)}"
    return name.quoted()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table as one look found it."""

    table_id: str
    version: int
    """The last version that may have changed rows; what vectors record and compare."""
    newest: int
    """The newest version, with the same rows; what is read."""
    materialized_id: str | None = None
    """``tidegate.id`` of a materialized table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A commit this process made."""

    version: int
    rows: int | None


class TableFormat(Protocol):
    """Stores tables with versions; every method may be called from any thread."""

    def find(self, name: TableName) -> TableState | None:
        """Return the table's state without a Spark job; None if there is no such table of this
        format."""
        ...

    def pinned(self, name: TableName, version: int) -> str:
        """Return the SQL that reads the table at a version."""
        ...

    def create(
        self,
        name: TableName,
        schema: Schema,
        partition_keys: Sequence[str],
        comment: str | None,
        properties: Mapping[str, str],
    ) -> tuple[str, str]:
        """Create an empty table and return its location and table id.

        Doing it again for the same ``tidegate.id`` is harmless.

        :raises ServerError: Spark's TABLE_OR_VIEW_ALREADY_EXISTS if the name is taken.
        """
        ...

    def set_properties(self, name: TableName, properties: Mapping[str, str]) -> None:
        """Add or replace table properties."""
        ...

    def drop(self, name: TableName, materialized_id: str) -> None:
        """Drop the table with its data if it carries this ``tidegate.id``; else do nothing."""
        ...

    def last_commit(self, name: TableName, materialized_id: str) -> CommittedRefresh | None:
        """Return the last refresh commit, without a Spark job; None if there is none."""
        ...

    def write(
        self,
        frame: DataFrame,
        order: RefreshOrder,
        vector: Mapping[str, int],
        *,
        partitions: Sequence[PartitionSpec],
        partial: bool,
    ) -> Written:
        """Replace the whole table, or the given partitions, by ``frame`` in one commit.

        ``frame`` has the table's columns in order. With partitions it is filtered to them.

        :raises ServerError: MT_REFRESH_FENCED if a later epoch was committed already.
        """
        ...
