"""Hints for what Spark refuses and does not say what to write instead."""

from __future__ import annotations

import re

from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.dialects import SqlDialect

_UNREAD = frozenset(
    {"PARSE_SYNTAX_ERROR", "UNRESOLVABLE_TABLE_VALUED_FUNCTION", "UNRESOLVED_ROUTINE"}
    | {"UNSUPPORTED_DATATYPE"}
)
_FLINKS = re.compile(
    r"\bDESCRIPTOR\s*\(|\b(TUMBLE|HOP|CUMULATE|SESSION)(_START|_END|_ROWTIME)?\s*\("
    r"|\bTIMESTAMP(_LTZ)?\s*\(\s*\d|\b(FLOOR|CEIL)\s*\([^()]*\sTO\s+[a-z]+\s*\)"
    r"|\b(PROCTIME|SPLIT_INDEX|TO_TIMESTAMP_LTZ|JSON_(VALUE|QUERY|EXISTS)|UNNEST)\s*\("
    r"|\bROW\s*[<(]|\b(ARRAY|MAP)\s*\[|\bBYTES\b|\bSYSTEM_TIME\b|\bLATERAL\s+TABLE\b",
    re.IGNORECASE,
)
"""What only Flink's SQL has, as far as a glance tells."""
_TOPIC = "UNSUPPORTED_INSERT", "KafkaRelation("
_WRITE = "To write records, create a table WITH ('connector' = 'kafka', ...) and insert into that."
_DIALECT = "If this is Flink's SQL, SET 'sql.dialect' = 'flink' has it translated."


def advise(problem: ServerError, text: str, dialect: SqlDialect) -> None:
    """Add a hint to Spark's error for a statement that looks like Flink's, and to some others.

    :param text: the statement.
    """
    if problem.code.startswith(_TOPIC[0]) and _TOPIC[1] in problem.message:
        problem.hint = _WRITE
    could_be = dialect is SqlDialect.SPARK and problem.code in _UNREAD and not problem.hint
    if could_be and _FLINKS.search(text):
        problem.hint = _DIALECT
