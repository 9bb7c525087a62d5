"""Classifies a statement's text without parsing its query."""

from __future__ import annotations

import re

from sqlglot.errors import TokenError

from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.dialect import head, readable, tokenize

_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/|//[^\n]*", re.DOTALL)
_TIME_ZONE = re.compile(r"\bSET\s+TIME\s+ZONE\b|\bspark\.sql\.session\.timeZone\b", re.IGNORECASE)
_INSERT = re.compile(r"\bINSERT\b", re.IGNORECASE)
_BEFORE_PATHS = frozenset({"ADD", "LIST", "REFRESH", "RESET", "SET"})
_AROUND_OTHERS = frozenset({"BEGIN", "CALL", "EXECUTE"})
_ROWS = frozenset(
    {"SELECT", "WITH", "VALUES", "TABLE", "FROM", "MAP", "REDUCE", "(", "SHOW", "DESCRIBE", "DESC"}
    | {"EXPLAIN", "SET", "LIST", "OPTIMIZE", "REORG", "RESTORE", "VACUUM"}
    | _AROUND_OTHERS
)
_WITHOUT_ROWS = (
    *("ALTER", "ADD", "ANALYZE", "CLEAR", "COMMENT", "DESC", "DESCRIBE", "DROP", "EXPLAIN", "LIST"),
    *("MSCK", "REFRESH", "REPAIR", "RESET", "SHOW", "TRUNCATE", "UNCACHE", "UNSET", "USE"),
)
_NAMED_ONLY = ("VIEW", "FUNCTION", "SCHEMA", "DATABASE", "NAMESPACE")
"""Objects that CREATE makes from a text without running it."""


def spark_text(query: str) -> str:
    """Return a query with ``//`` comments respelled as ``--``; offsets stay the same."""
    if "//" not in query:
        return query
    try:
        tokens = tokenize(query)
    except TokenError:
        return query
    text, at = [], 0
    for start, end in ((token.start, token.end + 1) for token in tokens):
        text += [_COMMENT.sub(_respell, query[at:start]), query[start:end]]
        at = end
    return "".join([*text, _COMMENT.sub(_respell, query[at:])])


def spark_statement(text: str) -> str:
    """Return a statement as Spark reads it, with ``//`` comments respelled as ``--``.

    After words that a path may follow without quotes, as in ``ADD JAR hdfs://host/x.jar``, only
    the comments before these words are respelled.
    """
    words = head(text, 1) if "//" in text else []
    if not words or Cursor("", words).spelling() not in _BEFORE_PATHS:
        return spark_text(text)
    begin = words[0].start
    return spark_text(text[:begin]) + text[begin:]


def second_statement(text: str) -> int | None:
    """Return where a second statement begins in a text for Spark; None if there is one alone.

    Spark's SQL scripts (BEGIN ... END) are one statement.
    """
    if ";" not in text.rstrip().rstrip(";"):
        return None
    try:
        tokens = tokenize(text)
    except TokenError:
        return None  # Spark reports the unfinished token
    at = Cursor(text, tokens)
    ended = False
    while not at.ended:
        if at.sees("BEGIN"):
            return None
        semicolon = at.accept(";")
        if ended and not semicolon:
            return at.offset
        ended = semicolon or ended
        if not semicolon:
            at.advance()
    return None


def begins_like_rows(text: str) -> bool:
    """Return whether Spark answers this statement with rows, by its words alone."""
    words = head(text, 1)
    if not words or Cursor("", words).spelling() not in _ROWS:
        return False
    return not _inserts(text, Cursor("", words).spelling())


def runs_others(text: str) -> bool:
    """Return whether a statement runs others: BEGIN ... END, EXECUTE IMMEDIATE, CALL."""
    words = head(text, 1)
    return bool(words) and Cursor("", words).spelling() in _AROUND_OTHERS


def lists_tables(text: str) -> bool:
    """Return whether this is SHOW TABLES or SHOW TABLE EXTENDED, by its first words alone."""
    at = Cursor("", head(text, 2))
    return at.accept("SHOW") and at.accept_any("TABLES", "TABLE") is not None


def shows_tables_extended(text: str) -> bool:
    """Return whether this is SHOW TABLE EXTENDED, by its first words alone."""
    at = Cursor("", head(text, 3))
    return at.accept("SHOW", "TABLE", "EXTENDED")


def lists_names(text: str) -> bool:
    """Return whether this is SHOW TABLES or SHOW VIEWS, by its first words alone."""
    at = Cursor("", head(text, 2))
    return at.accept("SHOW") and at.accept_any("TABLES", "VIEWS") is not None


def may_read_rows(text: str) -> bool:
    """Return whether running a statement may read rows of tables, by its first words alone."""
    at = Cursor("", head(text, 8))
    if at.accept_any(*_WITHOUT_ROWS):
        return False
    if not at.accept("CREATE"):
        return True
    while at.accept_any("OR", "REPLACE", "GLOBAL", "TEMPORARY", "TEMP"):
        pass
    return at.accept_any(*_NAMED_ONLY) is None


def sets_time_zone(text: str) -> bool:
    """Return whether this is SET TIME ZONE, or runs other statements, which may include it."""
    at = Cursor("", head(text, 3))
    if at.accept("SET"):
        return at.accept("TIME", "ZONE")
    return runs_others(text) and _TIME_ZONE.search(text) is not None


def temporary_object(text: str) -> str | None:
    """Return the temporary object that a statement makes, such as ``view v``; None for any
    other statement."""
    at = Cursor(text, head(text, 16))
    if at.accept("DECLARE"):
        at.accept("OR", "REPLACE")
        at.accept_any("VARIABLE", "VAR")
        return _kind_and_name("VARIABLE", at)
    if not at.accept("CREATE"):
        return None
    at.accept("OR", "REPLACE")
    at.accept("GLOBAL")
    if at.accept_any("TEMPORARY", "TEMP") is None:
        return None
    kind = at.accept_any("VIEW", "FUNCTION")
    at.accept("IF", "NOT", "EXISTS")
    return _kind_and_name(kind, at)


def dropped_object(text: str) -> str | None:
    """Return the possibly temporary object that a statement drops, in the same words."""
    at = Cursor(text, head(text, 8))
    if not at.accept("DROP"):
        return None
    at.accept_any("TEMPORARY", "TEMP")
    kind = at.accept_any("VIEW", "FUNCTION", "VARIABLE")
    at.accept("IF", "EXISTS")
    return _kind_and_name(kind, at)


def _kind_and_name(kind: str | None, at: Cursor) -> str | None:
    name = at.word()
    return None if kind is None or name is None else f"{kind.lower()} {name.lower()}"


def _respell(comment: re.Match[str]) -> str:
    return comment[0].replace("//", "--", 1) if comment[0].startswith("//") else comment[0]


def _inserts(text: str, first: str) -> bool:
    """Return whether this is WITH ... INSERT or FROM ... INSERT."""
    if first not in ("WITH", "FROM") or not _INSERT.search(text):
        return False
    at = Cursor(text, readable(text))
    while not at.ended:
        if at.accept("INSERT"):
            if at.accept_any("INTO", "OVERWRITE"):
                return True
        else:
            at.advance()
    return False
