"""Checks of IMMUTABLE WHERE and BACKFILL FROM before any change."""

from __future__ import annotations

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import Analyze, CheckExpressions
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.types import Schema
from tidegate_server.core.sql.places import place_after
from tidegate_server.core.sql.statements import Name
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve
from tidegate_server.gateway.definition.columns import available, castable, shown_type
from tidegate_server.gateway.definition.derived import not_about_the_text
from tidegate_server.gateway.spark_session import ensure_session


def check_region(predicate: str, schema: Schema, text: str, context: Context) -> None:
    """Check that a condition over stored columns can select immutable rows.

    Error positions refer to ``text``, the whole statement.

    :raises ServerError: MT_PREDICATE.
    """
    request = CheckExpressions(
        session_id=ensure_session(context),
        columns=schema,
        region=predicate,
        user=context.session.user,
        features=context.features,
    )
    try:
        context.engine.call(request)
    except ServerError as problem:
        if not_about_the_text(problem):
            raise
        line, column = place_after(text, "IMMUTABLE", "WHERE", "(")
        if problem.code == Code.MT_PREDICATE.name:
            problem.line, problem.column = line, column
            raise
        reason = problem.message.rstrip(".")
        raise error(
            Code.MT_PREDICATE, line=line, column=column, predicate=predicate, reason=reason
        ) from problem


def backfill_source(written: Name, schema: Schema, text: str, context: Context) -> TableName:
    """Check the columns of the source table of a backfill and return its name.

    :raises ServerError: MT_BACKFILL naming a column that does not fit, MT_TEMPORARY_DEPENDENCY,
        or Spark's error for the name.
    """
    name = resolve.table_name(written, context)
    request = Analyze(
        session_id=ensure_session(context),
        operation_id=context.operation_id,
        sql=f"SELECT * FROM {name.quoted()}",
        user=context.session.user,
        features=context.features,
    )
    line, column = place_after(text, "BACKFILL", "FROM")
    try:
        answer = context.engine.call(request)
    except ServerError as problem:
        if not not_about_the_text(problem):
            problem.line, problem.column = line, column
        raise
    for temporary in answer.temporary_objects:
        kind, _, found = temporary.partition(" ")
        raise error(Code.MT_TEMPORARY_DEPENDENCY, line=line, column=column, kind=kind, name=found)
    reason = _misfit(schema, answer.schema)
    if reason is not None:
        raise error(Code.MT_BACKFILL, line=line, column=column, source=name, reason=reason)
    return name


def _misfit(wanted: Schema, found: Schema) -> str | None:
    """Describe the first column that does not fit."""
    for column in wanted:
        there = found.find(column.name)
        if there is None:
            return f"it has no column {column.name}; it has {available(found)}"
        if not castable(there.type, column.type):
            return (
                f"its column {there.name} is {shown_type(there.type, there.nullable)}, which is "
                f"not implicitly castable to {shown_type(column.type, column.nullable)}"
            )
    return None
