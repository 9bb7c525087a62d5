"""Apache Iceberg as a table format: the tables of catalogs of the type ``iceberg``."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.messages.requests import TablePlace
from tidegate_server.core.model.names import TableName, visible_name
from tidegate_server.core.model.runs import Strategy
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
    SourceFormat,
    TableDescription,
    Written,
    fencing_error,
)
from tidegate_server.engine.storage.checkpoint import Checkpoint
from tidegate_server.engine.storage.commit_metadata import is_untouched, unless_overtaken
from tidegate_server.engine.storage.commit_record import CommitRecord, RecordedRefresh
from tidegate_server.engine.storage.content.distribution import distribute
from tidegate_server.engine.storage.content.expectations import (
    count_broken,
    enforce,
    messages,
)
from tidegate_server.engine.storage.content.replacement import (
    content_after,
    fit_columns,
    judge_content,
    replacement_of,
)
from tidegate_server.engine.storage.content.unique import check_key
from tidegate_server.engine.storage.iceberg import maintenance
from tidegate_server.engine.storage.iceberg.commits import (
    IcebergWriter,
    commits_of,
    last_commit_of,
    snapshot_metadata,
)
from tidegate_server.engine.storage.iceberg.definition import (
    check_types,
    create_sql,
    evolve,
    java_map,
)
from tidegate_server.engine.storage.iceberg.held_versions import HeldVersions
from tidegate_server.engine.storage.iceberg.rewrite import change_rows, replace_rows
from tidegate_server.engine.storage.iceberg.snapshots import EMPTY
from tidegate_server.engine.storage.iceberg.sources import IcebergSources
from tidegate_server.engine.storage.iceberg.tables import LoadedTable, load_table
from tidegate_server.engine.storage.row_change import RowChange
from tidegate_server.engine.storage.table_properties import PROPERTY_ID
from tidegate_server.engine.storage.table_sql import column_of

logger = logging.getLogger(__name__)

_INCREMENTAL: Final = Strategy.INCREMENTAL.value


class IcebergFormat(IcebergSources):
    """Iceberg tables as the storage of materialized tables.

    A refresh is one snapshot, whose summary has the refresh's metadata. It is committed only if the
    table still has the snapshot that the refresh started from, or compactions of it. The catalog
    decides where the files are, and replaces a table's metadata at once or not at all.
    """

    name = "iceberg"

    def __init__(self, spark: SparkSession, sources: SourceFormat) -> None:
        """``sources`` has the tables that queries may read."""
        super().__init__(spark)
        self.sources = sources
        self._writer = IcebergWriter(spark)

    def create(
        self,
        name: TableName,
        schema: Schema,
        partition_keys: Sequence[str],
        comment: str | None,
        properties: Mapping[str, str],
        location: str = "",
    ) -> tuple[str, str]:
        known = load_table(self._spark, name)
        if known is None or known.properties.get(PROPERTY_ID) != properties[PROPERTY_ID]:
            check_types(self._spark, name, schema)
            self._spark.sql(create_sql(name, schema, partition_keys, comment, properties))
        made = self._writer.loaded(name)
        return made.location, made.uuid

    def describe(self, name: TableName) -> TableDescription:
        found = load_table(self._spark, name)
        if found is None:
            raise error(Code.MT_NOT_FOUND, table=name)
        return TableDescription(
            schema=Schema(tuple(map(column_of, found.fields))),
            partition_keys=found.partition_keys,
            comment=found.properties.get("comment"),
            location=found.location,
            properties=found.properties,
        )

    def set_properties(self, name: TableName, properties: Mapping[str, str]) -> None:
        if properties:
            self._writer.java.set(self._writer.live(name), java_map(self._spark, properties))

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
        found = load_table(self._spark, name)
        owner = "" if found is None else found.properties.get(PROPERTY_ID, "")
        if found is None or owner not in (materialized_id, adopts):
            raise error(Code.MT_DATA_LOST, table=str(name), reason="its Iceberg table is gone")
        check_types(self._spark, name, schema)
        evolve(
            self._spark,
            self._writer.java,
            self._writer.live(name),
            schema,
            comment,
            properties,
            widened,
        )

    def rename(self, name: TableName, new_name: TableName, materialized_id: str) -> None:
        found = load_table(self._spark, name)
        if found is None or found.properties.get(PROPERTY_ID) != materialized_id:
            logger.info("%s was not renamed: it was dropped or replaced by another table", name)
            return
        try:
            self._spark.sql(f"ALTER TABLE {name.quoted()} RENAME TO {new_name.quoted()}")
        except (PySparkException, Py4JJavaError) as refused:
            # Catalogs of the kind hadoop know tables by their directories.
            if not any("Cannot rename" in text for text in messages(refused)):
                raise
            what = f"RENAME TO in the catalog {name.catalog}"
            hint = "Create the table under the other name, and drop this one."
            raise error(Code.NOT_SUPPORTED, what=what, hint=hint) from refused

    def place(self, places: Sequence[TablePlace]) -> tuple[str, ...]:
        what = f"Giving the Iceberg table {places[0].name} another location"
        hint = "Create the other table under its name, and drop this one."
        raise error(Code.NOT_SUPPORTED, what=what, hint=hint)

    def drop(self, name: TableName, materialized_id: str, location: str = "") -> None:
        found = load_table(self._spark, name)
        if found is None or found.properties.get(PROPERTY_ID) != materialized_id:
            logger.info("%s was not dropped: it is gone, or another table by now", name)
            return
        pause_at(Point.BEFORE_FILES)
        self._spark.sql(f"DROP TABLE IF EXISTS {name.quoted()} PURGE")
        Checkpoint(self._spark, found.location).delete()

    def last_commit(
        self, name: TableName, materialized_id: str, *, at: int | None = None
    ) -> RecordedRefresh | None:
        found = load_table(self._spark, name)
        return None if found is None else last_commit_of(found, materialized_id, at=at)

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
        found = self._writer.loaded(order.name)
        new = replacement_of(frame, order, record, found.fields, partitions, predicate)
        strategy = strategy or new.strategy
        last = last_commit_of(found, order.table_id)
        base = last.version if last is not None and new.some and not partial else None
        beside = new.rows_beside(
            order, lambda: self.rows(frame.sparkSession, order.name, _newest(found))
        )
        with check_key(new.rows, order, beside) as known:
            record = known.recorded_in(record)
            broken: Mapping[str, int] = {}
            if order.assertions:
                content = content_after(known.rows, beside, order)
                broken = self.gate(content, order, record, strategy=strategy, partial=partial)
            metadata = snapshot_metadata(
                order, record, strategy=strategy.value, partial=partial, base=base
            )
            expected = enforce(known.rows, order)
            done = replace_rows(
                self._writer, found, expected.rows, new.condition, order, record, metadata
            )
        return replace(done, expectations={**expected.counts(), **known.counts, **broken})

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
        found = self._writer.loaded(order.name)
        served = self.rows(content.sparkSession, order.name, _newest(found))
        judged = judge_content(content, served, order, last_commit_of(found, order.table_id))
        if judged.held is None:
            return judged.counts
        metadata = snapshot_metadata(
            order, record, strategy=strategy.value, partial=partial, breaks=judged.held
        )
        self._held(order.name).write(content, order, metadata)
        raise error(Code.MT_VERSION_HELD, table=str(visible_name(order.name)), reason=judged.held)

    def find_held(
        self, name: TableName, materialized_id: str, refresh_id: str | None = None
    ) -> RecordedRefresh | None:
        found = load_table(self._spark, name)
        if found is None:
            return None
        waiting = self._held(name).find(materialized_id, refresh_id)
        return unless_overtaken(waiting, last_commit_of(found, materialized_id))

    def held_rows(self, name: TableName, refresh_id: str, session: SparkSession) -> DataFrame:
        return self._held(name).rows(session, refresh_id)

    def discard_held(self, name: TableName, materialized_id: str) -> None:
        if self._owned(name, materialized_id) is not None:
            self._held(name).clear(materialized_id)

    def fit_columns(self, order: RefreshOrder, frame: DataFrame, *carried: str) -> DataFrame:
        target = self._writer.loaded(order.name).fields
        return fit_columns(frame, order.columns, target, carried)

    def untouched_since(self, order: RefreshOrder, version: int) -> bool:
        return is_untouched(commits_of(self._writer.loaded(order.name)), version)

    def append(
        self, frame: DataFrame, order: RefreshOrder, record: CommitRecord, *, base: int
    ) -> Written:
        metadata = snapshot_metadata(order, record, strategy=_INCREMENTAL, base=base)
        rows = distribute(frame, order.distribution)
        return self._writer.append(rows, self._writer.loaded(order.name), order, record, metadata)

    def ingest(
        self, frame: DataFrame, order: RefreshOrder, record: CommitRecord, *, base: int | None
    ) -> Written:
        found = self._writer.loaded(order.name)
        last = last_commit_of(found, order.table_id)
        if (None if last is None else last.version) != base:
            raise fencing_error(order, last)
        metadata = snapshot_metadata(order, record, strategy=Strategy.INGEST.value, base=base)
        rows = distribute(fit_columns(frame, order.columns, found.fields), order.distribution)
        with count_broken(rows, order) as (admissible, counts):
            done = self._writer.append(admissible, found, order, record, metadata)
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
        metadata = snapshot_metadata(order, record, strategy=_INCREMENTAL, base=base)
        found = self._writer.loaded(order.name)
        return change_rows(session, self._writer, found, change, order, record, metadata)

    def advance(
        self, session: SparkSession, order: RefreshOrder, record: CommitRecord, *, base: int
    ) -> Written:
        metadata = snapshot_metadata(order, record, strategy=_INCREMENTAL, base=base)
        return self._writer.append(None, self._writer.loaded(order.name), order, record, metadata)

    def inspect_files(
        self, name: TableName, materialized_id: str, versions: Sequence[int], back: int
    ) -> FileStatistics | None:
        found = self._owned(name, materialized_id)
        return None if found is None else maintenance.inspect_files(found, versions, back)

    def rewrite_files(self, name: TableName, materialized_id: str, run_id: str) -> FilesRewritten:
        if self._owned(name, materialized_id) is None:
            return FilesRewritten()
        return maintenance.rewrite_files(self._spark.newSession(), self._writer.live(name))

    def remove_files(
        self, name: TableName, materialized_id: str, horizon: Horizon, run_id: str
    ) -> FilesRemoved:
        found = self._owned(name, materialized_id)
        if found is None:
            return FilesRemoved()
        last = last_commit_of(found, materialized_id)
        kept = () if last is None else (last.version,)
        return maintenance.remove_files(
            self._writer.java, self._writer.live(name), found, horizon.before, kept
        )

    def _owned(self, name: TableName, materialized_id: str) -> LoadedTable | None:
        """Return the table of this ``tidegate.id``, or None."""
        found = load_table(self._spark, name)
        owned = found is not None and found.properties.get(PROPERTY_ID) == materialized_id
        return found if owned else None

    def _held(self, name: TableName) -> HeldVersions:
        return HeldVersions(self._writer, name)


def _newest(found: LoadedTable) -> int:
    """Return the newest version of a table."""
    return EMPTY if found.current is None else found.current.number
