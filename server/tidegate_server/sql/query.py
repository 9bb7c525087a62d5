"""Pure questions about a statement's text that need no grammar of queries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot.errors import TokenError

from tidegate_server.errors import ServerError
from tidegate_server.sql import clauses
from tidegate_server.sql.cursor import Cursor
from tidegate_server.sql.dialect import head, readable, tokenize
from tidegate_server.sql.statements import Name

_HEAD = 24  # tokens; the longest head before a target's name has eight
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/|//[^\n]*", re.DOTALL)
_INSERT = re.compile(r"\bINSERT\b", re.IGNORECASE)
_ROWS = frozenset(
    {"SELECT", "WITH", "VALUES", "TABLE", "FROM", "MAP", "REDUCE", "(", "SHOW", "DESCRIBE", "DESC"}
    | {"EXPLAIN", "SET", "LIST", "CALL"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table a Spark statement changes or describes, and the words that do it."""

    action: str
    name: Name


def spark_text(query: str) -> str:
    """Return the query with ``//`` comments respelled as ``--``; nothing moves."""
    if "//" not in query:
        return query
    try:
        tokens = tokenize(query)
    except TokenError:
        return query
    text, at = [], 0
    for start, end in ((token.start, token.end + 1) for token in tokens):
        text += [_COMMENT.sub(_respelled, query[at:start]), query[start:end]]
        at = end
    return "".join([*text, _COMMENT.sub(_respelled, query[at:])])


def begins_like_rows(text: str) -> bool:
    """Say whether Spark answers this statement with rows, by its words alone."""
    words = head(text, 1)
    if not words or Cursor("", words).spelling() not in _ROWS:
        return False
    return not any(True for _ in _inserts(text, Cursor("", words).spelling()))


def targets(text: str) -> tuple[Target, ...]:
    """Return the tables that a Spark statement changes by words meant for plain tables."""
    at = Cursor(text, head(text, _HEAD))
    first = at.spelling()
    rule = _RULES.get(first)
    if rule is None:
        return tuple(_inserts(text, first))
    at.advance()
    found = _try(rule, at)
    return (found,) if found else ()


def dropped_schema(text: str) -> Name | None:
    """Return the schema that DROP SCHEMA names, one or two parts; None for other statements."""
    at = Cursor(text, head(text, _HEAD))
    if not at.accept("DROP") or not at.accept_any("SCHEMA", "DATABASE", "NAMESPACE"):
        return None
    at.accept("IF", "EXISTS")
    try:
        return clauses.table_name(at)
    except ServerError:
        return None  # Spark says what is wrong with it


def _respelled(comment: re.Match[str]) -> str:
    return comment[0].replace("//", "--", 1) if comment[0].startswith("//") else comment[0]


def _inserts(text: str, first: str) -> Iterator[Target]:
    """Yield the targets of WITH ... INSERT and FROM ... INSERT."""
    if first not in ("WITH", "FROM") or not _INSERT.search(text):
        return
    at = Cursor(text, readable(text))
    while not at.ended:
        if at.accept("INSERT") and (found := _try(_insert, at)):
            yield found
        elif not at.ended:
            at.advance()


Rule = Callable[[Cursor], Target | None]


def _try(rule: Rule, at: Cursor) -> Target | None:
    try:
        return rule(at)
    except ServerError:
        return None  # not that form; Spark parses the statement itself


def _insert(at: Cursor) -> Target | None:
    if at.accept_any("INTO", "OVERWRITE") is None:
        return None
    at.accept("TABLE")
    if at.sees("DIRECTORY") or at.sees("LOCAL", "DIRECTORY"):
        return None
    return Target(action="INSERT", name=clauses.table_name(at))


def _after(action: str, *words: str) -> Rule:
    """Return a rule for ``words`` followed by a name; words in brackets may be missing."""

    def rule(at: Cursor) -> Target | None:
        for word in words:
            if word.startswith("["):
                at.accept(*word.strip("[]").split())
            elif not at.accept(*word.split()):
                return None
        return Target(action=action, name=clauses.table_name(at))

    return rule


def _load(at: Cursor) -> Target | None:
    at.slice_until("INTO")
    return _after("LOAD DATA", "INTO TABLE")(at)


_RULES: Mapping[str, Rule] = {
    "INSERT": _insert,
    "UPDATE": _after("UPDATE"),
    "DELETE": _after("DELETE", "FROM"),
    "MERGE": _after("MERGE", "[WITH SCHEMA EVOLUTION]", "INTO"),
    "TRUNCATE": _after("TRUNCATE TABLE", "TABLE"),
    "DROP": _after("DROP TABLE", "TABLE", "[IF EXISTS]"),
    "ALTER": _after("ALTER TABLE", "TABLE"),
    "SHOW": _after("SHOW CREATE TABLE", "CREATE TABLE"),
    "ANALYZE": _after("ANALYZE TABLE", "TABLE"),
    "LOAD": _load,
    "CREATE": _after("CREATE OR REPLACE TABLE", "OR REPLACE", "TABLE"),
    "REPLACE": _after("REPLACE TABLE", "TABLE"),
    "RESTORE": _after("RESTORE TABLE", "[TABLE]"),
    "MSCK": _after("MSCK REPAIR TABLE", "REPAIR TABLE"),
}
