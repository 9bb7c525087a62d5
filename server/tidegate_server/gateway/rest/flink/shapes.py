"""The form in which Flink's clients expect the results of statements; pure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tidegate_server.core.jobs import JOB_COLUMN
from tidegate_server.core.model.types import Column, Schema, text_schema

SUCCESS: Final = "SUCCESS"
WITH_CONTENT: Final = "SUCCESS_WITH_CONTENT"
RESULT: Final = text_schema("result")
"""The column of a result that has no rows of its own."""

_OK: Final = "OK"
_WIDTH: Final = 100
"""Characters of a message in one row: clients draw a column as wide as its longest value."""
QUERIES: Final = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "FROM", "MAP", "REDUCE", ""})
"""The first words of statements that read rows; that of a query in brackets is empty."""
_SILENT: Final = frozenset({"SET OPTION"})
"""Statements whose rows only repeat what the user wrote."""
_LISTINGS: Final[Mapping[tuple[str, ...], tuple[int, str]]] = {
    ("namespace", "tableName", "isTemporary"): (1, "table name"),
    ("namespace", "viewName", "isTemporary"): (1, "view name"),
    ("namespace",): (0, "database name"),
    ("catalog",): (0, "catalog name"),
    ("catalog", "namespace"): (1, "current database name"),
    ("function",): (0, "function name"),
    ("createtab_stmt",): (0, "result"),
    ("plan",): (0, "result"),
    ("Results",): (0, "jars"),
}
"""The columns of Spark's lists: the one that Flink's list has, and its name there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a client gets of a result."""

    schema: Schema
    is_query: bool
    kind: str
    column: int | None = None
    """The only column of the result that is sent; None for all."""
    rows: pa.RecordBatch | None = None
    """The rows to send instead of the result's."""
    job_id: str | None = None
    """The id of the job that the statement became, as Flink writes it."""

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of a batch that are sent."""
        if self.column is None:
            return batch
        return pa.RecordBatch.from_arrays(
            [batch.column(self.column)], names=list(self.schema.names())
        )


def shape_of(
    schema: Schema,
    statement_kind: str,
    *,
    has_rows: bool,
    messages: Sequence[str],
    job_ids: Sequence[str] = (),
) -> Shape:
    """Return the form of a result.

    :param statement_kind: the kind of the statement in its own words, such as ``SELECT``.
    :param has_rows: whether the statement returns rows; otherwise the result is ``OK``.
    :param messages: the warnings and notes of the statement. They follow ``OK``, since Flink's
        clients have no other place for them; a result with rows leaves them to the log.
    :param job_ids: the ids of the jobs that the statement became.
    """
    if job_ids:
        # Flink's ids have no hyphens, and its clients reject others.
        ids = [each.replace("-", "") for each in job_ids]
        rows = pa.RecordBatch.from_arrays([pa.array(ids, pa.string())], names=[JOB_COLUMN])
        return Shape(
            schema=text_schema(JOB_COLUMN),
            is_query=False,
            kind=WITH_CONTENT,
            rows=rows,
            job_id=ids[0],
        )
    if not has_rows or statement_kind in _SILENT:
        lines = (line for each in messages for line in textwrap.wrap(each, _WIDTH))
        texts = pa.array([_OK, *lines], pa.string())
        return Shape(
            schema=RESULT,
            is_query=False,
            kind=WITH_CONTENT if messages else SUCCESS,
            rows=pa.RecordBatch.from_arrays([texts], names=["result"]),
        )
    is_query = statement_kind in QUERIES
    listing = None if is_query else _LISTINGS.get(schema.names())
    if listing is None:
        return Shape(schema=schema, is_query=is_query, kind=WITH_CONTENT)
    column, name = listing
    only = Schema((Column(name=name, type="string", nullable=False),))
    return Shape(schema=only, is_query=False, kind=WITH_CONTENT, column=column)
