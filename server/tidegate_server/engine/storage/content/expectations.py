"""Enforces EXPECT constraints on the rows a refresh writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.clauses import Expectation, Violation
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.exact import column_named

_MARK = "tidegate expectation"
_RAISED = re.compile(rf"{_MARK} (\d+): (.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcedRows:
    """Rows that count or reject violations while they are written."""

    rows: DataFrame
    counts: Callable[[], Mapping[str, int]]
    """Returns the number of rows that violated each expectation, once they are written."""


def enforce(rows: DataFrame, order: RefreshOrder) -> EnforcedRows:
    """Count the rows that violate expectations, leave out those of DROP ROW, raise on FAIL.

    Rows of QUARANTINE are written, and separated by views. FAIL checks every row, including those
    that DROP ROW leaves out.
    """
    if not order.expectations:
        return EnforcedRows(rows=rows, counts=dict)
    counted = [e for e in order.expectations if e.violation is not Violation.FAIL]
    checked = _raise_on_failing(rows, order)
    if not counted:
        names = [e.name for e in order.expectations]
        return EnforcedRows(rows=checked, counts=lambda: dict.fromkeys(names, 0))
    observation = Observation()
    counts = (F.count_if(violates(e)).alias(f"c{i}") for i, e in enumerate(counted))
    observed = exclude_dropped(checked.observe(observation, *counts), order)

    def observed_counts() -> Mapping[str, int]:
        values: Mapping[str, Any] = observation.get
        known = {e.name: int(values[f"c{i}"]) for i, e in enumerate(counted)}
        return {e.name: known.get(e.name, 0) for e in order.expectations}

    return EnforcedRows(rows=observed, counts=observed_counts)


@contextmanager
def count_broken(
    rows: DataFrame, order: RefreshOrder
) -> Iterator[tuple[DataFrame, Mapping[str, int]]]:
    """Yield the rows to write and the number of violations of each expectation.

    The rows are persisted until the block ends, since rows of a stream can be read only once.

    :raises ServerError: MT_EXPECTATION_FAILED.
    """
    if not order.expectations:
        yield rows, {}
        return
    kept_rows = rows.persist()
    try:
        reject_violations(kept_rows, order)
        counts = (F.count_if(violates(e)).alias(e.name) for e in order.expectations)
        found = kept_rows.agg(*counts).collect()[0]
        numbers = {e.name: int(found[i]) for i, e in enumerate(order.expectations)}
        yield exclude_dropped(kept_rows, order), numbers
    finally:
        kept_rows.unpersist()


def exclude_dropped(rows: DataFrame, order: RefreshOrder) -> DataFrame:
    """Leave out the rows that violate an expectation with DROP ROW."""
    for each in order.expectations:
        if drops(each):
            rows = rows.where(~violates(each))
    return rows


def drops(expectation: Expectation) -> bool:
    """Say whether rows that violate an expectation are left out."""
    return expectation.violation is Violation.DROP_ROW


def violates(expectation: Expectation) -> Column:
    """Return the condition that a row violates an expectation."""
    return F.expr(expectation.broken)


def exclude_quarantined(rows: DataFrame, order: RefreshOrder) -> DataFrame:
    """Leave out the rows that the storage has but the table's view hides: those of QUARANTINE."""
    for each in order.expectations:
        if each.violation is Violation.QUARANTINE:
            rows = rows.where(~violates(each))
    return rows


def reject_violations(rows: DataFrame, order: RefreshOrder) -> None:
    """Raise if a row violates an expectation with FAIL, before anything is written.

    :raises ServerError: MT_EXPECTATION_FAILED.
    """
    for each in order.expectations:
        if each.violation is Violation.FAIL:
            found = rows.where(violates(each)).select(row_json(rows).alias("row")).first()
            if found is not None:
                raise expectation_error(order, each, found["row"])


def expectation_error(order: RefreshOrder, expectation: Expectation, row: str) -> ServerError:
    """Return the error for a row that violates an expectation with FAIL."""
    return error(
        Code.MT_EXPECTATION_FAILED,
        table=str(order.name),
        expectation=expectation.name,
        condition=expectation.condition,
        row=row,
    )


def find_expectation_error(failed: Exception, order: RefreshOrder) -> ServerError | None:
    """Return the error if a Spark job failed because of an expectation with FAIL."""
    for message in messages(failed):
        found = _RAISED.search(message)
        if found is not None and int(found[1]) < len(order.expectations):
            return expectation_error(order, order.expectations[int(found[1])], found[2])
    return None


def row_json(rows: DataFrame) -> Column:
    """Return a row as truncated JSON."""
    return F.substring(F.to_json(F.struct(*(column_named(c) for c in rows.columns))), 1, _SHOWN)


def _raise_on_failing(rows: DataFrame, order: RefreshOrder) -> DataFrame:
    """Raise while a column is computed: Spark could push a filter that raises below a join, where
    it would see rows that the query does not produce."""
    first = rows.schema.fields[0]
    value = column_named(first.name)
    for number, each in enumerate(order.expectations):
        if each.violation is Violation.FAIL:
            message = F.concat(F.lit(f"{_MARK} {number}: "), row_json(rows))
            raised = F.raise_error(message).cast(first.dataType)
            value = F.when(violates(each), raised).otherwise(value)
    return rows.withColumn(first.name, value)


def messages(failed: Exception) -> Iterator[str]:
    """Yield the messages of an exception and of the Java exceptions that caused it."""
    yield str(failed)
    cause = getattr(failed, "java_exception", None) or getattr(failed, "_origin", None)
    while cause is not None:
        yield str(cause.getMessage())
        cause = cause.getCause()
