"""Delta Lake as a table format."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tidegate_server.errors import Code, ServerError, error
from tidegate_server.model.names import DEFAULT_CATALOG, TableName, quote_identifier, quote_literal
from tidegate_server.model.types import Column, Schema
from tidegate_server.model.versions import PartitionSpec
from tidegate_server.refresh.request import CommittedRefresh, RefreshOrder
from tidegate_server.storage.base import TableState, Written, is_path, table_sql
from tidegate_server.storage.commits import Commit, commits, newest_snapshot

logger = logging.getLogger(__name__)

PROPERTY_ID = "tidegate.id"
_PROVIDER = "delta"
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_NEEDS_MAPPING = frozenset(" ,;{}()\n\t=")


class DeltaFormat:
    """Tables of the session catalog with provider delta.

    Versions come from the transaction log through Delta's own Scala classes, so that nothing here
    starts a Spark job but ``create`` and ``write``.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm

    def find(self, name: TableName) -> TableState | None:
        snapshot = self._snapshot(name)
        if snapshot is None:
            return None
        newest = int(snapshot.version())
        configuration = snapshot.metadata().configuration()
        owner = configuration.get(PROPERTY_ID)
        return TableState(
            table_id=str(snapshot.metadata().id()),
            version=self._last_change(snapshot, newest),
            newest=newest,
            materialized_id=str(owner.get()) if owner.isDefined() else None,
        )

    def pinned(self, name: TableName, version: int) -> str:
        return f"{table_sql(name)} VERSION AS OF {version}"

    def create(
        self,
        name: TableName,
        schema: Schema,
        partition_keys: Sequence[str],
        comment: str | None,
        properties: Mapping[str, str],
    ) -> tuple[str, str]:
        found = self.find(name)
        wanted = properties.get(PROPERTY_ID)
        if found is None or wanted is None or found.materialized_id != wanted:
            self._spark.sql(_create_sql(name, schema, partition_keys, comment, properties))
        snapshot = self._snapshot(name)
        return str(snapshot.deltaLog().dataPath().toString()), str(snapshot.metadata().id())

    def set_properties(self, name: TableName, properties: Mapping[str, str]) -> None:
        if properties:
            self._spark.sql(
                f"ALTER TABLE {name.quoted()} SET TBLPROPERTIES ({_property_list(properties)})"
            )

    def drop(self, name: TableName, materialized_id: str) -> None:
        found = self.find(name)
        if found is None or found.materialized_id != materialized_id:
            logger.info("%s is not dropped: it is gone or another table", name)
            return
        self._spark.sql(f"DROP TABLE IF EXISTS {name.quoted()}")

    def last_commit(self, name: TableName, materialized_id: str) -> CommittedRefresh | None:
        snapshot = self._snapshot(name)
        if snapshot is None:
            return None
        foreign: int | None = None
        for commit in commits(self._jvm, snapshot):
            if commit.metadata.get("mt") == materialized_id:
                return _committed(commit, foreign)
            if not commit.keeps_rows and foreign is None:
                foreign = commit.version
        return None

    def write(
        self,
        frame: DataFrame,
        order: RefreshOrder,
        vector: Mapping[str, int],
        *,
        partitions: Sequence[PartitionSpec],
        partial: bool,
    ) -> Written:
        snapshot = self._snapshot(order.name)
        if snapshot is None:
            raise error(
                Code.MT_DATA_LOST, table=str(order.name), reason="its Delta table does not exist"
            )
        before = int(snapshot.version())
        target = T.StructType.fromJson(json.loads(snapshot.metadata().schema().json()))
        rows = _fitted(frame, target)
        options: dict[str, str] = {}
        if partitions:
            types = {field.name.lower(): field.dataType for field in target.fields}
            rows = rows.where(_partition_filter(partitions, types))
            options["replaceWhere"] = _partition_predicate(partitions, types)
        writer = (
            rows.write.format(_PROVIDER)
            .mode("overwrite")
            .options(**options)
            .option("txnAppId", f"mt:{order.table_id}")
            .option("txnVersion", str(order.epoch))
            .option("userMetadata", _user_metadata(order, vector, partial=partial))
        )
        try:
            writer.save(str(snapshot.deltaLog().dataPath().toString()))
        except PySparkException as failed:
            last = self.last_commit(order.name, order.table_id)
            if last is None or last.epoch <= order.epoch:
                raise
            raise self._fenced(order) from failed
        return self._verified(order, before)

    def _verified(self, order: RefreshOrder, before: int) -> Written:
        """Find our commit: Delta skips a write with an outdated epoch without a word."""
        snapshot = self._snapshot(order.name)
        if snapshot is not None:
            for commit in commits(self._jvm, snapshot):
                if commit.version <= before:
                    break
                if commit.metadata.get("refresh_id") == order.refresh_id:
                    return Written(version=commit.version, rows=commit.rows)
        raise self._fenced(order)

    def _fenced(self, order: RefreshOrder) -> ServerError:
        last = self.last_commit(order.name, order.table_id)
        return error(
            Code.MT_REFRESH_FENCED,
            epoch=order.epoch,
            table=str(order.name),
            current=last.epoch if last is not None else "unknown",
        )

    def _last_change(self, snapshot: Any, newest: int) -> int:
        for commit in commits(self._jvm, snapshot):
            if not commit.keeps_rows:
                return commit.version
        return newest

    def _snapshot(self, name: TableName) -> Any:
        """Return the newest snapshot, or None if there is no such Delta table."""
        identifier = _identifier(self._jvm, name)
        session: Any = self._spark._jsparkSession
        catalog = session.sessionState().catalog()
        if not (_is_delta_path(name) or _is_delta_table(catalog, name, identifier)):
            return None
        log = self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session, identifier)
        snapshot = newest_snapshot(self._jvm, log)
        return snapshot if int(snapshot.version()) >= 0 else None


