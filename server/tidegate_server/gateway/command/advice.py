"""Hints for statements of Flink's that Spark cannot read."""

from __future__ import annotations

import re

from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.dialects import SqlDialect

_CONNECTOR = re.compile(
    r"\s*CREATE\s+(TEMPORARY\s+)?TABLE\b.*?'connector'\s*=", re.IGNORECASE | re.DOTALL
)
_CONNECTORS = (
    "Tables with a connector are Flink's. What arrives in files or in Kafka comes in by "
    "CREATE MATERIALIZED TABLE name AS SELECT * FROM STREAM read_files('/place', format "
    "=> 'json') or STREAM read_kafka(...); other tables are made by CREATE TABLE ... USING."
)
_SYNTAX = "PARSE_SYNTAX_ERROR"
_UNREAD = frozenset(
    {_SYNTAX, "UNRESOLVED_ROUTINE", "UNRESOLVABLE_TABLE_VALUED_FUNCTION", "UNSUPPORTED_DATATYPE"}
)
_FLINKS = re.compile(
    r"\bDESCRIPTOR\s*\(|\b(TUMBLE|HOP|CUMULATE|SESSION)(_START|_END|_ROWTIME)?\s*\("
    r"|\bTIMESTAMP(_LTZ)?\s*\(\s*\d|\b(FLOOR|CEIL)\s*\([^()]*\sTO\s+[a-z]+\s*\)"
    r"|\b(PROCTIME|SPLIT_INDEX|TO_TIMESTAMP_LTZ|JSON_(VALUE|QUERY|EXISTS)|UNNEST)\s*\("
    r"|\bROW\s*[<(]|\b(ARRAY|MAP)\s*\[|\bBYTES\b|\bSYSTEM_TIME\b|\bLATERAL\s+TABLE\b",
    re.IGNORECASE,
)
"""What only Flink's SQL has, as far as a glance tells."""
_DIALECT = "If this is Flink's SQL, SET 'sql.dialect' = 'flink' has it translated."


def advise(problem: ServerError, text: str, dialect: SqlDialect) -> None:
    """Add a hint to Spark's error for a statement that looks like Flink's.

    :param text: the statement.
    """
    if problem.code == _SYNTAX and _CONNECTOR.match(text):
        problem.hint = _CONNECTORS
    elif (
        dialect is SqlDialect.SPARK
        and problem.code in _UNREAD
        and not problem.hint
        and _FLINKS.search(text)
    ):
        problem.hint = _DIALECT
