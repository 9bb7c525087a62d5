"""Delta Lake as a table format."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tidegate_server.core.errors import Code, error
from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.messages.requests import TablePlace
from tidegate_server.core.model.names import (
    TableName,
    quote_identifier,
    quote_literal,
    visible_name,
)
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.model.versions import PartitionSpec
from tidegate_server.core.refresh.request import CommittedRefresh, RefreshOrder
from tidegate_server.core.refresh.upkeep import FilesFound, FilesRemoved, FilesRewritten, Horizon
from tidegate_server.engine.storage.assertions import judge
from tidegate_server.engine.storage.base import (
    FoundChange,
    Method,
    TableDescription,
    TableState,
    Written,
    table_sql,
)
from tidegate_server.engine.storage.delta.changes import read_change
from tidegate_server.engine.storage.delta.commits import Commit, commit_of, commits, newest_snapshot
from tidegate_server.engine.storage.delta.files import known_files, read_files
from tidegate_server.engine.storage.delta.held_versions import HeldPlace
from tidegate_server.engine.storage.delta.landing import fenced, landed
from tidegate_server.engine.storage.delta.partitions import checked_partitions, lost_partition
from tidegate_server.engine.storage.delta.rewrite import change_rows
from tidegate_server.engine.storage.delta.schema import commit_metadata, widen
from tidegate_server.engine.storage.delta.sql import (
    CHANGE_FEED,
    create_sql,
    has_feed_names,
    partition_filter,
    partition_predicate,
    property_list,
    register_sql,
    type_sql,
)
from tidegate_server.engine.storage.delta.table_files import (
    PROPERTY_DEFINITION,
    PROPERTY_ID,
    TableFiles,
)
from tidegate_server.engine.storage.delta.tables import (
    PROVIDER,
    DeltaTables,
    fields_of,
    metadata_of,
    path_of,
    schema_of,
)
from tidegate_server.engine.storage.delta.upkeep import look, remove, rewrite, shorten_log
from tidegate_server.engine.storage.delta.write import (
    advance,
    append_rows,
    last_refresh,
    replace_rows,
    token,
    user_metadata,
)
from tidegate_server.engine.storage.distribution import distributed
from tidegate_server.engine.storage.expectations import (
    admitted,
    counted,
    expect,
    kept,
    refuse_broken,
)
from tidegate_server.engine.storage.jvm import java
from tidegate_server.engine.storage.predicate import matching
from tidegate_server.engine.storage.region import outside, outside_sql
from tidegate_server.engine.storage.row_change import RowChange
from tidegate_server.engine.storage.table_locations import PROPERTY_PLACE, Places
from tidegate_server.engine.storage.unique import checked

logger = logging.getLogger(__name__)

_INCREMENTAL = Strategy.INCREMENTAL.value
_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"


class DeltaFormat:
    """Tables of the session catalog with provider delta.

    Versions come from the transaction log through Delta's own Scala classes, so that nothing here
    starts a Spark job but ``create`` and ``write``.
    """

    name = PROVIDER

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm: Any = java(spark)
        self._places = Places(spark)
        self._tables = DeltaTables(spark)

    def find(self, name: TableName) -> TableState | None:
        snapshot = self._tables.newest(name)
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
        snapshot = self._tables.newest(name)
        commit = None if snapshot is None else commit_of(self._jvm, snapshot, version)
        return None if commit is None else commit.identity

    def pinned(self, name: TableName, version: int) -> str:
        return f"{table_sql(name)} VERSION AS OF {version}"

    def rows(self, session: SparkSession, name: TableName, version: int) -> DataFrame:
        snapshot = self._tables.newest(name)
        if snapshot is not None and int(snapshot.version()) == version:
            files = known_files(snapshot)
            if files is not None:
                return read_files(session, snapshot, files)
        return session.sql(f"SELECT * FROM {self.pinned(name, version)}")

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
            known = self._places.known(name, table_id, location)
            self._forget_lost(name, known)
            there = [p for p in known if self._files(p).property(PROPERTY_ID) == table_id]
            if there:
                self._spark.sql(register_sql(name, there[0]))
            else:
                place = self._places.unoccupied(name, table_id)
                made = {**properties, PROPERTY_PLACE: table_id}
                self._spark.sql(create_sql(name, schema, partition_keys, comment, made, place))
        snapshot = self._tables.newest(name)
        return path_of(snapshot), str(snapshot.metadata().id())

    def _forget_lost(self, name: TableName, known: Sequence[str]) -> None:
        """Remove the entry of a name if its location is a known one that has no table any more."""
        if self._tables.exists(name):
            place = self._places.of(name)
            if place in known and not self._files(place).have_table():
                self._places.forget(name)

    def _files(self, location: str) -> TableFiles:
        return TableFiles(self._spark, location)

    def describe(self, name: TableName) -> TableDescription:
        snapshot = self._tables.newest(name)
        if snapshot is None:
            raise error(Code.MT_NOT_FOUND, table=name)
        metadata = metadata_of(snapshot)
        return TableDescription(
            schema=Schema(tuple(map(_column, fields_of(metadata)))),
            partition_keys=tuple(metadata["partitionColumns"]),
            comment=metadata.get("description"),
            location=path_of(snapshot),
            properties=metadata["configuration"],
        )

    def set_properties(self, name: TableName, properties: Mapping[str, str]) -> None:
        if properties:
            self._spark.sql(
                f"ALTER TABLE {name.quoted()} SET TBLPROPERTIES ({property_list(properties)})"
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
        identifier = self._tables.identifier(self._tables.holder(name))
        session: Any = self._spark._jsparkSession
        log = self._tables.log(identifier)
        entry = session.sessionState().catalog().getTableMetadata(identifier)
        commit_metadata(self._spark, log, entry, schema, comment, properties)

    def rename(self, name: TableName, new_name: TableName, materialized_id: str) -> None:
        found = self.find(name) if self._tables.exists(name) else None
        if found is None or found.materialized_id != materialized_id:
            logger.info("%s is not renamed: it is gone or another table", name)
            return
        self._detach(name)
        # Spark wants the new name without its catalog.
        target = f"{quote_identifier(new_name.schema)}.{quote_identifier(new_name.table)}"
        self._spark.sql(f"ALTER TABLE {name.quoted()} RENAME TO {target}")

    def _detach(self, name: TableName) -> None:
        """Keep the metastore away from the files of a table that an earlier version created."""
        if self._places.is_managed(name):
            owner = self._files(self._places.of(name)).property(PROPERTY_ID)
            if owner is not None:
                self.set_properties(name, {PROPERTY_PLACE: owner})
            self._places.detach(name)

    def place(self, places: Sequence[TablePlace]) -> tuple[str, ...]:
        snapshots = [self._placed(place) for place in places]
        moving = [place for place in places if self._places.of(place.name) != place.location]
        for place in moving:
            self._detach(place.name)
        for number, place in enumerate(moving):
            if number:
                pause_at(Point.BETWEEN_PLACES)
            self._places.point(place.name, place.location)
            logger.info("%s is at %s", place.name, place.location)
        return tuple(str(snapshot.metadata().id()) for snapshot in snapshots)

    def _placed(self, place: TablePlace) -> Any:
        """Return the newest snapshot of the table that lies at a place."""
        log = self._tables.log(self._jvm.org.apache.hadoop.fs.Path(place.location))
        snapshot = newest_snapshot(self._jvm, log)
        owner = snapshot.metadata().configuration().get(PROPERTY_ID)
        if not owner.isDefined() or str(owner.get()) != place.table_id:
            reason = f"its Delta table is not at {place.location}"
            raise error(Code.MT_DATA_LOST, table=str(place.name), reason=reason)
        return snapshot

    def drop(self, name: TableName, materialized_id: str, location: str = "") -> None:
        holder = self._tables.holder(name)
        places = self._places.known(holder, materialized_id, location)
        if self._tables.exists(holder):
            entered = self._places.of(holder)
            files = self._files(entered)
            if files.belong_to(materialized_id):
                self._detach(holder)
                if not files.are_made_by_tidegate():
                    self._disown(holder)
                self._spark.sql(f"DROP TABLE IF EXISTS {holder.quoted()}")
                places.append(entered)
            elif entered in places and not files.have_table():
                self._places.forget(holder)
            else:
                logger.info("%s is another table by now", holder)
        pause_at(Point.BEFORE_FILES)
        for files in map(self._files, dict.fromkeys(places)):
            if files.belong_to(materialized_id) and files.are_made_by_tidegate():
                files.delete()

    def _disown(self, name: TableName) -> None:
        """Leave a table that a person had put where it is as a plain one of that person."""
        keys = ", ".join(map(quote_literal, (PROPERTY_ID, PROPERTY_DEFINITION)))
        self._spark.sql(f"ALTER TABLE {name.quoted()} UNSET TBLPROPERTIES IF EXISTS ({keys})")

    def last_commit(
        self, name: TableName, materialized_id: str, *, at: int | None = None
    ) -> CommittedRefresh | None:
        return self._tables.last_commit(name, materialized_id, at=at)

    def change(
        self, session: SparkSession, name: TableName, table_id: str, before: int, after: int
    ) -> FoundChange:
        snapshot = self._tables.newest(name)
        if snapshot is None or str(snapshot.metadata().id()) != table_id:
            return FoundChange(method=Method.WHOLE, reason="TABLE_RECREATED")
        return read_change(session, snapshot, before, after)

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
        snapshot = self._tables.target(order)
        target = schema_of(snapshot)
        rows = _fitted(frame, order.columns, target)
        replaced = []
        if partitions:
            types = {field.name.lower(): field.dataType for field in target.fields}
            rows = rows.where(partition_filter(partitions, types))
            replaced.append(partition_predicate(partitions, types))
        elif order.predicate is not None:
            rows = matching(rows, order.predicate)
            replaced.append(order.predicate)
        some = bool(replaced)
        if (mutable := outside_sql(order)) is not None:
            rows = outside(rows, order)
            replaced.append(mutable)
        rows = distributed(rows, order.distribution)
        options = dict(token(order))
        condition = " AND ".join(f"({each}\n)" for each in replaced) or None
        if condition is not None:
            options["replaceWhere"] = condition
        strategy = strategy or (Strategy.PARTITION if some else Strategy.FULL)
        base = self._base(order, snapshot) if some and not partial else None
        beside = self._beside(rows, order, snapshot, condition)
        with checked(rows, order, beside) as known:
            broken = self._gated(known.rows, known.order, vector, beside, strategy, partial)
            metadata = user_metadata(
                known.order, vector, strategy=strategy.value, partial=partial, base=base
            )
            done = self._overwrite(known.rows, options, order, snapshot, metadata)
        return replace(done, expectations={**done.expectations, **known.counts, **broken})

    def _gated(
        self,
        rows: DataFrame,
        order: RefreshOrder,
        vector: Mapping[str, int],
        beside: DataFrame | None,
        strategy: Strategy,
        partial: bool,
    ) -> Mapping[str, int]:
        """Judge rows to be written together with those that stay; raises as :meth:`gate`."""
        if not order.assertions:
            return {}
        # What stops a refresh stops it also where its result would be held.
        refuse_broken(rows, order)
        content = kept(rows, order)
        whole = content if beside is None else content.unionAll(beside)
        return self.gate(whole, order, vector, strategy=strategy, partial=partial)

    def gate(
        self,
        content: DataFrame,
        order: RefreshOrder,
        vector: Mapping[str, int],
        *,
        strategy: Strategy,
        partial: bool = False,
    ) -> Mapping[str, int]:
        if not order.assertions:
            return {}
        snapshot = self._tables.target(order)
        served = self.rows(content.sparkSession, order.name, int(snapshot.version()))
        last = last_refresh(commits(self._jvm, snapshot), order.table_id)
        if last is not None and last.epoch >= order.epoch:
            raise fenced(self._tables, order)
        judged = judge(admitted(content, order), admitted(served, order), order, first=last is None)
        if judged.held is None:
            return judged.counts
        metadata = user_metadata(
            order, vector, strategy=strategy.value, partial=partial, breaks=judged.held
        )
        # A version that could not be published is not held.
        rows = checked_partitions(content, snapshot)
        try:
            HeldPlace(self._spark, path_of(snapshot)).put(rows, order, metadata)
        except (PySparkException, Py4JJavaError) as failed:
            lost = lost_partition(failed, order)
            if lost is not None:
                raise lost from failed
            raise
        raise error(Code.MT_VERSION_HELD, table=str(visible_name(order.name)), reason=judged.held)

    def held(
        self, name: TableName, materialized_id: str, refresh_id: str | None = None
    ) -> CommittedRefresh | None:
        snapshot = self._tables.newest(name)
        if snapshot is None:
            return None
        place = HeldPlace(self._spark, path_of(snapshot))
        waiting = place.find(materialized_id, refresh_id)
        last = last_refresh(commits(self._jvm, snapshot), materialized_id)
        overtaken = waiting is None or (last is not None and last.epoch >= waiting.epoch)
        return None if overtaken else waiting

    def held_rows(self, name: TableName, refresh_id: str, session: SparkSession) -> DataFrame:
        snapshot = self._tables.newest(name)
        return HeldPlace(self._spark, path_of(snapshot)).rows(session, refresh_id)

    def discard_held(self, name: TableName, materialized_id: str) -> None:
        found = self.find(name)
        if found is not None and found.materialized_id == materialized_id:
            HeldPlace(self._spark, path_of(self._tables.newest(name))).clear()

    def fitted(self, order: RefreshOrder, frame: DataFrame, *carried: str) -> DataFrame:
        target = schema_of(self._tables.target(order))
        for name in carried:
            target.add(name, frame.schema[name].dataType)
        return _fitted(frame, (*order.columns, *carried), target)

    def append(
        self, frame: DataFrame, order: RefreshOrder, vector: Mapping[str, int], *, base: int
    ) -> Written:
        snapshot = self._tables.target(order)
        metadata = user_metadata(order, vector, strategy=_INCREMENTAL, base=base)
        rows = distributed(frame, order.distribution)
        return landed(
            self._tables, lambda: append_rows(rows, snapshot, order, metadata), order, snapshot
        )

    def ingest(self, frame: DataFrame, order: RefreshOrder, *, base: int | None) -> Written:
        snapshot = self._tables.target(order)
        if self._base(order, snapshot) != base:
            raise fenced(self._tables, order)
        metadata = user_metadata(order, {}, strategy=Strategy.INGEST.value, base=base)
        rows = _fitted(frame, order.columns, schema_of(snapshot))
        rows = distributed(rows, order.distribution)
        with counted(rows, order) as (admissible, counts):
            done = landed(
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
        vector: Mapping[str, int],
        *,
        base: int,
    ) -> Written:
        snapshot = self._tables.target(order)
        metadata = user_metadata(order, vector, strategy=_INCREMENTAL, base=base)
        return landed(
            self._tables,
            lambda: change_rows(session, snapshot, change, order, metadata),
            order,
            snapshot,
        )

    def advance(
        self, session: SparkSession, order: RefreshOrder, vector: Mapping[str, int], *, base: int
    ) -> Written:
        snapshot = self._tables.target(order)
        metadata = user_metadata(order, vector, strategy=_INCREMENTAL, base=base)
        return landed(
            self._tables, lambda: advance(session, snapshot, order, metadata), order, snapshot
        )

    def untouched_since(self, order: RefreshOrder, version: int) -> bool:
        for commit in self._tables.commits(order):
            if commit.version <= version:
                return True
            if not commit.keeps_rows:
                return False
        return False

    def inspect_files(
        self, name: TableName, materialized_id: str, versions: Sequence[int], back: int
    ) -> FilesFound | None:
        snapshot = self._owned(name, materialized_id)
        return None if snapshot is None else look(self._jvm, snapshot, versions, back)

    def rewrite_files(
        self, name: TableName, materialized_id: str, upkeep_id: str
    ) -> FilesRewritten:
        if self._owned(name, materialized_id) is None:
            return FilesRewritten()
        return rewrite(self._spark.newSession(), name, upkeep_id)

    def remove_files(
        self, name: TableName, materialized_id: str, horizon: Horizon, upkeep_id: str
    ) -> FilesRemoved:
        snapshot = self._owned(name, materialized_id)
        if snapshot is None:
            return FilesRemoved()
        session = self._spark.newSession()
        done = remove(session, snapshot, horizon.before, upkeep_id)
        if horizon.shortens_log:
            shorten_log(session, self._tables.newest(name), horizon.before)
        return done

    def _owned(self, name: TableName, materialized_id: str) -> Any:
        """Return the newest snapshot of the table of this ``tidegate.id``, or None."""
        found = self.find(name)
        owned = found is not None and found.materialized_id == materialized_id
        return self._tables.newest(name) if owned else None

    def _base(self, order: RefreshOrder, snapshot: Any) -> int | None:
        last = last_refresh(commits(self._jvm, snapshot), order.table_id)
        return last.version if last is not None else None

    def _beside(
        self, rows: DataFrame, order: RefreshOrder, snapshot: Any, replaced: str | None
    ) -> DataFrame | None:
        """Return the rows that stay when others are replaced, if a check looks at them too."""
        if replaced is None or not (order.key or order.assertions):
            return None
        table = self.rows(rows.sparkSession, order.name, int(snapshot.version()))
        return table.where(~F.coalesce(F.expr(replaced), F.lit(False)))

    def _overwrite(
        self,
        rows: DataFrame,
        options: Mapping[str, str],
        order: RefreshOrder,
        snapshot: Any,
        metadata: str,
    ) -> Written:
        expected = expect(rows, order)
        files = None if "replaceWhere" in options else known_files(snapshot)

        def commit() -> None:
            if files is not None:
                replace_rows(expected.rows, snapshot, files, order, metadata)
                return
            rows = checked_partitions(expected.rows, snapshot)
            writer = rows.write.format(PROVIDER).mode("overwrite")
            writer.options(**options).option("userMetadata", metadata).save(path_of(snapshot))

        done = landed(self._tables, commit, order, snapshot)
        return replace(done, expectations=expected.counts())

    def _last_change(self, snapshot: Any) -> Commit | None:
        return next((c for c in commits(self._jvm, snapshot) if not c.keeps_rows), None)


def _column(field: T.StructField) -> Column:
    declared = field.metadata.get(_DECLARED)
    return Column(
        name=field.name,
        type=str(declared) if declared else type_sql(field.dataType),
        nullable=field.nullable,
        comment=field.metadata.get("comment"),
    )


def _fitted(frame: DataFrame, columns: Sequence[str], target: T.StructType) -> DataFrame:
    """Name the query's columns, then cast and order them as the table has them.

    The table may have got further columns since the refresh was ordered; they are NULL.
    """
    named = frame.toDF(*columns)
    known = {field.name.lower(): field.dataType for field in named.schema.fields}

    def fitted(field: T.StructField) -> SparkColumn | str:
        column, found = quote_identifier(field.name), known.get(field.name.lower())
        if found == field.dataType:
            return column
        value = F.lit(None) if found is None else F.col(column)
        return value.cast(field.dataType).alias(field.name)

    return named.select(*map(fitted, target.fields))
