"""Prepares the changes of a table, one batch at a time, for the target of a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tidegate_server.core.connectors.change_targets import AFTER, Taking
from tidegate_server.core.connectors.changes import DELETED
from tidegate_server.core.errors import ServerError
from tidegate_server.core.jobs import JobInsert
from tidegate_server.core.sql.streams import Stream
from tidegate_server.engine.query.connector_sinks import accept_changes
from tidegate_server.engine.query.job_targets import (
    JobTarget,
    changes_taken,
    unwritable_error,
)
from tidegate_server.engine.query.table_changes import CHANGE, VERSION
from tidegate_server.engine.storage.exact import WEIGHT, comparable, key_sql, sum_weights

_AMBIGUOUS = "__tidegate_ambiguous"
_USE_KEY = (
    "Write into a table of the connector upsert-kafka, or of jdbc with a PRIMARY KEY; or select "
    "_change_type, which makes each change a row."
)


@dataclass(frozen=True, slots=True)
class Changes:
    """How the changes of a table are written by one INSERT."""

    stream: Stream
    insert: JobInsert
    taking: Taking
    key: tuple[int, ...] = ()
    """The positions of the target's key in a row."""

    @classmethod
    def of(cls, stream: Stream, insert: JobInsert, target: JobTarget) -> Changes:
        """Return how a target takes the changes; raises JOB_CHANGES_UNWRITABLE."""
        taking, key = changes_taken(target, insert.target, stream, insert.query, insert.columns)
        return cls(stream, insert, taking, key)

    @property
    def tells_deleted(self) -> bool:
        """Whether rows have DELETED as their last column."""
        return self.taking in (Taking.BY_KEY, Taking.PRINTED)

    @contextmanager
    def prepare(self, batch: DataFrame) -> Iterator[DataFrame | None]:
        """Yield the rows to insert for a batch; None if there are none.

        :param batch: the columns of the query, CHANGE and VERSION.
        :raises ServerError: JOB_CHANGES_UNWRITABLE if the target cannot take them.
        """
        names = [f"_{number}" for number in range(len(batch.columns) - 2)]
        rows = batch.toDF(*names, CHANGE, VERSION)
        if self.tells_deleted:
            accept_changes(batch.sparkSession)
        match self.taking:
            case Taking.BY_KEY:
                yield from self._by_key(rows, [names[place] for place in self.key])
            case Taking.ADDED:
                yield self._added(rows, names)
            case Taking.PRINTED:
                ordered = rows.orderBy(VERSION, _is_after())
                yield ordered.select(*names, (~_is_after()).alias(DELETED))
            case Taking.AS_ROWS:
                yield rows.select(*names)

    def _by_key(self, rows: DataFrame, key: Sequence[str]) -> Iterator[DataFrame | None]:
        net = net_by_key(rows, key).persist()
        try:
            without_key = F.exists(F.array(*(F.col(c).isNull() for c in key)), lambda null: null)
            found = net.agg(F.count(F.lit(1)), F.max(_AMBIGUOUS), F.count_if(without_key)).first()
            count, ambiguous, nulls = found if found is not None else (0, None, 0)
            if ambiguous is not None:
                reason = f"version {ambiguous} has several rows with the same key"
                hint = "The key of the target must identify the rows of the query."
                raise self._error(reason, hint)
            if nulls:
                reason = "columns of its key are NULL"
                hint = "Leave such rows out with WHERE, or choose another key."
                raise self._error(reason, hint)
            yield net.drop(_AMBIGUOUS) if count else None
        finally:
            net.unpersist()

    def _added(self, rows: DataFrame, names: Sequence[str]) -> DataFrame | None:
        changed = _least_version(rows.where(F.col(CHANGE) != AFTER[0]))
        if changed is None:
            return rows.select(*names)
        net = net_rows(rows)
        removed = _least_version(net.where(F.col(WEIGHT) < 0))
        if removed is not None:
            reason = f"version {removed} updates or deletes rows, and it only takes new ones"
            raise self._error(reason, _USE_KEY)
        copies = F.explode(F.array_repeat(F.lit(0), F.col(WEIGHT).cast("int")))
        added = net.select(*names, copies).select(*names)
        return None if added.isEmpty() else added

    def _error(self, reason: str, hint: str) -> ServerError:
        return unwritable_error(self.stream, self.insert.target, reason, hint)


def net_by_key(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return for each key the row that it has after all changes, or had before it was deleted.

    Within a version, a key that is removed and added is updated. Keys whose row is the same as
    before are left out.

    :param rows: columns, CHANGE and VERSION.
    :return: the columns, DELETED, and a version in which the key has several rows, or NULL.
    """
    fields = [each for each in rows.schema.fields if each.name not in (CHANGE, VERSION)]
    row, after = F.struct(*(each.name for each in fields)), _is_after()
    of_version = rows.groupBy(*key, VERSION).agg(
        F.max_by(row, after).alias("last"),
        F.max(after).alias("there"),
        F.min_by(row, after).alias("first"),
        F.min(after).alias("new"),
        F.when(F.count_if(after) > 1, F.col(VERSION)).alias(_AMBIGUOUS),
    )
    of_key = of_version.groupBy(*key).agg(
        F.max_by(F.struct("last", "there"), VERSION).alias("later"),
        F.min_by(F.struct("first", "new"), VERSION).alias("earlier"),
        F.min(_AMBIGUOUS).alias(_AMBIGUOUS),
    )
    same = F.lit(False)
    if all(comparable(each.dataType) for each in fields):
        values = [
            f"{key_sql(f'earlier.first.{each.name}', each.dataType)} <=> "
            f"{key_sql(f'later.last.{each.name}', each.dataType)}"
            for each in fields
        ]
        same = F.expr(f"later.there AND NOT earlier.new AND {' AND '.join(values)}")
    kept = of_key.where(~same | F.col(_AMBIGUOUS).isNotNull())
    return kept.select("later.last.*", (~F.col("later.there")).alias(DELETED), _AMBIGUOUS)


def net_rows(rows: DataFrame) -> DataFrame:
    """Return the rows that each version adds, with how often as WEIGHT, which is negative for those
    that it removes.

    A row that a version removes and adds, as one that replaces all rows does, is left out.

    :param rows: columns, CHANGE and VERSION.
    """
    weight = F.when(_is_after(), 1).otherwise(-1).cast(T.LongType())
    return sum_weights(rows.withColumn(WEIGHT, weight).drop(CHANGE))


def _is_after() -> Column:
    return F.col(CHANGE).isin(*AFTER)


def _least_version(rows: DataFrame) -> int | None:
    found = rows.agg(F.min(VERSION)).first()
    return None if found is None else found[0]
