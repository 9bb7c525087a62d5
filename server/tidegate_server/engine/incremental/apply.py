"""Applies a table's signed diff in one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tidegate_server.core.model.clauses import Violation
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.base import DiffMismatchError, TableFormat, Written
from tidegate_server.engine.storage.commit_record import CommitRecord
from tidegate_server.engine.storage.content.expectations import (
    drops,
    exclude_dropped,
    expectation_error,
    row_json,
    violates,
)
from tidegate_server.engine.storage.content.region import mutable_rows
from tidegate_server.engine.storage.content.unique import check_diff, proven_key
from tidegate_server.engine.storage.exact import (
    WEIGHT,
    as_text,
    column_named,
    comparable,
    from_text,
    quote_column,
    sum_weights,
    text_sql,
)
from tidegate_server.engine.storage.row_change import COPIES, ROW_ID, RowChange, repeat_rows

_OWN = frozenset({WEIGHT, ROW_ID, COPIES})
_BROADCAST = 50_000
# Delta stores the value range of a file's first columns.
_RANGED = 32
_ORDERED = (
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.DecimalType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.StringType,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidatedDelta:
    """A diff that is computed once, with statistics about it."""

    rows: DataFrame
    """Each changed row once, fitted, its weight and a unique number."""
    gone: int
    """Distinct rows with removed copies."""
    removed: int
    """Removed copies."""
    added: int
    """Added copies."""
    distinct: bool
    """Whether the table has each removed row only once."""
    ranged: bool
    """Whether it has ranges."""
    row: Row
    """The ranges, broken expectations, and requested aggregates."""


def consolidate(
    format: TableFormat,
    order: RefreshOrder,
    diff: DataFrame,
    frozen_at: datetime | None,
    *,
    distinct: bool = False,
    ranged: bool = True,
    asked: Sequence[str] = (),
    beside: Sequence[DataFrame] = (),
) -> ConsolidatedDelta:
    """Compute a diff; one Spark job.

    A second computation could give a sum of doubles other last digits.

    :param diff: the query's columns by position, then ``__weight BIGINT``. A row may occur several
        times; its weights are summed. Immutable rows are left out.
    :param distinct: whether no row occurs twice, in the diff or in the table. Columns after the
        diff's weight serve the ``asked`` aggregates.
    :param ranged: whether the table may have files that can be skipped.
    :param asked: further named aggregates in SQL to compute.
    :param beside: frames of one row to compute in the same job.
    :raises DiffMismatchError: if a column's name conflicts with those of a diff.
    """
    if _OWN & {name.lower() for name in order.columns}:
        raise DiffMismatchError(f"{order.name} has a column named as those of a diff are")
    fitted = mutable_rows(
        format.fit_columns(order, diff, *diff.columns[len(order.columns) :]), order, frozen_at
    )
    unique = fitted if distinct else sum_weights(fitted)
    rows = unique.withColumn(ROW_ID, F.monotonically_increasing_id())
    computed = rows.localCheckpoint(eager=False)
    counted = _count_change(computed, order, asked, beside, ranged=ranged)
    return ConsolidatedDelta(
        rows=computed.drop(*diff.columns[len(order.columns) + 1 :]),
        gone=counted["gone"],
        removed=counted["removed"],
        added=counted["added"],
        distinct=distinct,
        ranged=ranged,
        row=counted,
    )


def apply(
    session: SparkSession,
    format: TableFormat,
    order: RefreshOrder,
    diff: ConsolidatedDelta,
    record: CommitRecord,
    *,
    base: int,
) -> Written:
    """Add and remove rows in one commit; a diff that sums to zero commits no data.

    :param session: the refresh's own session, whose settings are changed temporarily.
    :param base: the last refresh's version, to which the diff applies.
    :raises DiffMismatchError: if the table lacks rows that are to be removed.
    :raises ServerError: MT_REFRESH_FENCED if a later epoch was committed,
        MT_EXPECTATION_FAILED if an added row breaks an expectation with FAIL,
        MT_PK_VIOLATED if the primary key would be violated and fails the refresh,
        MT_ASSERTION_FAILED if an assertion fails the refresh, MT_VERSION_HELD if one holds it.
    """
    if not format.untouched_since(order, base):
        raise DiffMismatchError(f"{order.name} was changed by something other than a refresh")
    counts = _check_expectations(diff, order)
    changed = exclude_dropped(diff.rows, order)
    broken_keys = _key_checked(session, format, order, changed, diff)
    record = replace(record, unique=proven_key(order, broken_keys))
    counts = {**counts, **broken_keys}
    done = _commit(session, format, order, changed, diff, record, base)
    return replace(done, expectations={**counts, **done.expectations})


def _count_change(
    rows: DataFrame,
    order: RefreshOrder,
    asked: Sequence[str],
    beside: Sequence[DataFrame],
    *,
    ranged: bool,
) -> Row:
    """Count the rows and those breaking expectations; find the range of removed rows."""
    stays = " AND ".join(f"NOT {e.broken}" for e in order.expectations if drops(e)) or "true"
    removed = f"({WEIGHT} < 0 AND {stays})"
    added = f"greatest({WEIGHT}, 0)"
    counts = [
        f"count_if({removed}) AS gone",
        f"{_total(removed, f'-{WEIGHT}')} AS removed",
        f"{_total(stays, added)} AS added",
    ]
    for number, each in enumerate(order.expectations):
        counts.append(f"{_total(each.broken, added)} AS e{number}")
    for number, field in _range_columns(rows) if ranged else ():
        column = quote_column(field.name)
        value = f"CASE WHEN {removed} THEN {column} END"
        counts += [
            f"{as_text(f'min({value})', field.dataType)} AS low{number}",
            f"{as_text(f'max({value})', field.dataType)} AS high{number}",
            f"count_if({removed} AND {column} IS NULL) AS null{number}",
        ]
    row = reduce(DataFrame.crossJoin, beside, rows.selectExpr(*counts, *asked)).first()
    if row is None:
        raise AssertionError("an aggregate without groups has one row")
    return row


def _total(condition: str, weight: str) -> str:
    return f"coalesce(sum(CASE WHEN {condition} THEN {weight} END), 0L)"


def _check_expectations(diff: ConsolidatedDelta, order: RefreshOrder) -> Mapping[str, int]:
    """Return how many added rows break each expectation.

    :raises ServerError: MT_EXPECTATION_FAILED for the first broken one with FAIL.
    """
    for number, each in enumerate(order.expectations):
        if each.violation is Violation.FAIL and diff.row[f"e{number}"]:
            plain = diff.rows.where((F.col(WEIGHT) > 0) & violates(each)).drop(*_OWN)
            first = plain.select(row_json(plain).alias("row")).first()
            raise expectation_error(order, each, first["row"] if first is not None else "")
    return {e.name: int(diff.row[f"e{n}"]) for n, e in enumerate(order.expectations)}


def _key_checked(
    session: SparkSession,
    format: TableFormat,
    order: RefreshOrder,
    changed: DataFrame,
    diff: ConsolidatedDelta,
) -> Mapping[str, int]:
    """Return how many key values would violate the key afterwards; raises MT_PK_VIOLATED."""
    if order.key is None:
        return {}
    last = format.last_commit(order.name, order.table_id)
    held = last is not None and last.record.unique == order.key.columns
    if held and not diff.added:
        return {order.key.name: 0}
    stored = _table(session, format, order)
    columns = [field.name for field in _table_fields(changed)]
    return check_diff(stored, changed.select(*map(column_named, columns), WEIGHT), order, held=held)


def _commit(
    session: SparkSession,
    format: TableFormat,
    order: RefreshOrder,
    changed: DataFrame,
    diff: ConsolidatedDelta,
    record: CommitRecord,
    base: int,
) -> Written:
    if not diff.removed and not diff.added:
        return format.advance(session, order, record, base=base)
    if not diff.removed:
        rows = repeat_rows(changed, tuple(_table_fields(changed)))
        broken = _check_assertions(
            session, format, order, record, lambda stored: stored.unionByName(rows)
        )
        return replace(format.append(rows, order, record, base=base), expectations=broken)
    fields = tuple(_table_fields(changed))
    if not all(comparable(field.dataType) for field in fields):
        raise DiffMismatchError(f"{order.name} has a column whose values cannot be compared")
    change = RowChange(
        rows=changed,
        fields=fields,
        within=_within(changed, diff),
        removed=diff.removed,
        added=diff.added,
        few=diff.gone <= _BROADCAST,
        unique=diff.distinct,
    )
    broken = _check_assertions(session, format, order, record, change.apply_to)
    done = format.change_rows(session, change, order, record, base=base)
    return replace(done, expectations=broken)


def _check_assertions(
    session: SparkSession,
    format: TableFormat,
    order: RefreshOrder,
    record: CommitRecord,
    applied: Callable[[DataFrame], DataFrame],
) -> Mapping[str, int]:
    """Check the table's assertions on the rows after the commit.

    :param applied: computes them from the stored ones.
    :raises ServerError: as the format's ``gate``.
    """
    if not order.assertions:
        return {}
    content = applied(_table(session, format, order))
    return format.gate(content, order, record, strategy=Strategy.INCREMENTAL)


def _table(session: SparkSession, format: TableFormat, order: RefreshOrder) -> DataFrame:
    """Return the rows before the diff; raises DiffMismatchError if the table is gone."""
    state = format.find(order.name)
    if state is None:
        raise DiffMismatchError(f"{order.name} is gone")
    return format.rows(session, order.name, state.newest)


def _within(changed: DataFrame, diff: ConsolidatedDelta) -> Column:
    """Return the ranges of removed rows, which let Delta skip files of the table."""
    ranged = _range_columns(changed) if diff.ranged else ()
    bounds = (_bounds(number, field, diff.row) for number, field in ranged)
    return F.expr(" AND ".join(bounds) or "true")


def _bounds(number: int, field: T.StructField, row: Row) -> str:
    low, high, nulls = (row[f"{part}{number}"] for part in ("low", "high", "null"))
    column = quote_column(field.name, "t")
    if low is None:
        return f"{column} IS NULL"
    first, last = (from_text(text_sql(bound), field.dataType) for bound in (low, high))
    # Not BETWEEN, which Spark replaces only after its analysis: Delta's statistics come earlier.
    inside = f"{column} >= {first} AND {column} <= {last}"
    return f"({inside} OR {column} IS NULL)" if nulls else inside


def _range_columns(rows: DataFrame) -> Iterator[tuple[int, T.StructField]]:
    """Yield the columns that let Delta skip files."""
    for number, field in enumerate(_table_fields(rows)[:_RANGED]):
        if isinstance(field.dataType, _ORDERED):
            yield number, field


def _table_fields(rows: DataFrame) -> list[T.StructField]:
    return [field for field in rows.schema.fields if field.name not in _OWN]
