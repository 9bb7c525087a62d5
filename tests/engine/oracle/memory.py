"""Keeps the versions of tables in memory, so that the oracle spends its time on refreshes.

Everything but the storage is the engine's: the analysis of the query, the choice of a strategy, the
derivation of the rows from the changes of the sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tests.engine.oracle.tables import ALL_TABLES
from tests.support.fixtures.spark import Lake
from tidegate_server.core.model.names import TableName, quote_identifier
from tidegate_server.core.model.runs import ChangeMethod, Strategy
from tidegate_server.core.model.types import Schema
from tidegate_server.core.model.versions import PartitionSpec
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.definition.analyze import Analysis
from tidegate_server.engine.query.resolution import Tables
from tidegate_server.engine.results.projection import result_schema
from tidegate_server.engine.storage.base import (
    DiffMismatchError,
    FoundChange,
    ReadVersion,
    TableState,
    Written,
)
from tidegate_server.engine.storage.commit_record import CommitRecord, RecordedRefresh
from tidegate_server.engine.storage.content.replacement import fit_columns
from tidegate_server.engine.storage.exact import WEIGHT
from tidegate_server.engine.storage.jvm import kind, temporary_settings
from tidegate_server.engine.storage.row_change import RowChange

_WITHOUT_CONSTRAINTS = {"spark.sql.constraintPropagation.enabled": "false"}
_NAME = r"(?P<name>`\w+`\.`\w+`\.`(?P<table>\w+)`)"
_TABLE = re.compile(_NAME)
_CREATE = re.compile(rf"CREATE TABLE {_NAME} .*", re.DOTALL)
_CHANGES = tuple(
    re.compile(text, re.DOTALL)
    for text in (
        rf"INSERT INTO {_NAME} REPLACE WHERE (?P<where>.*?) (?P<query>SELECT .*)",
        rf"INSERT (?P<how>INTO|OVERWRITE) {_NAME}(?: \([^()]*\))? (?P<query>SELECT .*)",
        rf"(?:TRUNCATE TABLE|DELETE FROM) {_NAME}(?: WHERE (?P<where>.*))?",
        rf"UPDATE {_NAME} SET (?P<set>.*) WHERE (?P<where>.*)",
    )
)
_ASSIGNED = re.compile(r"(?:^|, )(`[^`]+`) = ")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """The rows of a table after the statements of a step or after a refresh."""

    rows: DataFrame
    count: int
    added: tuple[DataFrame, ...] | None
    """What was added to the version before; None if rows may have been removed."""


@dataclass(slots=True, kw_only=True)
class _Table:
    """A table with all of its versions."""

    name: TableName
    nothing: str
    """A query of no rows. Like those of files, all columns may be NULL."""
    schema: T.StructType
    materialized_id: str | None = None
    versions: list[_Version] = field(default_factory=list)
    refreshed: RecordedRefresh | None = None
    changed: DataFrame | None = None
    """The rows after the statements since the newest version, if there were any."""
    added: tuple[DataFrame, ...] | None = ()
    """What these statements added; None if they may have removed rows."""

    @property
    def id(self) -> str:
        return self.materialized_id or self.name.quoted()

    @property
    def newest(self) -> int:
        return len(self.versions) - 1


class MemoryTables:
    """The part of a table format that refreshes of whole tables use."""

    def __init__(self, session: SparkSession) -> None:
        self.name = "memory"
        self.sources = self
        self._session = session
        self._tables: dict[TableName, _Table] = {}
        self._read: dict[int, ReadVersion] = {}
        """What a leaf reads, by the number of its RDD."""

    # ---- statements ------------------------------------------------------------------------

    def define(self, name: TableName, types: Mapping[str, str], id: str | None = None) -> None:
        """Create an empty table of the given columns."""
        columns = ", ".join(f"CAST(NULL AS {t}) AS {quote_identifier(c)}" for c, t in types.items())
        nothing = f"SELECT {columns} LIMIT 0"
        empty = self._session.sql(nothing)
        table = _Table(name=name, nothing=nothing, schema=empty.schema, materialized_id=id)
        self._tables[name.folded()] = table
        self._store(table, empty, added=None)

    def execute(self, text: str) -> None:
        """Change the rows of a table.

        :raises PySparkException: if the statement is not one for rows in memory.
        """
        for pattern in _CHANGES:
            found = pattern.fullmatch(text)
            if found is not None:
                table = self._table_of(found["table"])
                self._change(table, found.groupdict())
                return
        raise PySparkException("[NOT_IN_MEMORY] only rows can be changed in memory")

    def _change(self, table: _Table, parts: Mapping[str, str | None]) -> None:
        before = table.versions[-1].rows if table.changed is None else table.changed
        view = f"changed_{table.name.table}"
        before.createOrReplaceTempView(view)
        query, where, assigned = parts.get("query"), parts.get("where"), parts.get("set")
        if assigned is not None:
            rows = before.selectExpr(*_assign(table.schema, assigned, str(where)))
        elif where is not None:
            rows = before.where(f"NOT coalesce({where}, false)")
        elif query is not None and parts.get("how") == "INTO":
            rows = before
        else:
            rows = self._session.sql(table.nothing)
        only_adds = rows is before
        if query is not None:
            new = self._session.sql(query.replace(table.name.quoted(), view)).toDF(*rows.columns)
            rows = rows.unionAll(new)
            table.added = (*table.added, new) if only_adds and table.added is not None else None
        else:
            table.added = None
        table.changed = rows

    def _table_of(self, table: str) -> _Table:
        for each in self._tables.values():
            if each.name.table == table:
                return each
        raise PySparkException(f"[NOT_IN_MEMORY] there is no table {table}")

    def _settle(self, table: _Table) -> None:
        """Make a version of the statements since the newest one."""
        if table.changed is not None:
            rows, added = table.changed, table.added
            table.changed, table.added = None, ()
            self._store(table, rows, added=added)

    def _store(
        self, table: _Table, rows: DataFrame, *, added: tuple[DataFrame, ...] | None
    ) -> None:
        empty = self._session.sql(table.nothing)  # whose attributes no other version has
        # Spark fails to derive the constraints of some unions, and nothing here needs them.
        with temporary_settings(rows.sparkSession, _WITHOUT_CONSTRAINTS):
            kept = empty.unionAll(rows).coalesce(1).localCheckpoint(eager=False)
        table.versions.append(_Version(rows=kept, count=kept.count(), added=added))
        frame: Any = kept
        rdd = frame._jdf.queryExecution().analyzed().rdd()
        self._read[int(rdd.id())] = ReadVersion(
            table_id=table.id, version=table.newest, columns=frozenset(kept.columns)
        )
        kept.createOrReplaceGlobalTempView(_version_name(table.name, table.newest))

    # ---- tables of queries -----------------------------------------------------------------

    def find(self, name: TableName) -> TableState | None:
        table = self._tables.get(name.folded())
        if table is None:
            return None
        self._settle(table)
        return TableState(
            table_id=table.id,
            version=table.newest,
            newest=table.newest,
            columns=tuple(table.schema.names),
            materialized_id=table.materialized_id,
        )

    def commit_id(self, name: TableName, version: int) -> str | None:
        return None

    def snapshot_id(self, name: TableName, commit: str) -> str | None:
        return None

    def location(self, name: TableName) -> str:
        return name.folded().quoted()

    def version_sql(self, name: TableName, version: int) -> str:
        return f"(SELECT * FROM global_temp.{_version_name(name, version)})"

    def with_newest(self, text: str) -> str:
        """Replace the names of tables in a query by their newest rows."""

        def newest(found: re.Match[str]) -> str:
            table = self._table_of(found["table"])
            self._settle(table)
            return self.version_sql(table.name, table.newest)

        return _TABLE.sub(newest, text)

    def rows(self, session: SparkSession, name: TableName, version: int) -> DataFrame:
        return session.table(f"global_temp.{_version_name(name, version)}")

    def read_version(self, leaf: Any) -> ReadVersion | None:
        return self._read.get(int(leaf.rdd().id())) if kind(leaf) == "LogicalRDD" else None

    def change(
        self, session: SparkSession, name: TableName, table_id: str, before: int, after: int
    ) -> FoundChange:
        versions = self._tables[name.folded()].versions
        since = versions[before + 1 : after + 1]
        if all(each.added is not None for each in since):
            added = [frame for each in since for frame in each.added or ()]
            return FoundChange(
                method=ChangeMethod.APPENDED,
                rows=versions[after].count - versions[before].count,
                read=lambda: _weighted(reduce(DataFrame.unionAll, added), 1),
            )
        old, new = (self.rows(session, name, version) for version in (before, after))
        return FoundChange(
            method=ChangeMethod.DIFFERENCE,
            rows=versions[before].count + versions[after].count,
            read=lambda: _weighted(new, 1).unionAll(_weighted(old, -1)),
        )

    # ---- materialized tables ---------------------------------------------------------------

    def create(
        self,
        name: TableName,
        schema: Schema,
        partition_keys: Sequence[str],
        comment: str | None,
        properties: Mapping[str, str],
    ) -> None:
        types = {column.name: column.type for column in schema}
        self.define(name, types, properties["tidegate.id"])

    def last_commit(
        self, name: TableName, materialized_id: str, *, at: int | None = None
    ) -> RecordedRefresh | None:
        return self._tables[name.folded()].refreshed

    def fit_columns(self, order: RefreshOrder, frame: DataFrame, *carried: str) -> DataFrame:
        return fit_columns(frame, order.columns, self._of(order).schema, carried)

    def untouched_since(self, order: RefreshOrder, version: int) -> bool:
        return True

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
        if partial:
            raise NotImplementedError
        return self._commit(order, record, self.fit_columns(order, frame), strategy)

    def append(
        self, frame: DataFrame, order: RefreshOrder, record: CommitRecord, *, base: int
    ) -> Written:
        rows = self._of(order).versions[base].rows.unionAll(frame)
        return self._commit(order, record, rows, Strategy.INCREMENTAL)

    def change_rows(
        self,
        session: SparkSession,
        change: RowChange,
        order: RefreshOrder,
        record: CommitRecord,
        *,
        base: int,
    ) -> Written:
        stored = self._of(order).versions[base]
        done = self._commit(order, record, change.apply_to(stored.rows), Strategy.INCREMENTAL)
        if done.rows != stored.count + change.added - change.removed:
            raise DiffMismatchError(f"{order.name} lacks rows that are to be removed")
        return done

    def advance(
        self, session: SparkSession, order: RefreshOrder, record: CommitRecord, *, base: int
    ) -> Written:
        return self._commit(order, record, None, Strategy.INCREMENTAL)

    def _commit(
        self,
        order: RefreshOrder,
        record: CommitRecord,
        rows: DataFrame | None,
        strategy: Strategy | None,
    ) -> Written:
        table = self._of(order)
        if rows is not None:
            self._store(table, rows, added=None)
        table.refreshed = RecordedRefresh(
            epoch=order.epoch,
            version=table.newest,
            refresh_id=order.refresh_id,
            record=record,
            strategy=(strategy or Strategy.FULL).value,
        )
        return Written(version=table.newest, rows=table.versions[-1].count)

    def _of(self, order: RefreshOrder) -> _Table:
        return self._tables[order.name.folded()]

    def forget(self) -> None:
        """Drop all versions."""
        for table in self._tables.values():
            for version in range(len(table.versions)):
                name = _version_name(table.name, version)
                self._session.catalog.dropGlobalTempView(name)
        self._tables.clear()


class MemoryLake(Lake):
    """A schema whose tables are in memory, with empty ones beside them for the text of views."""

    def __init__(self, root: SparkSession) -> None:
        super().__init__(root)
        self._memory = MemoryTables(self.session)
        self.format = cast("Any", self._memory)

    def sql(self, *texts: str) -> None:
        for text in texts:
            created = _CREATE.fullmatch(text)
            if created is not None:
                self._create(created["table"])
            elif text.startswith("CREATE "):
                super().sql(text)
            else:
                self._memory.execute(text)

    def analyze(self, text: str) -> Analysis:
        # The engine's analysis compares the tables that are read, which are others here.
        tables = Tables(self.session, self.format)
        frame = self.session.sql(tables.pin(text, "spark_catalog", self.schema))
        sources = tuple(tables.sources.values())
        return Analysis(schema=result_schema(frame), expanded_query=text, sources=sources)

    def query(self, text: str) -> DataFrame:
        return self.session.sql(self._memory.with_newest(text))

    def frame(self, name: TableName) -> DataFrame:
        return self.query(f"SELECT * FROM {name.quoted()}")

    def _create(self, table: str) -> None:
        types = {c.name: _in_memory(c.type) for c in ALL_TABLES[table].columns}
        self._memory.define(self.name(table), types)
        columns = ", ".join(f"{quote_identifier(c)} {type}" for c, type in types.items())
        super().sql(f"CREATE TABLE {table} ({columns}) USING parquet")

    def close(self) -> None:
        self._memory.forget()
        super().close()


def _assign(schema: T.StructType, assigned: str, where: str) -> list[str]:
    """Return the columns after an UPDATE, from its list of assignments."""
    parts = _ASSIGNED.split(assigned)[1:]
    values = dict(zip(parts[::2], parts[1::2], strict=True))
    found = []
    for column in schema.fields:
        name, type_ = quote_identifier(column.name), column.dataType.simpleString()
        value = f"CASE WHEN {where} THEN CAST({values.get(name, name)} AS {type_}) ELSE {name} END"
        found.append(f"{value} AS {name}" if name in values else name)
    return found


def _in_memory(type: str) -> str:
    """Return a type without a length, which only tables of files enforce."""
    return "STRING" if type.startswith(("CHAR", "VARCHAR")) else type


def _version_name(name: TableName, version: int) -> str:
    return f"{name.schema}_{name.table}_{version}"


def _weighted(frame: DataFrame, weight: int) -> DataFrame:
    return frame.withColumn(WEIGHT, F.lit(weight).cast("bigint"))