def _identifier(jvm: Any, name: TableName) -> Any:
    option = jvm.scala.Option
    catalog = option.empty() if is_path(name) else option.apply(name.catalog)
    return jvm.org.apache.spark.sql.catalyst.TableIdentifier(
        name.table, option.apply(name.schema), catalog
    )


def _is_delta_path(name: TableName) -> bool:
    return is_path(name) and name.schema.lower() == _PROVIDER


def _is_delta_table(catalog: Any, name: TableName, identifier: Any) -> bool:
    """Say whether Spark's session catalog has a Delta table of that name."""
    if is_path(name) or name.catalog.lower() != DEFAULT_CATALOG:
        return False
    if not catalog.tableExists(identifier):
        return False
    provider = catalog.getTableMetadata(identifier).provider()
    return bool(provider.isDefined()) and str(provider.get()).lower() == _PROVIDER


def _committed(commit: Commit, foreign: int | None) -> CommittedRefresh:
    facts = commit.metadata
    return CommittedRefresh(
        epoch=int(facts["epoch"]),
        version=commit.version,
        definition_version=int(facts["definition_version"]),
        vector={str(k): int(v) for k, v in facts["sources"].items()},
        refresh_id=str(facts["refresh_id"]),
        partial=bool(facts.get("partial", False)),
        foreign_version=foreign,
    )


def _user_metadata(order: RefreshOrder, vector: Mapping[str, int], *, partial: bool) -> str:
    return json.dumps(
        {
            "mt": order.table_id,
            "refresh_id": order.refresh_id,
            "epoch": order.epoch,
            "definition_version": order.definition_version,
            "sources": dict(vector),
            "trigger": order.trigger.value,
            "logical_time": order.logical_time.isoformat(),
            "partial": partial,
        }
    )


def _create_sql(
    name: TableName,
    schema: Schema,
    partition_keys: Sequence[str],
    comment: str | None,
    properties: Mapping[str, str],
) -> str:
    facts = {"delta.enableChangeDataFeed": "true", **properties}
    if any(_NEEDS_MAPPING & set(column.name) for column in schema):
        facts["delta.columnMapping.mode"] = "name"
    columns = ", ".join(_column_sql(column) for column in schema)
    parts = [f"CREATE TABLE {name.quoted()} ({columns}) USING delta"]
    if partition_keys:
        parts.append(f"PARTITIONED BY ({', '.join(quote_identifier(k) for k in partition_keys)})")
    if comment is not None:
        parts.append(f"COMMENT {quote_literal(comment)}")
    parts.append(f"TBLPROPERTIES ({_property_list(facts)})")
    return " ".join(parts)


def _column_sql(column: Column) -> str:
    """Keep NOT NULL, which keys need and materialized tables downstream inherit."""
    required = "" if column.nullable else " NOT NULL"
    comment = f" COMMENT {quote_literal(column.comment)}" if column.comment else ""
    return f"{quote_identifier(column.name)} {column.type}{required}{comment}"


def _property_list(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{quote_literal(k)} = {quote_literal(v)}" for k, v in properties.items())


def _fitted(frame: DataFrame, target: T.StructType) -> DataFrame:
    """Name and cast the query's columns as the table has them, by position."""
    fields = target.fields
    plain = frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))
    return plain.select(
        *(F.col(f"c{i}").cast(f.dataType).alias(f.name) for i, f in enumerate(fields))
    )


def _partition_filter(
    partitions: Sequence[PartitionSpec], types: Mapping[str, T.DataType]
) -> SparkColumn:
    """Values are data: compared as columns, never pasted into SQL."""

    def matches(spec: PartitionSpec) -> SparkColumn:
        return reduce(and_, (_equals(key, value, types) for key, value in spec.items()))

    return reduce(or_, (matches(spec) for spec in partitions))


def _equals(key: str, value: str, types: Mapping[str, T.DataType]) -> SparkColumn:
    column = F.col(quote_identifier(key))
    if value == _NULL_PARTITION:
        return column.isNull()
    return column == F.lit(value).cast(types[key.lower()])


def _partition_predicate(
    partitions: Sequence[PartitionSpec], types: Mapping[str, T.DataType]
) -> str:
    def matches(spec: PartitionSpec) -> str:
        return " AND ".join(_equals_sql(key, value, types) for key, value in spec.items())

    return " OR ".join(f"({matches(spec)})" for spec in partitions)


def _equals_sql(key: str, value: str, types: Mapping[str, T.DataType]) -> str:
    column = quote_identifier(key)
    if value == _NULL_PARTITION:
        return f"{column} IS NULL"
    return f"{column} = CAST({quote_literal(value)} AS {types[key.lower()].simpleString()})"
