"""ASSERT constraints, evaluated on the content that a refresh is about to commit."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Row

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.clauses import Assertion, Violation
from tidegate_server.core.model.names import visible_name
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.core.sql.assertions import measures, spark_condition

# Makes a scalar subquery NULL, whatever it aggregates.
_NOTHING = " HAVING false"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertionResult:
    """The result of a table's assertions on its new version."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """1 for each failed assertion, 0 for each other one, by name."""
    held: str | None = None
    """The failed assertion with HOLD and its values; None if the version may be published."""


def check_assertions(
    content: DataFrame, served: DataFrame, order: RefreshOrder, *, first: bool
) -> AssertionResult:
    """Evaluate assertions on a new version; an assertion that yields NULL passes.

    :param content: all rows of the new version, as readers would see them.
    :param served: all rows that readers see now.
    :param first: whether nothing was published before, so that every ``previous(...)`` is NULL.
    :raises ServerError: MT_ASSERTION_FAILED if an assertion with FAIL fails.
    """
    if not order.assertions:
        return AssertionResult()
    with _view(content) as new, _view(served) as old:
        text = _sql(order.assertions, new, old + (_NOTHING if first else ""))
        row = content.sparkSession.sql(text).first()
    if row is None:
        raise AssertionError("an aggregate without groups has one row")
    broken = {n: each for n, each in enumerate(order.assertions) if row[f"v{n}"]}
    for number, each in broken.items():
        if each.violation is Violation.FAIL:
            raise error(
                Code.MT_ASSERTION_FAILED,
                table=str(visible_name(order.name)),
                assertion=each.name,
                condition=each.condition,
                found=_measured_values(row, number, each),
            )
    holding = (
        f"the assertion {each.name} ({each.condition}): {_measured_values(row, number, each)}"
        for number, each in broken.items()
        if each.violation is Violation.HOLD
    )
    counts = {each.name: int(n in broken) for n, each in enumerate(order.assertions)}
    return AssertionResult(counts=counts, held=next(holding, None))


def _sql(assertions: tuple[Assertion, ...], new: str, old: str) -> str:
    """Return a query for the failed assertions and the values of their measures."""
    columns = ["count(1)"]
    for number, each in enumerate(assertions):
        condition = spark_condition(each.condition, old)
        columns.append(f"coalesce(NOT ({condition}\n), false) AS v{number}")
        for place, measure in enumerate(measures(each.condition)):
            now, before = (spark_condition(m, old) for m in (measure, f"previous({measure}\n)"))
            columns.append(f"CAST(({now}\n) AS STRING) AS n{number}_{place}")
            columns.append(f"CAST({before} AS STRING) AS p{number}_{place}")
    return f"SELECT {', '.join(columns)} FROM {new}"


def _measured_values(row: Row, number: int, assertion: Assertion) -> str:
    """Return text with the values by which an assertion fails."""
    texts = []
    for place, measure in enumerate(measures(assertion.condition)):
        now, before = row[f"n{number}_{place}"], row[f"p{number}_{place}"]
        was = "" if before is None else f", previously {before}"
        texts.append(f"{measure} is {'NULL' if now is None else now}{was}")
    return "; ".join(texts)


@contextmanager
def _view(rows: DataFrame) -> Iterator[str]:
    """Register rows as a temporary view until the block ends."""
    name = f"__tidegate_{uuid.uuid4().hex}"
    rows.createTempView(name)
    try:
        yield name
    finally:
        rows.sparkSession.catalog.dropTempView(name)
