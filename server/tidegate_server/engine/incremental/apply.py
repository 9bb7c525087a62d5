"""Lands a signed diff of a materialized table in one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tidegate_server.model.clauses import Violation
from tidegate_server.model.runs import Strategy
from tidegate_server.refresh.request import RefreshOrder
from tidegate_server.storage.base import DiffMismatchError, TableFormat, Written
from tidegate_server.storage.exact import WEIGHT, comparable, named, summed
from tidegate_server.storage.expectations import broken, drops, kept, shown, violated
from tidegate_server.storage.region import outside
from tidegate_server.storage.row_change import COPIES, ROW_ID, RowChange, copied
from tidegate_server.storage.unique import checked_diff, found

_OWN = frozenset({WEIGHT, ROW_ID, COPIES})
_BROADCAST = 10_000
# Delta keeps the range of values of a file's first columns.
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


@dataclass(frozen=True, slots=True)
class _Facts:
    """What one look at the diff told; ``row`` has the ranges and the broken expectations."""

    gone: int
    """Different rows that go, or of which copies go."""
    removed: int
    """Copies that go."""
    added: int
    """Copies that come."""
    row: Row


def apply(
    session: SparkSession,
    format: TableFormat,
    order: RefreshOrder,
    diff: DataFrame,
    vector: Mapping[str, int],
    *,
    base: int,
) -> Written:
    """Add and take away rows in one commit; a diff that sums to nothing makes one without data.

    ``diff`` has the query's columns by position and, last, ``__weight BIGINT``. A row may come
    several times; the sum of its weights is what counts. What concerns immutable rows is left out.

    :param session: the refresh's own session, whose settings are changed meanwhile.
    :param base: the version of the last refresh, whose content the diff was computed for.
    :raises DiffMismatchError: if the table does not hold what is to be taken away.
    :raises ServerError: MT_REFRESH_FENCED if a later epoch was committed already,
        MT_EXPECTATION_FAILED if an added row breaks an expectation that is to stop the refresh,
        MT_PK_VIOLATED if the primary key would not hold and that is to stop it,
        MT_ASSERTION_FAILED if an assertion is to stop it, MT_VERSION_HELD if one has it held.
    """
    if not format.untouched_since(order, base):
        raise DiffMismatchError(f"{order.name} was changed by somebody else")
    if _OWN & {name.lower() for name in order.columns}:
        raise DiffMismatchError(f"{order.name} has a column named as those of a diff are")
    settled = _settled(format, order, diff)
    facts = _look(settled, order)
    counts = _expected(settled, facts, order)
    changed = kept(settled, order)
    broken_keys = _key_checked(session, format, order, changed, facts)
    order, counts = found(order, broken_keys), {**counts, **broken_keys}
    done = _commit(session, format, order, changed, facts, vector, base)
    return replace(done, expectations={**counts, **done.expectations})


def _settled(format: TableFormat, order: RefreshOrder, diff: DataFrame) -> DataFrame:
    """Return each changed row once, under a number of its own.

    The first job that reads it computes it once and for all: a second computation might give
    other digits of a sum of doubles.
    """
    fitted = outside(format.fitted(order, diff, WEIGHT), order)
    rows = summed(fitted).withColumn(ROW_ID, F.monotonically_increasing_id())
    return rows.localCheckpoint(eager=False)


def _look(settled: DataFrame, order: RefreshOrder) -> _Facts:
    """Count the rows, those that break expectations, and find the range of what is removed."""
    stays = reduce(and_, (~violated(e) for e in order.expectations if drops(e)), F.lit(True))
    removed = (F.col(WEIGHT) < 0) & stays
    added = F.when(F.col(WEIGHT) > 0, F.col(WEIGHT)).otherwise(0)
    counts = [
        F.count_if(removed).alias("gone"),
        _total(F.when(removed, -F.col(WEIGHT))).alias("removed"),
        _total(F.when(stays, added)).alias("added"),
    ]
    for number, each in enumerate(order.expectations):
        counts.append(_total(F.when(violated(each), added)).alias(f"e{number}"))
    for number, field in _ranged(settled):
        value = F.when(removed, named(field.name))
        counts += [
            _bound(F.min(value), field).alias(f"low{number}"),
            _bound(F.max(value), field).alias(f"high{number}"),
            F.count_if(removed & named(field.name).isNull()).alias(f"null{number}"),
        ]
    row = settled.agg(*counts).first()
    if row is None:
        raise AssertionError("an aggregate without groups has one row")
    return _Facts(row["gone"], row["removed"], row["added"], row)


def _total(weight: Column) -> Column:
    return F.coalesce(F.sum(weight), F.lit(0))


def _expected(settled: DataFrame, facts: _Facts, order: RefreshOrder) -> Mapping[str, int]:
    """Return how many added rows break each expectation.

    :raises ServerError: MT_EXPECTATION_FAILED for the first one that is to stop the refresh.
    """
    for number, each in enumerate(order.expectations):
        if each.violation is Violation.FAIL and facts.row[f"e{number}"]:
            plain = settled.where((F.col(WEIGHT) > 0) & violated(each)).drop(*_OWN)
            first = plain.select(shown(plain).alias("row")).first()
            raise broken(order, each, first["row"] if first is not None else "")
    return {e.name: int(facts.row[f"e{n}"]) for n, e in enumerate(order.expectations)}


def _key_checked(
    session: SparkSession,
    format: TableFormat,
    order: RefreshOrder,
    changed: DataFrame,
    facts: _Facts,
) -> Mapping[str, int]:
    """Return how many values of the key would not be unique afterwards; raises MT_PK_VIOLATED."""
    if order.key is None:
        return {}
    last = format.last_commit(order.name, order.table_id)
    held = last is not None and last.unique == order.key.columns
    if held and not facts.added:
        return {order.key.name: 0}
    stored = _table(session, format, order)
    columns = [field.name for field in _stored(changed)]
    return checked_diff(stored, changed.select(*map(named, columns), WEIGHT), order, held=held)


def _commit(
    session: SparkSession,
    format: TableFormat,
    order: RefreshOrder,
    changed: DataFrame,
    facts: _Facts,
    vector: Mapping[str, int],
    base: int,
) -> Written:
    if not facts.removed and not facts.added:
        return format.advance(session, order, vector, base=base)
    if not facts.removed:
        rows = copied(changed, tuple(_stored(changed)), F.col(WEIGHT))
        broken = _gated(session, format, order, vector, lambda stored: stored.unionByName(rows))
        return replace(format.append(rows, order, vector, base=base), expectations=broken)
    fields = tuple(_stored(changed))
    if not all(comparable(field.dataType) for field in fields):
        raise DiffMismatchError(f"{order.name} has a column whose values cannot be compared")
    change = RowChange(
        rows=changed,
        fields=fields,
        within=_within(changed, facts),
        removed=facts.removed,
        added=facts.added,
        few=facts.gone <= _BROADCAST,
    )
    broken = _gated(session, format, order, vector, change.applied)
    done = format.change_rows(session, change, order, vector, base=base)
    return replace(done, expectations=broken)


def _gated(
    session: SparkSession,
    format: TableFormat,
    order: RefreshOrder,
    vector: Mapping[str, int],
    applied: Callable[[DataFrame], DataFrame],
) -> Mapping[str, int]:
    """Judge the rows that the commit would leave by the table's assertions.

    :param applied: makes them of those that are stored.
    :raises ServerError: as the format's ``gate``.
    """
    if not order.assertions:
        return {}
    content = applied(_table(session, format, order))
    return format.gate(content, order, vector, strategy=Strategy.INCREMENTAL)


def _table(session: SparkSession, format: TableFormat, order: RefreshOrder) -> DataFrame:
    """Return the rows before the diff; raises DiffMismatchError if the table is gone."""
    state = format.find(order.name)
    if state is None:
        raise DiffMismatchError(f"{order.name} is gone")
    return session.sql(f"SELECT * FROM {format.pinned(order.name, state.newest)}")


def _within(changed: DataFrame, facts: _Facts) -> Column:
    """Return the ranges of what is removed, by which files of the table can be skipped."""
    bounds = (_bounds(number, field, facts.row) for number, field in _ranged(changed))
    return reduce(and_, bounds, F.lit(True))


def _bounds(number: int, field: T.StructField, row: Row) -> Column:
    low, high, nulls = (row[f"{part}{number}"] for part in ("low", "high", "null"))
    column = named(field.name, "t")
    if low is None:
        return column.isNull()
    inside = column.between(_literal(low, field), _literal(high, field))
    return inside | column.isNull() if nulls else inside


def _bound(value: Column, field: T.StructField) -> Column:
    """Return a value as text; a moment not in any zone, where some hours come twice."""
    instant = isinstance(field.dataType, T.TimestampType)
    return (F.unix_micros(value) if instant else value).cast("string")


def _literal(text: str, field: T.StructField) -> Column:
    if isinstance(field.dataType, T.TimestampType):
        return F.timestamp_micros(F.lit(int(text)))
    return F.lit(text).cast(field.dataType)


def _ranged(rows: DataFrame) -> Iterator[tuple[int, T.StructField]]:
    """Yield the columns whose range skips files."""
    for number, field in enumerate(_stored(rows)[:_RANGED]):
        if isinstance(field.dataType, _ORDERED):
            yield number, field


def _stored(rows: DataFrame) -> list[T.StructField]:
    return [field for field in rows.schema.fields if field.name not in _OWN]
