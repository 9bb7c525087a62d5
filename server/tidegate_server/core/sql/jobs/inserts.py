"""INSERT INTO: its target, apart from its query."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token

from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql import clauses
from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.dialect import head as first_tokens
from tidegate_server.core.sql.jobs.statements import Insert

_LONGEST_LIST = 4096
"""Tokens that are enough for the longest list of columns; the rest, perhaps VALUES, may be long."""
_QUERIES = ("SELECT", "WITH", "FROM", "TABLE", "(")


def read_insert(text: str, head: Sequence[Token]) -> Insert | None:
    """Return the parts of an INSERT INTO with a query; None for any other statement.

    INSERT OVERWRITE, into partitions, by name, and of VALUES are other statements.

    :param head: the first tokens of the text.
    """
    if not Cursor(text, head).sees("INSERT", "INTO"):
        return None
    at = Cursor(text, head)
    found = _read(at)
    if found is None and at.ended:  # within the list of columns
        found = _read(Cursor(text, first_tokens(text, _LONGEST_LIST)))
    return found


def _read(at: Cursor) -> Insert | None:
    at.expect("INSERT", "INTO")
    at.accept("TABLE")
    try:
        name = clauses.table_name(at)
        columns = clauses.names(at) if at.sees("(") and not _is_query(at, 1) else ()
    except ServerError:
        return None  # Spark reports it
    if not _is_query(at, 0):
        return None
    query = at.text[at.offset :].rstrip().rstrip(";").rstrip()
    return Insert(name=name, columns=columns, head=at.text[: at.offset], query=query)


def _is_query(at: Cursor, ahead: int) -> bool:
    return at.spelling(ahead) in _QUERIES
