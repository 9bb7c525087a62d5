"""CREATE TABLE ... LIKE, which becomes CREATE TABLE ... WITH (...)."""

from __future__ import annotations

from tidegate_server.core.connectors.columns import ConnectorTable
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import FindTableDefinition
from tidegate_server.core.sql.external.like import merged_sql, plain_definition, read_definition
from tidegate_server.core.sql.external.statements import CreateTableLike
from tidegate_server.core.sql.parse import parse, parse_as_sparks
from tidegate_server.core.sql.statements import SparkStatement
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.spark_session import ensure_session

_MISSING = "TABLE_OR_VIEW_NOT_FOUND"
_PARTITIONED = "PARTITIONED BY"
_EXCLUDE = "Write EXCLUDING PARTITIONS in brackets after the name of the other table."
_EARLIER = "It was created by an earlier version, or by CREATE VIEW: create it again."


def complete(statement: CreateTableLike, text: str, context: Context) -> SparkStatement:
    """Return the statement for Spark, with what the new table takes from the other one.

    :param text: the statement as it was written, which is also Spark's if it has nothing but two
        names, and the other table is none of a connector.
    :raises ServerError: INVALID_LIKE; errors of the definition, at the name of the other table.
    """
    request = FindTableDefinition(session_id=ensure_session(context), name=statement.other)
    try:
        found = context.engine.call(request)
    except ServerError as problem:
        if statement.bare and problem.code == _MISSING:
            return parse_as_sparks(text)  # Spark reports it
        problem.line, problem.column = statement.line, statement.column
        raise
    if found.connector:
        other = _recorded(found.definition, statement)
    elif statement.bare:
        return parse_as_sparks(text)
    else:
        other = plain_definition(found.columns, found.primary_key, found.partition_keys)
    try:
        made = parse(merged_sql(statement, other))
    except ServerError as problem:
        problem.line, problem.column = statement.line, statement.column
        if _PARTITIONED in problem.message and not statement.own.partition_keys:
            problem.hint = _EXCLUDE
        raise
    if not isinstance(made, SparkStatement):
        raise AssertionError("a statement with options was not parsed as one for Spark")
    return made


def _recorded(definition: str, statement: CreateTableLike) -> ConnectorTable:
    """Return the definition that the view of the other table records."""
    try:
        if definition:
            return read_definition(definition)
        reason = "its definition is not recorded"
    except ServerError as problem:
        reason = f"its definition cannot be read: {problem.message.rstrip('.')}"
    raise error(
        Code.INVALID_LIKE,
        other=".".join(statement.other),
        reason=reason,
        hint=_EARLIER,
        line=statement.line,
        column=statement.column,
    )
