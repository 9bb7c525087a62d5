"""The enforced primary key, checked on the content that a refresh is about to commit."""

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
from tidegate_server.engine.storage.exact import WEIGHT, named
from tidegate_server.engine.storage.expectations import admitted, kept

_SAMPLED = 3
_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Rows to be written, of which the key is known."""

    rows: DataFrame
    unique: tuple[str, ...] = ()
    """Columns of the key, if it holds."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Values of the key that are NULL or come more than once, under its name."""

    def recorded_in(self, record: CommitRecord) -> CommitRecord:
        """Return the record with the key, if it was found to hold."""
        return replace(record, unique=self.unique) if self.unique else record


@contextmanager
def checked(rows: DataFrame, order: RefreshOrder, beside: DataFrame | None) -> Iterator[Checked]:
    """Check the key of the rows that replace others, together with those that stay.

    The rows are computed once and kept on disk meanwhile: a second run of the query might find
    others, and what was checked is what has to be written.

    :param beside: the rows of the table that are not replaced; None if all are.
    :raises ServerError: MT_PK_VIOLATED if that is to stop the refresh.
    """
    if order.key is None and not order.assertions:
        yield Checked(rows=rows)
        return
    rows = rows.persist(StorageLevel.DISK_ONLY)
    try:
        if order.key is None:
            yield Checked(rows=rows)
            return
        content = _keys(admitted(kept(rows, order), order), order.key)
        if beside is not None:
            content = content.unionAll(_keys(admitted(beside, order), order.key))
        counts = violations(content, order)
        yield Checked(rows=rows, unique=proven_key(order, counts), counts=counts)
    finally:
        rows.unpersist()


def checked_diff(
    stored: DataFrame, changed: DataFrame, order: RefreshOrder, *, held: bool
) -> Mapping[str, int]:
    """Return how many values of the key a diff leaves broken in the table.

    :param stored: the table before the diff.
    :param changed: the table's columns and the weight.
    :param held: whether the key holds in ``stored``, so that only the keys of added rows can
        break it.
    :raises ServerError: MT_PK_VIOLATED if that is to stop the refresh.
    """
    if order.key is None:
        return {}
    columns = order.key.columns
    stored, changed = admitted(stored, order), admitted(changed, order)
    content = _keys(stored, order.key).unionAll(changed.select(*map(named, columns), WEIGHT))
    if held:
        added = changed.where(F.col(WEIGHT) > 0).select(*map(named, columns)).distinct()
        equal = (named(c, "c").eqNullSafe(named(c, "a")) for c in columns)
        content = content.alias("c").join(added.alias("a"), reduce(and_, equal), "left_semi")
    return violations(content, order)


def proven_key(order: RefreshOrder, counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the columns of the key if no value of it was found to be broken."""
    return () if order.key is None or any(counts.values()) else order.key.columns


def violations(content: DataFrame, order: RefreshOrder) -> Mapping[str, int]:
    """Count the values of the key that are NULL or come more than once.

    :param content: the key's columns and, last, how often they come.
    :raises ServerError: MT_PK_VIOLATED if that is to stop the refresh.
    """
    key = order.key
    if key is None:
        return {}
    columns = [named(name) for name in key.columns]
    times = F.col(WEIGHT)
    unknown = reduce(or_, (column.isNull() for column in columns))
    broken = (
        content.groupBy(*columns)
        .agg(F.sum(WEIGHT).alias(WEIGHT))
        .where((times > 1) | (unknown & (times > 0)))
    )
    count = broken.count()
    if count and key.violation is Violation.FAIL:
        sample = [row[0] for row in broken.select(_shown(columns)).take(_SAMPLED)]
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
    return rows.select(*map(named, key.columns), F.lit(1).cast("bigint").alias(WEIGHT))


def _shown(columns: list[Column]) -> Column:
    text = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
    return F.substring(text, 1, _SHOWN)
