"""Checks the enforced primary key on the content that a refresh is about to commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_, or_

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.clauses import EnforcedKey, Violation
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.commit_record import CommitRecord
from tidegate_server.engine.storage.content.expectations import exclude_dropped, exclude_quarantined
from tidegate_server.engine.storage.exact import WEIGHT, column_named

_SAMPLED = 3
_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRows:
    """Rows to be written, and the result of the key's check."""

    rows: DataFrame
    unique: tuple[str, ...] = ()
    """Columns of the key, if it holds."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Values of the key that are NULL or come more than once, under its name."""

    def recorded_in(self, record: CommitRecord) -> CommitRecord:
        """Return the record with the key, if it was found to hold."""
        return replace(record, unique=self.unique) if self.unique else record


@contextmanager
def check_key(
    rows: DataFrame, order: RefreshOrder, beside: DataFrame | None
) -> Iterator[CheckedRows]:
    """Check the key over new rows together with the rows that stay.

    The rows are computed once and persisted on disk, because running the query again could give
    different rows than those that were checked.

    :param beside: the rows of the table that are not replaced; None if all are.
    :raises ServerError: MT_PK_VIOLATED if the key is violated and has FAIL.
    """
    if order.key is None and not order.assertions:
        yield CheckedRows(rows=rows)
        return
    rows = rows.persist(StorageLevel.DISK_ONLY)
    try:
        if order.key is None:
            yield CheckedRows(rows=rows)
            return
        content = _keys(exclude_quarantined(exclude_dropped(rows, order), order), order.key)
        if beside is not None:
            content = content.unionAll(_keys(exclude_quarantined(beside, order), order.key))
        counts = violations(content, order)
        yield CheckedRows(rows=rows, unique=proven_key(order, counts), counts=counts)
    finally:
        rows.unpersist()


def check_diff(
    stored: DataFrame, changed: DataFrame, order: RefreshOrder, *, held: bool
) -> Mapping[str, int]:
    """Return how many values of the key are NULL or duplicate after a diff.

    :param stored: the table before the diff.
    :param changed: the table's columns and the weight.
    :param held: whether the key is unique in ``stored``, so that only the keys of added rows need
        to be checked.
    :raises ServerError: MT_PK_VIOLATED if the key is violated and has FAIL.
    """
    if order.key is None:
        return {}
    columns = order.key.columns
    stored, changed = exclude_quarantined(stored, order), exclude_quarantined(changed, order)
    content = _keys(stored, order.key).unionAll(changed.select(*map(column_named, columns), WEIGHT))
    if held:
        added = changed.where(F.col(WEIGHT) > 0).select(*map(column_named, columns)).distinct()
        equal = (column_named(c, "c").eqNullSafe(column_named(c, "a")) for c in columns)
        content = content.alias("c").join(added.alias("a"), reduce(and_, equal), "left_semi")
    return violations(content, order)


def proven_key(order: RefreshOrder, counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the columns of the key if no value of it was found to be broken."""
    return () if order.key is None or any(counts.values()) else order.key.columns


def violations(content: DataFrame, order: RefreshOrder) -> Mapping[str, int]:
    """Count the values of the key that are NULL or duplicate.

    :param content: the key's columns and the weight.
    :raises ServerError: MT_PK_VIOLATED if the key is violated and has FAIL.
    """
    key = order.key
    if key is None:
        return {}
    columns = [column_named(name) for name in key.columns]
    times = F.col(WEIGHT)
    unknown = reduce(or_, (column.isNull() for column in columns))
    broken = (
        content.groupBy(*columns)
        .agg(F.sum(WEIGHT).alias(WEIGHT))
        .where((times > 1) | (unknown & (times > 0)))
    )
    count = broken.count()
    if count and key.violation is Violation.FAIL:
        sample = [row[0] for row in broken.select(_key_json(columns)).take(_SAMPLED)]
        raise error(
            Code.MT_PK_VIOLATED,
            key=key.name,
            columns=", ".join(key.columns),
            table=str(order.name),
            count=count,
            sample=", ".join(sample),
        )
    return {key.name: count}


def _keys(rows: DataFrame, key: EnforcedKey) -> DataFrame:
    return rows.select(*map(column_named, key.columns), F.lit(1).cast("bigint").alias(WEIGHT))


def _key_json(columns: list[Column]) -> Column:
    text = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
    return F.substring(text, 1, _SHOWN)
