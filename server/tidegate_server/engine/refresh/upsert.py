"""Applies the events of a table of changes to a materialized table, by its key."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.core.connectors.changes import DELETED, SEQUENCE
from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.names import visible_name
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.incremental.apply import apply, consolidate
from tidegate_server.engine.storage.base import DiffMismatchError, TableFormat, Written
from tidegate_server.engine.storage.commit_record import CommitRecord
from tidegate_server.engine.storage.exact import WEIGHT, column_named

_LAST = "__last"


def upsert(
    events: DataFrame,
    key: Sequence[str],
    order: RefreshOrder,
    record: CommitRecord,
    format: TableFormat,
    *,
    base: int | None,
) -> Written:
    """Commit the rows after the events, exactly once.

    :param events: the query's columns by position, then DELETED and SEQUENCE.
    :param key: the query's columns that identify a row.
    :param base: the version of the last refresh, after which the events happened; None for the
        first refresh.
    :raises ServerError: as :meth:`TableFormat.ingest` and
        :func:`~tidegate_server.engine.incremental.apply.apply`; MT_STREAM_UNSUPPORTED if the rows
        cannot be compared, or were changed by something other than a refresh.
    """
    named = events.toDF(*order.columns, DELETED, SEQUENCE)
    newest = named.groupBy(*map(column_named, key)).agg(
        F.max_by(F.struct("*"), column_named(SEQUENCE)).alias(_LAST)
    )
    columns = [F.col(_LAST).getField(name).alias(name) for name in order.columns]
    present = newest.where(~F.col(_LAST).getField(DELETED)).select(*columns)
    if base is None:
        return format.ingest(present, order, record, base=None)
    spark = events.sparkSession
    keys = newest.select(*map(column_named, key)).alias("k")
    state = format.find(order.name)
    stored = format.rows(spark, order.name, base if state is None else state.newest).alias("t")
    equal = reduce(and_, (column_named(c, "t") == column_named(c, "k") for c in key))
    replaced = stored.join(keys, equal, "left_semi").select(
        *(column_named(name, "t") for name in order.columns)
    )
    weight = F.lit(1).cast("bigint")
    diff = present.withColumn(WEIGHT, weight).unionAll(replaced.withColumn(WEIGHT, -weight))
    try:
        done = consolidate(format, order, diff, record.frozen_at)
        return apply(spark, format, order, done, record, base=base)
    except DiffMismatchError as mismatch:
        raise error(
            Code.MT_STREAM_UNSUPPORTED,
            what="Changing rows by their key",
            table=str(visible_name(order.name)),
            hint=f"{mismatch}. To start over, drop the table and create it again.",
        ) from mismatch
