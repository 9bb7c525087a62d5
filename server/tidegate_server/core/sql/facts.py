"""What the first words of a statement say about it, without parsing its query."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from sqlglot.tokenizer_core import Token

from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.dialect import readable

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


class ListingKind(Enum):
    """The SHOW statements whose results Tidegate adapts."""

    TABLES = auto()
    TABLE_EXTENDED = auto()
    VIEWS = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementFacts:
    """What is known of a statement for Spark from its first words."""

    returns_rows: bool
    """Whether Spark answers it with rows."""
    may_read_rows: bool
    """Whether running it may read rows of tables."""
    runs_others: bool = False
    """Whether it runs other statements: BEGIN ... END, EXECUTE IMMEDIATE, CALL."""
    lists: ListingKind | None = None
    sets_time_zone: bool = False
    """Whether it is SET TIME ZONE, or runs other statements that may include it."""
    creates_temporary: str | None = None
    """The temporary object that it creates, such as ``view v``."""
    drops: str | None = None
    """The possibly temporary object that it drops, in the same words."""


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
        creates_temporary=_created_temporary(Cursor("", head)),
        drops=_dropped(Cursor("", head)),
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


def _created_temporary(at: Cursor) -> str | None:
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


def _dropped(at: Cursor) -> str | None:
    if not at.accept("DROP"):
        return None
    at.accept_any("TEMPORARY", "TEMP")
    kind = at.accept_any("VIEW", "FUNCTION", "VARIABLE")
    at.accept("IF", "EXISTS")
    return _kind_and_name(kind, at)


def _kind_and_name(kind: str | None, at: Cursor) -> str | None:
    name = at.word()
    return None if kind is None or name is None else f"{kind.lower()} {name.lower()}"
