"""What a table format promises to the engine.

Guarantees: a write is one atomic commit that carries data, epoch and vector together; readers see
whole commits only; an epoch equal to or lower than the last one writes nothing and is reported as
MT_REFRESH_FENCED; a version once read can be read again until the format's own retention ends.
Not guaranteed: that commits come only from refreshes; ``last_commit`` tells of others.
Recovery: after a crash ``last_commit`` says what was committed; whatever was not is not visible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.messages.requests import TablePlace
from tidegate_server.core.model.names import TableName, quote_identifier
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.model.types import Schema
from tidegate_server.core.model.versions import PartitionSpec
from tidegate_server.core.refresh.request import CommittedRefresh, RefreshOrder
from tidegate_server.core.refresh.upkeep import FilesFound, FilesRemoved, FilesRewritten, Horizon
from tidegate_server.engine.storage.row_change import RowChange


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
    columns: tuple[str, ...]
    """Of that version."""
    materialized_id: str | None = None
    """``tidegate.id`` of a materialized table."""
    commit: str | None = None
    """What tells the commit of ``version`` from that of another history; None if nothing does."""


class Method(Enum):
    """How a source's change was read."""

    UNCHANGED = "UNCHANGED"
    """No row changed."""
    APPENDED = "APPENDED"
    """Rows were only added: exactly the added files are read."""
    CHANGE_FEED = "CHANGE_FEED"
    """The table records its changes."""
    DIFFERENCE = "DIFFERENCE"
    """What is in the files that were replaced is compared."""
    WHOLE = "WHOLE"
    """The change is not known; every row may have changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundChange:
    """A table's change between two versions as the format reads it."""

    method: Method
    reason: str = ""
    """Why the change is not known; empty unless the method is WHOLE."""
    base: int | None = None
    """The last version with the rows that the first one had, if it is known."""
    rows: int | None = None
    """Rows added and removed, when the commits tell; an upper bound."""
    guess: int | None = None
    """About how many they are, when only the sizes of files tell."""
    read: Callable[[], DataFrame] | None = None
    """Returns the table's columns and ``__weight BIGINT``, 1 for an added and -1 for a removed row;
    the same row may come again. None when the method is UNCHANGED or WHOLE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A commit this process made."""

    version: int
    rows: int | None
    rows_inserted: int | None = None
    rows_deleted: int | None = None
    rows_copied: int | None = None
    files_written: int | None = None
    bytes_written: int | None = None
    expectations: Mapping[str, int] = field(default_factory=dict)
    """Rows that broke each expectation, values of the key that do not keep it, and 1 for each
    assertion that is broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """What a table is made of."""

    schema: Schema
    partition_keys: tuple[str, ...]
    comment: str | None
    location: str
    properties: Mapping[str, str]


class DiffMismatchError(Exception):
    """The table does not hold what a diff takes away: refresh fully instead.

    Raised before anything is committed, so that the order's epoch is still unused.
    """


class TableFormat(Protocol):
    """Stores tables with versions; every method may be called from any thread."""

    name: str
    """As ``USING`` names it."""

    def find(self, name: TableName) -> TableState | None:
        """Return the table's state without a Spark job; None if there is no such table of this
        format."""
        ...

    def commit_id(self, name: TableName, version: int) -> str | None:
        """Return what tells the commit of a version from that of another history, without a Spark
        job; None if there is no such commit, or none any more."""
        ...

    def version_sql(self, name: TableName, version: int) -> str:
        """Return the SQL that reads the table at a version."""
        ...

    def rows(self, session: SparkSession, name: TableName, version: int) -> DataFrame:
        """Return the rows of the table at a version; cheap when it is the newest one."""
        ...

    def create(
        self,
        name: TableName,
        schema: Schema,
        partition_keys: Sequence[str],
        comment: str | None,
        properties: Mapping[str, str],
        location: str = "",
    ) -> tuple[str, str]:
        """Create an empty table in a directory of its own; return its location and table id.

        Doing it again for the same ``tidegate.id`` is harmless: a table that is there is kept, and
        gets an entry in the metastore if it has none.

        :param location: where the table was before its files or its entry were lost.

        :raises ServerError: Spark's TABLE_OR_VIEW_ALREADY_EXISTS if the name is taken.
        """
        ...

    def describe(self, name: TableName) -> TableDescription:
        """Return what a table that :meth:`find` found is made of.

        :raises ServerError: MT_NOT_FOUND if it was dropped meanwhile.
        """
        ...

    def set_properties(self, name: TableName, properties: Mapping[str, str]) -> None:
        """Add or replace table properties."""
        ...

    def evolve(
        self,
        name: TableName,
        materialized_id: str,
        schema: Schema,
        comment: str | None,
        properties: Mapping[str, str | None],
        *,
        widened: Sequence[str] = (),
        adopts: str | None = None,
    ) -> None:
        """Bring the table to this schema, comment and properties in one commit; rows stay.

        Columns are matched by name; new ones are NULL in the rows that are there. Only the types
        of ``widened`` columns change. A property of None is removed. ``adopts`` is the
        ``tidegate.id`` of a table that is taken over, empty for one that has none.

        :raises ServerError: MT_DATA_LOST if there is no table of this ``tidegate.id``.
        """
        ...

    def rename(self, name: TableName, new_name: TableName, materialized_id: str) -> None:
        """Rename the table if it carries this ``tidegate.id``; else do nothing. Files stay."""
        ...

    def place(self, places: Sequence[TablePlace]) -> tuple[str, ...]:
        """Let names that exist point at tables by their locations; return their table ids.

        A name finds some whole table at every moment; one that points there already is left alone.

        :raises ServerError: MT_DATA_LOST, before anything is changed, if a location has no table
            of that ``tidegate.id``.
        """
        ...

    def drop(self, name: TableName, materialized_id: str, location: str = "") -> None:
        """Remove the entry and the files of the table of this ``tidegate.id``, and no others.

        Doing it again, after any part of it, is harmless. Files at a place that a person chose
        stay, as a plain table.

        :param location: where the table is known to lie, should the metastore not know.
        """
        ...

    def last_commit(
        self, name: TableName, materialized_id: str, *, at: int | None = None
    ) -> CommittedRefresh | None:
        """Return the last refresh commit, without a Spark job; None if there is none.

        :param at: look at the table as it was at this version.
        """
        ...

    def change(
        self, session: SparkSession, name: TableName, table_id: str, before: int, after: int
    ) -> FoundChange:
        """Read what changed after version ``before`` up to ``after``; starts no Spark job.

        :param table_id: the identity the table had at ``before``.
        """
        ...

    def write(
        self,
        frame: DataFrame,
        order: RefreshOrder,
        vector: Mapping[str, int],
        *,
        partitions: Sequence[PartitionSpec],
        partial: bool,
        strategy: Strategy | None = None,
    ) -> Written:
        """Replace the whole table, or the given partitions, by ``frame`` in one commit.

        ``frame`` has the query's columns in order. With partitions it is filtered to them. Rows
        that are immutable at ``order.frozen_at`` are neither replaced nor written.

        :param strategy: recorded with the commit; None means PARTITION or FULL.

        :raises ServerError: MT_REFRESH_FENCED if a later epoch was committed already,
            MT_EXPECTATION_FAILED if a row breaks an expectation that is to stop the refresh,
            MT_PK_VIOLATED if the primary key would not hold and that is to stop it,
            MT_ASSERTION_FAILED if an assertion is to stop it, MT_VERSION_HELD if one has the
            result held, which then waits beside the table.
        """
        ...

    def gate(
        self,
        content: DataFrame,
        order: RefreshOrder,
        vector: Mapping[str, int],
        *,
        strategy: Strategy,
        partial: bool = False,
    ) -> Mapping[str, int]:
        """Judge all rows that a commit would leave by the table's assertions.

        Returns 1 for each that is broken and 0 for each other one, by name.

        :raises ServerError: MT_ASSERTION_FAILED, or MT_VERSION_HELD once the rows are held.
        """
        ...

    def find_held(
        self, name: TableName, materialized_id: str, refresh_id: str | None = None
    ) -> CommittedRefresh | None:
        """Return what is said of the version that is held, or None; starts no Spark job.

        One that a later commit of the table has overtaken is held no more.

        :param refresh_id: only the result of this refresh is meant.
        """
        ...

    def held_rows(self, name: TableName, refresh_id: str, session: SparkSession) -> DataFrame:
        """Return the rows of a version that :meth:`find_held` found."""
        ...

    def discard_held(self, name: TableName, materialized_id: str) -> None:
        """Throw away what is held beside the table if it carries this ``tidegate.id``."""
        ...

    def fit_columns(self, order: RefreshOrder, frame: DataFrame, *carried: str) -> DataFrame:
        """Return the query's columns cast and ordered as the table has them.

        :param carried: names of further columns, the frame's last, that stay as they are.
        """
        ...

    def untouched_since(self, order: RefreshOrder, version: int) -> bool:
        """Say whether the table's rows are those of a version, by its commits."""
        ...

    def append(
        self, frame: DataFrame, order: RefreshOrder, vector: Mapping[str, int], *, base: int
    ) -> Written:
        """Add fitted rows in one commit that builds on version ``base``; raises as ``write``."""
        ...

    def ingest(self, frame: DataFrame, order: RefreshOrder, *, base: int | None) -> Written:
        """Add the rows that a stream brought, with ``order.offsets``, in one commit.

        ``frame`` has the query's columns in order; ``base`` is the version of the last refresh,
        whose offsets the rows follow. Raises as ``write``; MT_REFRESH_FENCED also if another
        refresh was committed since.
        """
        ...

    def change_rows(
        self,
        session: SparkSession,
        change: RowChange,
        order: RefreshOrder,
        vector: Mapping[str, int],
        *,
        base: int,
    ) -> Written:
        """Remove and add rows in one commit that builds on version ``base``; raises as ``write``.

        :raises DiffMismatchError: if the table does not hold all that is to go.
        """
        ...

    def advance(
        self, session: SparkSession, order: RefreshOrder, vector: Mapping[str, int], *, base: int
    ) -> Written:
        """Commit vector and epoch without rows; raises as ``write``."""
        ...

    def inspect_files(
        self, name: TableName, materialized_id: str, versions: Sequence[int], back: int
    ) -> FilesFound | None:
        """Return what is known of the files; None if there is no table of this ``tidegate.id``.

        :param versions: those of which it is asked when they were made.
        :param back: and the one so many before the newest.
        """
        ...

    def rewrite_files(
        self, name: TableName, materialized_id: str, upkeep_id: str
    ) -> FilesRewritten:
        """Write many small files as few large ones, in commits that change no row.

        The caller holds the table's lease: a refresh that runs beside it could conflict.
        """
        ...

    def remove_files(
        self, name: TableName, materialized_id: str, horizon: Horizon, upkeep_id: str
    ) -> FilesRemoved:
        """Delete what no version since the horizon needs; refreshes may run meanwhile."""
        ...
