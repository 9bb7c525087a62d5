"""What the first words of a statement say about it, without parsing its query."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot.tokenizer_core import Token

from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.dialect import readable
from tidegate_server.core.sql.jobs.inserts import read_insert
from tidegate_server.core.sql.statements import (
    ListingKind,
    Name,
    ObjectAct,
    ObjectChange,
    StatementFacts,
)

_TIME_ZONE = re.compile(r"\bSET\s+TIME\s+ZONE\b|\bspark\.sql\.session\.timeZone\b", re.IGNORECASE)
_INSERT = re.compile(r"\bINSERT\b", re.IGNORECASE)
_VERB = re.compile(r"[A-Z]{1,20}")
"""Not a literal, which could contain anything."""
_CHANGES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})
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
_KINDS = {
    "TABLE": SecuredKind.TABLE,
    "VIEW": SecuredKind.VIEW,
    "FUNCTION": SecuredKind.FUNCTION,
    **dict.fromkeys(("SCHEMA", "DATABASE", "NAMESPACE"), SecuredKind.SCHEMA),
}


def facts_of(text: str, head: Sequence[Token]) -> StatementFacts:
    """Return the facts of a statement.

    :param head: its first tokens: at least 16, or all if there are fewer.
    """
    first = Cursor("", head).spelling()
    runs_others = first in _AROUND_OTHERS
    inserts = _inserts(text, first)
    return StatementFacts(
        returns_rows=first in _ROWS and not inserts,
        changes_rows=first in _CHANGES or inserts,
        may_read_rows=_may_read_rows(Cursor("", head)),
        verb=first if _VERB.fullmatch(first) else "",
        runs_others=runs_others,
        lists=_listing(Cursor("", head)),
        sets_time_zone=(
            Cursor("", head).sees("SET", "TIME", "ZONE")
            or (runs_others and _TIME_ZONE.search(text) is not None)
        ),
        is_set=first == "SET",
        creates_temporary=_temporary_object(Cursor("", head)),
        drops=_dropped_object(Cursor("", head)),
        change=_object_change(Cursor("", head)),
        insert=read_insert(text, head),
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
    if at.accept_any("SCHEMAS", "DATABASES", "NAMESPACES"):
        return ListingKind.SCHEMAS
    if at.sees("VIEWS"):
        return ListingKind.VIEWS
    at.accept_any("USER", "SYSTEM", "ALL")
    return ListingKind.FUNCTIONS if at.sees("FUNCTIONS") else None


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


def _object_change(at: Cursor) -> ObjectChange | None:
    if at.accept("CREATE"):
        return _created_object(at, replaces=at.accept("OR", "REPLACE"))
    if at.accept("REPLACE"):
        return _created_object(at, replaces=True)
    if at.accept("DROP"):
        word = at.accept_any(*_KINDS)
        if word is None:
            return None
        at.accept("IF", "EXISTS")
        return ObjectChange(act=ObjectAct.DROP, kind=_KINDS[word], name=_full_name(at))
    if at.accept("ALTER"):
        return _renamed_object(at)
    return None


def _created_object(at: Cursor, *, replaces: bool) -> ObjectChange | None:
    """Return the creation of a function, or the replacement of a table or view."""
    word = at.accept_any(*(("FUNCTION", "TABLE", "VIEW") if replaces else ("FUNCTION",)))
    if word is None:
        return None
    may_exist = at.accept("IF", "NOT", "EXISTS") or replaces
    return ObjectChange(
        act=ObjectAct.CREATE, kind=_KINDS[word], name=_full_name(at), may_exist=may_exist
    )


def _renamed_object(at: Cursor) -> ObjectChange | None:
    word = at.accept_any("TABLE", "VIEW")
    if word is None:
        return None
    name = _full_name(at)
    if not name:
        return ObjectChange(act=ObjectAct.RENAME, kind=_KINDS[word], name=())
    if not at.accept("RENAME", "TO"):
        return None
    return ObjectChange(act=ObjectAct.RENAME, kind=_KINDS[word], name=name, new_name=_full_name(at))


def _full_name(at: Cursor) -> Name:
    """Return the parts of a name; none if an expression names the object."""
    if at.sees("IDENTIFIER", "("):
        return ()
    parts: list[str] = []
    while at.sees_name():
        parts.append(at.advance().text)
        if not at.accept("."):
            break
    return tuple(parts)
