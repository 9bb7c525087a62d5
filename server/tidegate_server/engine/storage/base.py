"""The interface between the engine and a table format.

Guaranteed: a write is one atomic commit of data, epoch and vector; readers see whole commits only;
an epoch that is not higher than the last one writes nothing and raises MT_REFRESH_FENCED; a version
can be read until the format's own retention ends.
Not guaranteed: that only refreshes commit; ``last_commit`` reports foreign commits.
Recovery: after a crash ``last_commit`` returns what was committed; nothing else is visible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import TablePlace
from tidegate_server.core.model.names import TableName, quote_identifier
from tidegate_server.core.model.runs import ChangeMethod, Strategy
from tidegate_server.core.model.types import Schema
from tidegate_server.core.model.versions import PartitionSpec
from tidegate_server.core.refresh.maintenance import (
    FilesRemoved,
    FilesRewritten,
    FileStatistics,
    Horizon,
)
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.commit_record import CommitRecord, RecordedRefresh
from tidegate_server.engine.storage.row_change import RowChange


def is_path(name: TableName) -> bool:
    """Say whether this is a table named by its path, such as delta.`/place`."""
    return name.table.startswith("/")


def is_foreign(name: TableName) -> bool:
    """Say whether a name is that of a table outside of the session catalog."""
    return not is_path(name) and name.is_foreign


def table_sql(name: TableName) -> str:
    """Return the name in SQL; a table named by its path has no catalog."""
    if is_path(name):
        return f"{quote_identifier(name.schema)}.{quote_identifier(name.table)}"
    return name.quoted()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table at one moment."""

    table_id: str
    version: int
    """The last version that may have changed rows; what vectors record and compare."""
    newest: int
    """The newest version, which has the same rows; the one to read."""
    columns: tuple[str, ...]
    """Columns of the newest version."""
    materialized_id: str | None = None
    """``tidegate.id`` of a materialized table."""
    commit: str | None = None
    """Identifies the commit of ``version`` across histories, since a recreated table counts its
    versions from 0 again; None if there is no such commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundChange:
    """The change of a table between two versions, as the format reads it."""

    method: ChangeMethod
    reason: str = ""
    """Why the change is unknown; empty unless the method is WHOLE."""
    base: int | None = None
    """The last version that still has the rows of the first one, if known."""
    rows: int | None = None
    """Upper bound of the rows added and removed, if the commits record it."""
    guess: int | None = None
    """Estimate of the same from the sizes of files."""
    read: Callable[[], DataFrame] | None = None
    """Returns the table's columns and ``__weight BIGINT``, 1 for an added and -1 for a removed row;
    a row may occur several times. None if the method is UNCHANGED or WHOLE."""
    release: Callable[[], None] | None = None
    """Releases what ``read`` needs, when its frame is not used any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadVersion:
    """The version of a table that a leaf of an analyzed plan reads."""

    table_id: str
    version: int
    columns: frozenset[str]
    """The columns of its rows; the plan may have others, such as the names of files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A commit made by this process."""

    version: int
    rows: int | None
    rows_inserted: int | None = None
    rows_deleted: int | None = None
    rows_copied: int | None = None
    files_written: int | None = None
    bytes_written: int | None = None
    expectations: Mapping[str, int] = field(default_factory=dict)
    """By name: rows that violate an expectation, duplicate or NULL values of the key, and 1 for a
    failed assertion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """A table's schema and properties."""

    schema: Schema
    partition_keys: tuple[str, ...]
    comment: str | None
    location: str
    properties: Mapping[str, str]


