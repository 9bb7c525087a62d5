"""Delta Lake as a table format."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.messages.requests import TablePlace
from tidegate_server.core.model.names import (
    TableName,
    quote_identifier,
    quote_literal,
    quote_pairs,
    visible_name,
)
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
from tidegate_server.engine.storage.base import (
    FoundChange,
    ReadVersion,
    SourceFormat,
    TableDescription,
    TableState,
    Written,
    fencing_error,
    table_sql,
)
from tidegate_server.engine.storage.commit_metadata import (
    is_untouched,
    last_refresh,
    unless_overtaken,
    user_metadata,
)
from tidegate_server.engine.storage.commit_record import CommitRecord, RecordedRefresh
from tidegate_server.engine.storage.content.distribution import distribute
from tidegate_server.engine.storage.content.expectations import (
    count_broken,
    enforce,
)
from tidegate_server.engine.storage.content.replacement import (
    content_after,
    fit_columns,
    judge_content,
    replacement_of,
)
from tidegate_server.engine.storage.content.unique import check_key
from tidegate_server.engine.storage.delta import maintenance
from tidegate_server.engine.storage.delta.changes import read_change
from tidegate_server.engine.storage.delta.commits import Commit, commit_of, commits, newest_snapshot
from tidegate_server.engine.storage.delta.files import known_files, read_files
from tidegate_server.engine.storage.delta.held_versions import HeldVersions
from tidegate_server.engine.storage.delta.landing import commit_and_verify
from tidegate_server.engine.storage.delta.partitions import check_partitions, find_partition_error
from tidegate_server.engine.storage.delta.rewrite import change_rows
from tidegate_server.engine.storage.delta.schema import commit_metadata, widen
from tidegate_server.engine.storage.delta.sql import (
    CHANGE_FEED,
    create_sql,
    has_feed_names,
    register_sql,
)
from tidegate_server.engine.storage.delta.table_files import TableFiles
from tidegate_server.engine.storage.delta.tables import (
    PROVIDER,
    DeltaTables,
    fields_of,
    metadata_of,
    path_of,
    schema_of,
    version_of_leaf,
)
from tidegate_server.engine.storage.delta.write import (
    advance,
    append_rows,
    epoch_options,
    replace_rows,
)
from tidegate_server.engine.storage.jvm import java
from tidegate_server.engine.storage.row_change import RowChange
from tidegate_server.engine.storage.sources import Sources
from tidegate_server.engine.storage.table_locations import PROPERTY_PLACE, TableLocations
from tidegate_server.engine.storage.table_properties import PROPERTY_DEFINITION, PROPERTY_ID
from tidegate_server.engine.storage.table_sql import column_of

logger = logging.getLogger(__name__)

_INCREMENTAL = Strategy.INCREMENTAL.value


class DeltaFormat:
    """Tables of the session catalog with provider delta.

    Versions are read from the transaction log through Delta's Scala classes, so only methods that
    write start Spark jobs.
    """

    name = PROVIDER

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm: Any = java(spark)
        self._locations = TableLocations(spark)
        self._tables = DeltaTables(spark)
        self.sources: SourceFormat = Sources(spark, self)

    def find(self, name: TableName) -> TableState | None:
        snapshot = self._tables.newest_snapshot(name)
        if snapshot is None:
            return None
        newest = int(snapshot.version())
        metadata = metadata_of(snapshot)
        change = self._last_change(snapshot)
        return TableState(
            table_id=metadata["id"],
            version=newest if change is None else change.version,
            newest=newest,
            columns=tuple(field.name for field in fields_of(metadata)),
            materialized_id=metadata["configuration"].get(PROPERTY_ID),
            commit=None if change is None else change.identity,
        )

    def commit_id(self, name: TableName, version: int) -> str | None:
        snapshot = self._tables.newest_snapshot(name)
        commit = None if snapshot is None else commit_of(self._jvm, snapshot, version)
        return None if commit is None else commit.identity

    def snapshot_id(self, name: TableName, commit: str) -> str | None:
        return None

    def difference(self, name: TableName, read: str, now: str) -> str:
        return "has another history than when it was read last"

    def location(self, name: TableName) -> str:
        return self.describe(name).location

    def read_version(self, leaf: Any) -> ReadVersion | None:
        return version_of_leaf(leaf)

    def version_sql(self, name: TableName, version: int) -> str:
        return f"{table_sql(name)} VERSION AS OF {version}"

    def rows(self, session: SparkSession, name: TableName, version: int) -> DataFrame:
        snapshot = self._tables.newest_snapshot(name)
        if snapshot is not None and int(snapshot.version()) == version:
            files = known_files(snapshot)
            if files is not None:
                return read_files(session, snapshot, files)
        return session.sql(f"SELECT * FROM {self.version_sql(name, version)}")

    def create(
        self,
        name: TableName,
        schema: Schema,
        partition_keys: Sequence[str],
        comment: str | None,
        properties: Mapping[str, str],
        location: str = "",
    ) -> tuple[str, str]:
        table_id = properties[PROPERTY_ID]
        found = self.find(name)
        if found is None or found.materialized_id != table_id:
            known = self._locations.known_locations(name, table_id, location)
            self._forget_lost(name, known)
            existing = [p for p in known if self._files(p).property(PROPERTY_ID) == table_id]
            if existing:
                self._spark.sql(register_sql(name, existing[0]))
            else:
                place = self._locations.unoccupied_location(name, table_id)
                made = {**properties, PROPERTY_PLACE: table_id}
                self._spark.sql(create_sql(name, schema, partition_keys, comment, made, place))
        snapshot = self._tables.newest_snapshot(name)
        return path_of(snapshot), str(snapshot.metadata().id())

    def _forget_lost(self, name: TableName, known: Sequence[str]) -> None:
        """Remove the entry of a name if its location is a known one without a table."""
        if self._tables.exists(name):
            place = self._locations.location(name)
            if place in known and not self._files(place).have_table():
                self._locations.forget(name)

    def _files(self, location: str) -> TableFiles:
        return TableFiles(self._spark, location)

    def describe(self, name: TableName) -> TableDescription:
        snapshot = self._tables.newest_snapshot(name)
        if snapshot is None:
            raise error(Code.MT_NOT_FOUND, table=name)
        metadata = metadata_of(snapshot)
        return TableDescription(
            schema=Schema(tuple(map(column_of, fields_of(metadata)))),
            partition_keys=tuple(metadata["partitionColumns"]),
            comment=metadata.get("description"),
            location=path_of(snapshot),
            properties=metadata["configuration"],
        )

    def set_properties(self, name: TableName, properties: Mapping[str, str]) -> None:
        if properties:
            self._spark.sql(
                f"ALTER TABLE {name.quoted()} SET TBLPROPERTIES ({quote_pairs(properties)})"
            )

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
        found = self.find(name)
        if found is None or (found.materialized_id or "") not in (materialized_id, adopts):
            raise error(Code.MT_DATA_LOST, table=str(name), reason="its Delta table is gone")
        if has_feed_names(schema.names()):
            properties = {**properties, CHANGE_FEED: "false"}
        for column in (schema.find(wide) for wide in widened):
            if column is not None:
                widen(self._spark, name.quoted(), column)
        identifier = self._tables.identifier(self._tables.storage_table(name))
        session: Any = self._spark._jsparkSession
        log = self._tables.log(identifier)
        entry = session.sessionState().catalog().getTableMetadata(identifier)
        commit_metadata(self._spark, log, entry, schema, comment, properties)

    def rename(self, name: TableName, new_name: TableName, materialized_id: str) -> None:
        found = self.find(name) if self._tables.exists(name) else None
        if found is None or found.materialized_id != materialized_id:
            logger.info("%s was not renamed: it was dropped or replaced by another table", name)
            return
        self._detach(name)
        # Spark expects the new name without its catalog.
        target = f"{quote_identifier(new_name.schema)}.{quote_identifier(new_name.table)}"
        self._spark.sql(f"ALTER TABLE {name.quoted()} RENAME TO {target}")

    def _detach(self, name: TableName) -> None:
        """Make the entry of a table EXTERNAL if an earlier version of Tidegate created it."""
        if self._locations.is_managed(name):
            owner = self._files(self._locations.location(name)).property(PROPERTY_ID)
            if owner is not None:
                self.set_properties(name, {PROPERTY_PLACE: owner})
            self._locations.detach(name)

    def place(self, places: Sequence[TablePlace]) -> tuple[str, ...]:
        snapshots = [self._snapshot_at(place) for place in places]
        moving = [
            place for place in places if self._locations.location(place.name) != place.location
        ]
        for place in moving:
            self._detach(place.name)
        for number, place in enumerate(moving):
            if number:
                pause_at(Point.BETWEEN_PLACES)
            self._locations.point(place.name, place.location)
            logger.info("%s points at %s", place.name, place.location)
        return tuple(str(snapshot.metadata().id()) for snapshot in snapshots)

    def _snapshot_at(self, place: TablePlace) -> Any:
        """Return the newest snapshot of the table at a location.

        :raises ServerError: MT_DATA_LOST if it is not the expected table.
        """
        log = self._tables.log(self._jvm.org.apache.hadoop.fs.Path(place.location))
        snapshot = newest_snapshot(self._jvm, log)
        owner = snapshot.metadata().configuration().get(PROPERTY_ID)
        if not owner.isDefined() or str(owner.get()) != place.table_id:
            reason = f"its Delta table is not at {place.location}"
            raise error(Code.MT_DATA_LOST, table=str(place.name), reason=reason)
        return snapshot

    def drop(self, name: TableName, materialized_id: str, location: str = "") -> None:
        stored = self._tables.storage_table(name)
        places = self._locations.known_locations(stored, materialized_id, location)
        if self._tables.exists(stored):
            current = self._locations.location(stored)
            files = self._files(current)
            if files.belong_to(materialized_id):
                self._detach(stored)
                if not files.are_made_by_tidegate():
                    self._disown(stored)
                self._spark.sql(f"DROP TABLE IF EXISTS {stored.quoted()}")
                places.append(current)
            elif current in places and not files.have_table():
                self._locations.forget(stored)
            else:
                logger.info("%s was not dropped: it is another table by now", stored)
        pause_at(Point.BEFORE_FILES)
        for files in map(self._files, dict.fromkeys(places)):
            if files.belong_to(materialized_id) and files.are_made_by_tidegate():
                files.delete()

    def _disown(self, name: TableName) -> None:
        """Turn a user's table back into a plain one."""
        keys = ", ".join(map(quote_literal, (PROPERTY_ID, PROPERTY_DEFINITION)))
        self._spark.sql(f"ALTER TABLE {name.quoted()} UNSET TBLPROPERTIES IF EXISTS ({keys})")

    def last_commit(
        self, name: TableName, materialized_id: str, *, at: int | None = None
    ) -> RecordedRefresh | None:
        return self._tables.last_commit(name, materialized_id, at=at)

    def change(
        self, session: SparkSession, name: TableName, table_id: str, before: int, after: int
    ) -> FoundChange:
        snapshot = self._tables.newest_snapshot(name)
        if snapshot is None or str(snapshot.metadata().id()) != table_id:
            return FoundChange(method=ChangeMethod.WHOLE, reason="TABLE_RECREATED")
        return read_change(session, snapshot, before, after)

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
        snapshot = self._tables.target_snapshot(order)
        new = replacement_of(frame, order, record, schema_of(snapshot), partitions, predicate)
        strategy = strategy or new.strategy
        base = self._base(order, snapshot) if new.some and not partial else None
        version = int(snapshot.version())
        beside = new.rows_beside(order, lambda: self.rows(frame.sparkSession, order.name, version))
        with check_key(new.rows, order, beside) as known:
            record = known.recorded_in(record)
            broken: Mapping[str, int] = {}
            if order.assertions:
                content = content_after(known.rows, beside, order)
                broken = self.gate(content, order, record, strategy=strategy, partial=partial)
            metadata = user_metadata(
                order, record, strategy=strategy.value, partial=partial, base=base
            )
            done = self._overwrite(known.rows, new.condition, order, snapshot, metadata)
        return replace(done, expectations={**done.expectations, **known.counts, **broken})

    def gate(
        self,
        content: DataFrame,
        order: RefreshOrder,
        record: CommitRecord,
        *,
        strategy: Strategy,
        partial: bool = False,
    ) -> Mapping[str, int]:
        if not order.assertions:
            return {}
        snapshot = self._tables.target_snapshot(order)
        served = self.rows(content.sparkSession, order.name, int(snapshot.version()))
        last = last_refresh(commits(self._jvm, snapshot), order.table_id)
        judged = judge_content(content, served, order, last)
        if judged.held is None:
            return judged.counts
        metadata = user_metadata(
            order, record, strategy=strategy.value, partial=partial, breaks=judged.held
        )
        # Do not hold a version that could not be published.
        rows = check_partitions(content, snapshot)
        try:
            HeldVersions(self._spark, path_of(snapshot)).write(rows, order, metadata)
        except (PySparkException, Py4JJavaError) as failed:
            lost = find_partition_error(failed, order)
            if lost is not None:
                raise lost from failed
            raise
        raise error(Code.MT_VERSION_HELD, table=str(visible_name(order.name)), reason=judged.held)

    def find_held(
        self, name: TableName, materialized_id: str, refresh_id: str | None = None
    ) -> RecordedRefresh | None:
        snapshot = self._tables.newest_snapshot(name)
        if snapshot is None:
            return None
        versions = HeldVersions(self._spark, path_of(snapshot))
        waiting = versions.find(materialized_id, refresh_id)
        last = last_refresh(commits(self._jvm, snapshot), materialized_id)
        return unless_overtaken(waiting, last)

    def held_rows(self, name: TableName, refresh_id: str, session: SparkSession) -> DataFrame:
        snapshot = self._tables.newest_snapshot(name)
        return HeldVersions(self._spark, path_of(snapshot)).rows(session, refresh_id)

    def discard_held(self, name: TableName, materialized_id: str) -> None:
        found = self.find(name)
        if found is not None and found.materialized_id == materialized_id:
            HeldVersions(self._spark, path_of(self._tables.newest_snapshot(name))).clear()

    def fit_columns(self, order: RefreshOrder, frame: DataFrame, *carried: str) -> DataFrame:
        target = schema_of(self._tables.target_snapshot(order))
        return fit_columns(frame, order.columns, target, carried)

    def append(
        self, frame: DataFrame, order: RefreshOrder, record: CommitRecord, *, base: int
    ) -> Written:
        snapshot = self._tables.target_snapshot(order)
        metadata = user_metadata(order, record, strategy=_INCREMENTAL, base=base)
        rows = distribute(frame, order.distribution)
        return commit_and_verify(
            self._tables, lambda: append_rows(rows, snapshot, order, metadata), order, snapshot
        )

    def ingest(
        self, frame: DataFrame, order: RefreshOrder, record: CommitRecord, *, base: int | None
    ) -> Written:
        snapshot = self._tables.target_snapshot(order)
        if self._base(order, snapshot) != base:
            raise fencing_error(order, self._tables.last_commit(order.name, order.table_id))
        metadata = user_metadata(order, record, strategy=Strategy.INGEST.value, base=base)
        rows = fit_columns(frame, order.columns, schema_of(snapshot))
        rows = distribute(rows, order.distribution)
        with count_broken(rows, order) as (admissible, counts):
            done = commit_and_verify(
                self._tables,
                lambda: append_rows(admissible, snapshot, order, metadata),
                order,
                snapshot,
            )
        return replace(done, expectations=counts)

    def change_rows(
        self,
        session: SparkSession,
        change: RowChange,
        order: RefreshOrder,
        record: CommitRecord,
        *,
        base: int,
    ) -> Written:
        snapshot = self._tables.target_snapshot(order)
        metadata = user_metadata(order, record, strategy=_INCREMENTAL, base=base)
        return commit_and_verify(
            self._tables,
            lambda: change_rows(session, snapshot, change, order, metadata),
            order,
            snapshot,
        )

    def advance(
        self, session: SparkSession, order: RefreshOrder, record: CommitRecord, *, base: int
    ) -> Written:
        snapshot = self._tables.target_snapshot(order)
        metadata = user_metadata(order, record, strategy=_INCREMENTAL, base=base)
        return commit_and_verify(
            self._tables, lambda: advance(session, snapshot, order, metadata), order, snapshot
        )

    def untouched_since(self, order: RefreshOrder, version: int) -> bool:
        return is_untouched(self._tables.commits(order), version)

    def inspect_files(
        self, name: TableName, materialized_id: str, versions: Sequence[int], back: int
    ) -> FileStatistics | None:
        snapshot = self._owned_snapshot(name, materialized_id)
        if snapshot is None:
            return None
        return maintenance.inspect_files(self._jvm, snapshot, versions, back)

    def rewrite_files(self, name: TableName, materialized_id: str, run_id: str) -> FilesRewritten:
        if self._owned_snapshot(name, materialized_id) is None:
            return FilesRewritten()
        return maintenance.rewrite_files(self._spark.newSession(), name, run_id)

    def remove_files(
        self, name: TableName, materialized_id: str, horizon: Horizon, run_id: str
    ) -> FilesRemoved:
        snapshot = self._owned_snapshot(name, materialized_id)
        if snapshot is None:
            return FilesRemoved()
        session = self._spark.newSession()
        done = maintenance.remove_files(session, snapshot, horizon.before, run_id)
        if horizon.shortens_log:
            maintenance.shorten_log(session, self._tables.newest_snapshot(name), horizon.before)
        return done

    def _owned_snapshot(self, name: TableName, materialized_id: str) -> Any:
        """Return the newest snapshot of the table of this ``tidegate.id``, or None."""
        found = self.find(name)
        owned = found is not None and found.materialized_id == materialized_id
        return self._tables.newest_snapshot(name) if owned else None

    def _base(self, order: RefreshOrder, snapshot: Any) -> int | None:
        last = last_refresh(commits(self._jvm, snapshot), order.table_id)
        return last.version if last is not None else None

    def _overwrite(
        self,
        rows: DataFrame,
        condition: str | None,
        order: RefreshOrder,
        snapshot: Any,
        metadata: str,
    ) -> Written:
        expected = enforce(rows, order)
        files = known_files(snapshot) if condition is None else None

        def commit() -> None:
            if files is not None:
                replace_rows(expected.rows, snapshot, files, order, metadata)
                return
            rows = check_partitions(expected.rows, snapshot)
            writer = rows.write.format(PROVIDER).mode("overwrite").options(**epoch_options(order))
            if condition is not None:
                writer = writer.option("replaceWhere", condition)
            writer.option("userMetadata", metadata).save(path_of(snapshot))

        done = commit_and_verify(self._tables, commit, order, snapshot)
        return replace(done, expectations=expected.counts())

    def _last_change(self, snapshot: Any) -> Commit | None:
        return next((c for c in commits(self._jvm, snapshot) if not c.keeps_rows), None)
