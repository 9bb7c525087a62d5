"""Writes the files of an Iceberg table with Spark, and commits them with what a refresh records."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.model.names import TableName
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.base import Written, check_epoch
from tidegate_server.engine.storage.commit_metadata import last_refresh, user_metadata
from tidegate_server.engine.storage.commit_record import (
    CommitRecord,
    RecordedRefresh,
    read_incremental,
    stored_incremental,
)
from tidegate_server.engine.storage.content.expectations import find_expectation_error
from tidegate_server.engine.storage.iceberg.definition import java_map
from tidegate_server.engine.storage.iceberg.snapshots import Snapshot, keeps_rows
from tidegate_server.engine.storage.iceberg.tables import (
    LoadedTable,
    live_table,
    load_table,
    relation_of,
)
from tidegate_server.engine.storage.jvm import (
    active_session,
    compiled_instance,
    frame_of,
    java,
    java_source,
    kind,
    scala_object,
)

logger = logging.getLogger(__name__)

STATE: Final = "tidegate.state"
"""The property with the incremental state after the refresh whose id is its first line: in the
summary of a snapshot, it would be kept as long as the snapshot."""
snapshot_metadata = partial(user_metadata, with_state=False)
"""Returns what the summary of a snapshot has of a refresh."""
_NONE: Final = -1
"""The id of a snapshot for the empty table, in ``IcebergCommits.java``."""


@dataclass(frozen=True, slots=True)
class StoredCommit:
    """A snapshot as a commit of the table."""

    version: int
    metadata: Mapping[str, Any]
    keeps_rows: bool


def commits_of(found: LoadedTable, at: int | None = None) -> Iterator[StoredCommit]:
    """Yield the commits of a table, newest first, until its snapshots have expired.

    :param at: leave out those after this version.
    """
    history, position = found.recent, 0
    while position < len(history):
        if position + 1 == len(history):
            history = found.history
        snapshot = history[position]
        parent = history[position + 1] if position + 1 < len(history) else None
        if at is None or snapshot.number <= at:
            yield StoredCommit(snapshot.number, snapshot.metadata, keeps_rows(snapshot, parent))
        position += 1


def last_commit_of(
    found: LoadedTable, materialized_id: str, *, at: int | None = None
) -> RecordedRefresh | None:
    """Return the last refresh of a table, with its incremental state."""
    last = last_refresh(commits_of(found, at), materialized_id)
    refresh_id, _, state = found.properties.get(STATE, "").partition("\n")
    if last is None or refresh_id != last.refresh_id:
        return last
    return last.with_state(read_incremental(state))


class IcebergWriter:
    """Commits refreshes to the Iceberg tables of catalogs."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def java(self) -> Any:
        """The instance of ``IcebergCommits.java``."""
        source = java_source(__package__, "IcebergCommits")
        reader = compiled_instance(
            self._spark, "tidegate.Snapshots", java_source(__package__, "Snapshots")
        )
        return compiled_instance(self._spark, "tidegate.IcebergCommits", source, uses=reader)

    def loaded(self, name: TableName) -> LoadedTable:
        """Return a table as it is now; raises MT_DATA_LOST if there is none."""
        found = load_table(self._spark, name)
        if found is None:
            raise _lost(name)
        return found

    def live(self, name: TableName) -> Any:
        """Return the table with which it is changed; raises MT_DATA_LOST if there is none."""
        found = live_table(self._spark, name)
        if found is None:
            raise _lost(name)
        return found

    def stage(self, rows: DataFrame, found: LoadedTable) -> Any:
        """Write rows as files that no snapshot has yet; return the files."""
        session, name = rows.sparkSession, uuid.uuid4().hex
        frame: Any = rows
        append = scala_object(
            java(session), "org.apache.spark.sql.catalyst.plans.logical.AppendData"
        )
        nothing = java(session).org.apache.spark.api.python.PythonUtils.toScalaMap({})
        with active_session(session):
            relation = relation_of(session, self.java.target(found.table, name))
            frame_of(session, append.byPosition(relation, self._planned(session, frame), nothing))
        return self.java.written(found.table, name)

    def _planned(self, session: SparkSession, frame: Any) -> Any:
        """Return a plan for the rows of a frame that a command can contain.

        Delta prepares the scans of a query, but not all of those in a command. Rows that are
        observed have to be in the command, which reports what was observed.
        """
        execution = frame._jdf.queryExecution()
        if self.java.observes(execution.analyzed()):
            return execution.analyzed()
        rows = scala_object(java(session), "org.apache.spark.sql.execution.LogicalRDD")
        return rows.fromDataset(execution.toRdd(), frame._jdf, False)

    @contextmanager
    def reading(self, session: SparkSession, files: Any, found: LoadedTable) -> Iterator[DataFrame]:
        """Yield the rows of files of a table until the block ends."""
        if not files.count():
            yield session.createDataFrame([], found.fields)
            return
        name = uuid.uuid4().hex
        try:
            with active_session(session):
                rows = frame_of(session, relation_of(session, files.read(name)))
            yield rows
        finally:
            files.release(name)

    def present(self, found: LoadedTable) -> Any:
        """Return the files that a table has now."""
        return self.java.present(found.table, base_of(found))

    def append(
        self,
        rows: DataFrame | None,
        found: LoadedTable,
        order: RefreshOrder,
        record: CommitRecord,
        metadata: str,
    ) -> Written:
        """Add rows in one commit; raises as :meth:`commit`.

        :param rows: None to commit what the refresh records alone.
        """
        check_epoch(order, last_commit_of(found, order.table_id))
        none = self.java.none(found.table)
        added = none if rows is None else self.stage_for(order, rows, found)
        return self.commit(order, record, metadata, found, added, removed=none)

    def stage_for(self, order: RefreshOrder, rows: DataFrame, found: LoadedTable) -> Any:
        """Write rows as :meth:`stage` does; raises MT_EXPECTATION_FAILED for one with FAIL."""
        try:
            return self.stage(rows, found)
        except (PySparkException, Py4JJavaError) as failed:
            broken = find_expectation_error(failed, order)
            if broken is None:
                raise
            raise broken from failed

    def commit(
        self,
        order: RefreshOrder,
        record: CommitRecord,
        metadata: str,
        found: LoadedTable,
        added: Any,
        *,
        removed: Any,
    ) -> Written:
        """Commit files in place of others.

        :param found: the table that the change is based on.
        :param added: files that :meth:`stage` wrote.
        :param removed: the files; None for all that the table has.
        :raises ServerError: MT_REFRESH_FENCED if a later epoch was committed.
        """
        state = stored_incremental(record.incremental)
        stored = None if state is None else f"{order.refresh_id}\n{state}"
        changed = {} if stored is None and STATE not in found.properties else {STATE: stored}
        properties = java_map(self._spark, changed)
        pause_at(Point.BEFORE_COMMIT)
        try:
            live = self.live(order.name)
            self.java.commit(live, removed, added, base_of(found), metadata, properties)
            pause_at(Point.AFTER_COMMIT)
        except (PySparkException, Py4JJavaError) as failed:
            self._explain(failed, order, added)
        own = self._own_commit(order)
        if own is None:
            raise AssertionError("the commit that has just been made is in the table")
        rows = int(added.rows())
        return Written(
            version=own.number,
            rows=rows,
            rows_inserted=rows,
            files_written=int(added.count()),
            bytes_written=int(added.size()),
        )

    def _explain(self, failed: Exception, order: RefreshOrder, added: Any) -> None:
        """Return if the commit was made nevertheless; else raise the error that says why not."""
        if self._own_commit(order) is not None:
            logger.warning("%s was committed, then failed: %s", order.refresh_id, failed)
            return
        cause = getattr(failed, "java_exception", None)
        # With any other failure, the commit may still come to be known.
        if cause is not None and kind(cause) in ("ValidationException", "CommitFailedException"):
            added.delete()
        found = load_table(self._spark, order.name)
        check_epoch(order, None if found is None else last_commit_of(found, order.table_id))
        raise failed

    def _own_commit(self, order: RefreshOrder) -> Snapshot | None:
        found = load_table(self._spark, order.name)
        history = () if found is None else found.recent
        own = (each for each in history if each.metadata.get("refresh_id") == order.refresh_id)
        return next(own, None)


def _lost(name: TableName) -> ServerError:
    return error(Code.MT_DATA_LOST, table=str(name), reason="its Iceberg table does not exist")


def base_of(found: LoadedTable) -> int:
    """Return the id of the current snapshot."""
    return _NONE if found.current is None else found.current.id