class VersionGoneError(Exception):
    """A version of a source cannot be read any more."""

    def __init__(self, name: TableName, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class DiffMismatchError(Exception):
    """The table lacks rows that a diff removes: refresh fully instead.

    Raised before anything is committed, so the order's epoch can still be used.
    """


def fencing_error(order: RefreshOrder, last: RecordedRefresh | None) -> ServerError:
    """Return the error for a refresh whose epoch is not higher than that of the last commit."""
    return error(
        Code.MT_REFRESH_FENCED,
        epoch=order.epoch,
        table=str(order.name),
        current="unknown" if last is None else last.epoch,
    )


def check_epoch(order: RefreshOrder, last: RecordedRefresh | None) -> None:
    """Require an epoch above that of the last refresh; raises MT_REFRESH_FENCED."""
    if last is not None and last.epoch >= order.epoch:
        raise fencing_error(order, last)


class SourceFormat(Protocol):
    """Reads the versions of tables; every method is thread-safe, and none starts a Spark job."""

    def find(self, name: TableName) -> TableState | None:
        """Return a table's state; None unless it is a table of this format with versions."""
        ...

    def commit_id(self, name: TableName, version: int) -> str | None:
        """Return the identity of a version's commit, as :attr:`TableState.commit`; None if there
        is no such commit, or it has expired."""
        ...

    def snapshot_id(self, name: TableName, commit: str) -> str | None:
        """Return by what SQL names the version of a commit; None if by the version itself."""
        ...

    def difference(self, name: TableName, read: str, now: str) -> str:
        """Say how a table differs whose version now has another commit than when it was read."""
        ...

    def location(self, name: TableName) -> str:
        """Return what is equal for two names exactly if they are names of the same table.

        :raises ServerError: MT_NOT_FOUND if it was dropped meanwhile.
        """
        ...

    def version_sql(self, name: TableName, version: int) -> str:
        """Return the SQL that reads the table at a version: its name, or a query in parentheses.

        :raises VersionGoneError: if the version has expired.
        """
        ...

    def rows(self, session: SparkSession, name: TableName, version: int) -> DataFrame:
        """Return the rows of the table at a version; cheap for the newest one."""
        ...

    def read_version(self, leaf: Any) -> ReadVersion | None:
        """Return what a leaf of an analyzed plan reads; None if it is no version of a table."""
        ...

    def change(
        self, session: SparkSession, name: TableName, table_id: str, before: int, after: int
    ) -> FoundChange:
        """Return the change after version ``before`` up to ``after``.

        :param table_id: the identity the table had at ``before``.
        """
        ...


class TableFormat(SourceFormat, Protocol):
    """Stores versioned tables; every method is thread-safe."""

    name: str
    """The name after ``USING``."""

    sources: SourceFormat
    """The tables that queries may read, which can also be of other formats."""

    def create(
        self,
        name: TableName,
        schema: Schema,
        partition_keys: Sequence[str],
        comment: str | None,
        properties: Mapping[str, str],
        location: str = "",
    ) -> tuple[str, str]:
        """Create an empty table in its own directory; return its location and table id.

        Idempotent for a ``tidegate.id``: an existing table is kept, and entered in the metastore if
        its entry is missing.

        :param location: where the table was before its files or its entry were lost.

        :raises ServerError: Spark's TABLE_OR_VIEW_ALREADY_EXISTS if the name is taken.
        """
        ...

    def describe(self, name: TableName) -> TableDescription:
        """Describe a table that :meth:`find` found.

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
        """Change schema, comment and properties in one commit; rows stay.

        Columns are matched by name; new ones are NULL in existing rows. Only the types of
        ``widened`` columns change. A property of None is removed. ``adopts`` is the ``tidegate.id``
        of a table that is taken over, empty for a table without one.

        :raises ServerError: MT_DATA_LOST if there is no table of this ``tidegate.id``.
        """
        ...

    def rename(self, name: TableName, new_name: TableName, materialized_id: str) -> None:
        """Rename the table if it has this ``tidegate.id``; else do nothing. Files stay."""
        ...

    def place(self, places: Sequence[TablePlace]) -> tuple[str, ...]:
        """Point existing names at tables by their locations; return the table ids.

        At every moment each name resolves to a complete table. A name that already points at its
        location is not changed.

        :raises ServerError: MT_DATA_LOST, before anything is changed, if a location has no table
            of that ``tidegate.id``.
        """
        ...

    def drop(self, name: TableName, materialized_id: str, location: str = "") -> None:
        """Remove the metastore entry and the files of the table of this ``tidegate.id`` only.

        Can be repeated after a crash. Files at a location chosen by a user stay, as a plain table.

        :param location: the last known location, used if the metastore has no entry.
        """
        ...

    def last_commit(
        self, name: TableName, materialized_id: str, *, at: int | None = None
    ) -> RecordedRefresh | None:
        """Return the last refresh commit, without a Spark job; None if there is none.

        :param at: ignore commits after this version.
        """
        ...

    def write(
        self,
        frame: DataFrame,
        order: RefreshOrder,
        record: CommitRecord,
        *,
        partitions: Sequence[PartitionSpec] = (),
        predicate: str | None = None,
        partial: bool,
        strategy: Strategy | None = None,
    ) -> Written:
        """Replace the whole table, or the given partitions or rows, by ``frame`` in one commit.

        ``frame`` has the query's columns in order. With partitions or a
        predicate it is filtered to them. Rows
        that are immutable at ``record.frozen_at`` are neither replaced nor written.

        :param strategy: recorded with the commit; None means PARTITION or FULL.

        :raises ServerError: MT_REFRESH_FENCED if a later epoch was committed already,
            MT_EXPECTATION_FAILED if a row violates an expectation with FAIL,
            MT_PK_VIOLATED if the rows violate a primary key with FAIL,
            MT_ASSERTION_FAILED if an assertion with FAIL fails, MT_VERSION_HELD if one with HOLD
            fails: the result is then stored beside the table.
        """
        ...

    def gate(
        self,
        content: DataFrame,
        order: RefreshOrder,
        record: CommitRecord,
        *,
        strategy: Strategy,
        partial: bool = False,
    ) -> Mapping[str, int]:
        """Check the table's assertions on all rows the table would have after a commit.

        Returns 1 for each failed assertion and 0 for each other one, by name.

        :raises ServerError: MT_ASSERTION_FAILED, or MT_VERSION_HELD once the rows are stored.
        """
        ...

    def find_held(
        self, name: TableName, materialized_id: str, refresh_id: str | None = None
    ) -> RecordedRefresh | None:
        """Return what is said of the version that is held, or None; starts no Spark job.

        A version with an epoch that the table has reached since is not returned.

        :param refresh_id: return only the result of this refresh.
        """
        ...

    def held_rows(self, name: TableName, refresh_id: str, session: SparkSession) -> DataFrame:
        """Return the rows of the version that :meth:`find_held` found."""
        ...

    def discard_held(self, name: TableName, materialized_id: str) -> None:
        """Delete the versions held beside the table if it has this ``tidegate.id``."""
        ...

    def fit_columns(self, order: RefreshOrder, frame: DataFrame, *carried: str) -> DataFrame:
        """Return the query's columns cast and ordered as the table has them.

        :param carried: the names of the frame's last columns, which are not cast.
        """
        ...

    def untouched_since(self, order: RefreshOrder, version: int) -> bool:
        """Say whether no commit after a version changed the table's rows."""
        ...

    def append(
        self, frame: DataFrame, order: RefreshOrder, record: CommitRecord, *, base: int
    ) -> Written:
        """Add fitted rows in one commit based on version ``base``; raises as ``write``."""
        ...

    def ingest(
        self, frame: DataFrame, order: RefreshOrder, record: CommitRecord, *, base: int | None
    ) -> Written:
        """Add the rows that a stream brought, with ``record.offsets``, in one commit.

        ``frame`` has the query's columns in order; ``base`` is the version of the last refresh,
        after whose offsets the rows were read. Raises as ``write``; MT_REFRESH_FENCED also if
        another refresh was committed since.
        """
        ...

    def change_rows(
        self,
        session: SparkSession,
        change: RowChange,
        order: RefreshOrder,
        record: CommitRecord,
        *,
        base: int,
    ) -> Written:
        """Remove and add rows in one commit based on version ``base``; raises as ``write``.

        :raises DiffMismatchError: if the table lacks rows that are to be removed.
        """
        ...

    def advance(
        self, session: SparkSession, order: RefreshOrder, record: CommitRecord, *, base: int
    ) -> Written:
        """Commit vector and epoch without rows; raises as ``write``."""
        ...

    def inspect_files(
        self, name: TableName, materialized_id: str, versions: Sequence[int], back: int
    ) -> FileStatistics | None:
        """Return statistics of the files; None if there is no table of this ``tidegate.id``.

        :param versions: the versions whose creation times are wanted.
        :param back: also return the creation time of the version this many before the newest.
        """
        ...

    def rewrite_files(self, name: TableName, materialized_id: str, run_id: str) -> FilesRewritten:
        """Compact small files, in commits that change no row.

        The caller must hold the table's lease, since a concurrent refresh could conflict.
        """
        ...

    def remove_files(
        self, name: TableName, materialized_id: str, horizon: Horizon, run_id: str
    ) -> FilesRemoved:
        """Delete files that no version since the horizon needs; refreshes may run meanwhile."""
        ...
