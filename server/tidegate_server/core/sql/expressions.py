"""The SQL expressions in a statement about a materialized table besides its query."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate_server.core.model.clauses import Watermark
from tidegate_server.core.sql.statements import (
    AlterAdd,
    AlterModify,
    AlterSetImmutable,
    ColumnChange,
    ColumnItem,
    ComputedColumn,
    CreateMaterializedTable,
)


def expressions(
    statement: CreateMaterializedTable | AlterSetImmutable | AlterAdd | AlterModify,
) -> Iterator[str]:
    """Yield the texts of computed columns, watermarks, constraints and immutable regions."""
    if isinstance(statement, AlterSetImmutable):
        yield statement.predicate
        return
    if isinstance(statement, CreateMaterializedTable):
        for item in statement.columns:
            yield from _of_column(item)
        if statement.watermark is not None:
            yield statement.watermark.expression
        yield from (expectation.condition for expectation in statement.expectations)
        yield from (assertion.condition for assertion in statement.assertions)
        if statement.immutable is not None:
            yield statement.immutable
        return
    for change in statement.changes:
        if isinstance(change, ColumnChange):
            yield from _of_column(change.column)
        elif isinstance(change, Watermark):
            yield change.expression


def _of_column(item: ColumnItem) -> Iterator[str]:
    if isinstance(item, ComputedColumn):
        yield item.expression
