"""Definition queries over tables of changes, whose events are inserts, updates and deletes."""

from __future__ import annotations

from tidegate_server.core.connectors.changes import DELETED, SEQUENCE, show_events
from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.dialect import readable

_HIDDEN = f"{DELETED}, {SEQUENCE}"


def events_of(text: str) -> str | None:
    """Return the query over all events instead of rows, with the columns DELETED and SEQUENCE.

    A row that the condition of a query excludes is deleted: the row of its key may have been in the
    result before.

    :return: None if a query is more than SELECT ... FROM a table or a query, with or without WHERE.
    """
    return _with_events(show_events(text))


def _with_events(text: str) -> str | None:
    at = Cursor(text, readable(text))
    if not at.accept("SELECT"):
        return None
    stars: list[int] = []
    start = condition = end = None
    depth, before = 0, "SELECT"
    while not at.ended:
        word = at.spelling()
        if depth == 0:
            if word == "FROM" and start is None:
                start = at.offset
            elif word == "WHERE" and start is not None:
                condition = at.offset
            elif word == ";":
                end = at.offset
            elif start is None and word == "*" and before in ("SELECT", ",", "."):
                if at.spelling(1) == "EXCEPT":
                    return None
                stars.append(at.offset + 1)
        depth += {"(": 1, ")": -1}.get(word, 0)
        before = word
        at.advance()
    if start is None:
        return None
    relation = _inner_events(text[start:condition] if condition else text[start:end])
    if relation is None:
        return None
    gone = DELETED
    if condition is not None:
        where = text[condition + len("WHERE") : end]
        gone = f"{DELETED} OR NOT coalesce(({where}\n), false) AS {DELETED}"
    columns = text[:start].rstrip()
    for star in reversed(stars):
        columns = f"{columns[:star]} EXCEPT ({_HIDDEN}){columns[star:]}"
    return f"{columns}\n, {gone}, {SEQUENCE} {relation}"


def _inner_events(relation: str) -> str | None:
    """Return FROM and its relation, in which a query also has the columns of the events."""
    at = Cursor(relation, readable(relation))
    at.expect("FROM")
    if not at.sees("("):
        return None
    start, depth = at.offset + 1, 0
    while not at.ended:
        depth += {"(": 1, ")": -1}.get(at.spelling(), 0)
        if depth == 0:
            break
        at.advance()
    end = at.offset
    inner = relation[start:end]
    found = inner if _is_table(inner) else _with_events(inner)
    return None if found is None else f"{relation[:start]}{found}{relation[end:]}"


def _is_table(text: str) -> bool:
    """Return whether a query is that of the table itself, which has the columns already."""
    at, depth = Cursor(text, readable(text)), 0
    while not at.ended and not (depth == 0 and at.sees("FROM")):
        if depth == 0 and at.spelling().upper() == DELETED.upper():
            return True
        depth += {"(": 1, ")": -1}.get(at.spelling(), 0)
        at.advance()
    return False
