"""The rows that a refresh writes, those that they replace, and the checks before the commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tidegate_server.core.model.names import quote_identifier
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.model.versions import PartitionSpec
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.base import check_epoch
from tidegate_server.engine.storage.commit_record import CommitRecord, RecordedRefresh
from tidegate_server.engine.storage.content.assertions import AssertionResult, check_assertions
from tidegate_server.engine.storage.content.distribution import distribute
from tidegate_server.engine.storage.content.expectations import (
    exclude_dropped,
    exclude_quarantined,
    reject_violations,
)
from tidegate_server.engine.storage.content.partition_conditions import (
    partition_filter,
    partition_predicate,
)
from tidegate_server.engine.storage.content.predicate import select_matching
from tidegate_server.engine.storage.content.region import mutable_condition, mutable_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """New rows of a table in place of those that satisfy a condition."""

    rows: DataFrame
    """Fitted, and distributed into files."""
    condition: str | None
    """Selects the rows of the table that are replaced; None if all are."""
    some: bool
    """Whether only some partitions or rows are computed, rather than all that may change."""

    @property
    def strategy(self) -> Strategy:
        """What the commit records unless the refresh says otherwise."""
        return Strategy.PARTITION if self.some else Strategy.FULL

    def rows_beside(self, order: RefreshOrder, stored: Callable[[], DataFrame]) -> DataFrame | None:
        """Return the rows that are not replaced; None if all are, or no check needs them.

        :param stored: returns the rows of the table.
        """
        if self.condition is None or not (order.key or order.assertions):
            return None
        return stored().where(~F.coalesce(F.expr(self.condition), F.lit(False)))


def replacement_of(
    frame: DataFrame,
    order: RefreshOrder,
    record: CommitRecord,
    target: T.StructType,
    partitions: Sequence[PartitionSpec],
    predicate: str | None,
) -> Replacement:
    """Return what :meth:`~tidegate_server.engine.storage.base.TableFormat.write` writes.

    :param target: the columns of the table.
    """
    rows = fit_columns(frame, order.columns, target)
    replaced = []
    if partitions:
        types = {field.name.lower(): field.dataType for field in target.fields}
        rows = rows.where(partition_filter(partitions, types))
        replaced.append(partition_predicate(partitions, types))
    elif predicate is not None:
        rows = select_matching(rows, predicate)
        replaced.append(predicate)
    some = bool(replaced)
    if (mutable := mutable_condition(order, record.frozen_at)) is not None:
        rows = mutable_rows(rows, order, record.frozen_at)
        replaced.append(mutable)
    return Replacement(
        rows=distribute(rows, order.distribution),
        condition=" AND ".join(f"({each}\n)" for each in replaced) or None,
        some=some,
    )


def fit_columns(
    frame: DataFrame, columns: Sequence[str], target: T.StructType, carried: Sequence[str] = ()
) -> DataFrame:
    """Name the query's columns, then cast and order them as the table has them.

    Columns that were added to the table since the refresh was ordered are NULL.

    :param carried: the names of the frame's last columns, which are not cast.
    """
    names = [*columns, *carried]
    named = frame if frame.schema.names == names else frame.toDF(*names)
    fields = [(field.name, field.dataType) for field in named.schema.fields]
    if fields[: len(columns)] == [(field.name, field.dataType) for field in target.fields]:
        return named
    known = {name.lower(): type for name, type in fields}

    def fit(field: T.StructField) -> Column | str:
        column, found = quote_identifier(field.name), known.get(field.name.lower())
        if found == field.dataType:
            return column
        value = F.lit(None) if found is None else F.col(column)
        return value.cast(field.dataType).alias(field.name)

    return named.select(*map(fit, target.fields), *map(quote_identifier, carried))


def content_after(rows: DataFrame, beside: DataFrame | None, order: RefreshOrder) -> DataFrame:
    """Return all rows that a table would have after its refresh, for its assertions.

    :param beside: the rows that are not replaced; None if all are.
    :raises ServerError: MT_EXPECTATION_FAILED: an expectation with FAIL takes precedence over
        holding the result.
    """
    reject_violations(rows, order)
    content = exclude_dropped(rows, order)
    return content if beside is None else content.unionAll(beside)


def judge_content(
    content: DataFrame, served: DataFrame, order: RefreshOrder, last: RecordedRefresh | None
) -> AssertionResult:
    """Check the assertions of a table on all rows that it would have after a commit.

    :param served: its rows before.
    :param last: its last refresh.
    :raises ServerError: MT_REFRESH_FENCED, MT_ASSERTION_FAILED.
    """
    check_epoch(order, last)
    return check_assertions(
        exclude_quarantined(content, order),
        exclude_quarantined(served, order),
        order,
        first=last is None,
    )
