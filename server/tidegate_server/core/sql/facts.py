"""What the first words of a statement say about it, without parsing its query."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot.tokenizer_core import Token

from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.dialect import readable
from tidegate_server.core.sql.statements import ListingKind, StatementFacts

_TIME_ZONE = re.compile(r"\bSET\s+TIME\s+ZONE\b|\bspark\.sql\.session\.timeZone\b", re.IGNORECASE)
_INSERT = re.compile(r"\bINSERT\b", re.IGNORECASE)
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


def facts_of(text: str, head: Sequence[Token]) -> StatementFacts:
    """Return the facts of a statement.

    :param head: its first tokens: at least 16, or all if there are fewer.
    """
    first = Cursor("", head).spelling()
    runs_others = first in _AROUND_OTHERS
    return StatementFacts(
        returns_rows=first in _ROWS and not _inserts(text, first),
        may_read_rows=_may_read_rows(Cursor("", head)),
        runs_others=runs_others,
        lists=_listing(Cursor("", head)),
        sets_time_zone=(
            Cursor("", head).sees("SET", "TIME", "ZONE")
            or (runs_others and _TIME_ZONE.search(text) is not None)
        ),
        is_set=first == "SET",
        creates_temporary=_temporary_object(Cursor("", head)),
        drops=_dropped_object(Cursor("", head)),
    )


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


def _may_read_rows(at: Cursor) -> bool:
    if at.accept_any(*_WITHOUT_ROWS):
        return False
    if not at.accept("CREATE"):
        return True
    while at.accept_any("OR", "REPLACE", "GLOBAL", "TEMPORARY", "TEMP"):
        pass
    return at.accept_any(*_NAMED_ONLY) is None


def _listing(at: Cursor) -> ListingKind | None:
    if not at.accept("SHOW"):
        return None
    if at.sees("TABLES"):
        return ListingKind.TABLES
    if at.sees("TABLE", "EXTENDED"):
        return ListingKind.TABLE_EXTENDED
    return ListingKind.VIEWS if at.sees("VIEWS") else None


def _temporary_object(at: Cursor) -> str | None:
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


def _dropped_object(at: Cursor) -> str | None:
    if not at.accept("DROP"):
        return None
    at.accept_any("TEMPORARY", "TEMP")
    kind = at.accept_any("VIEW", "FUNCTION", "VARIABLE")
    at.accept("IF", "EXISTS")
    return _kind_and_name(kind, at)


def _kind_and_name(kind: str | None, at: Cursor) -> str | None:
    name = at.word()
    return None if kind is None or name is None else f"{kind.lower()} {name.lower()}"
