"""Statements in the binlog that change rows without saying which; pure."""

from __future__ import annotations

import re

_ROWS = re.compile(r"(?:INSERT|UPDATE|DELETE|REPLACE|LOAD|WITH)\b", re.IGNORECASE)
_WHOLE = re.compile(
    r"(?:TRUNCATE|RENAME\s+TABLE|DROP\s+TABLE|CREATE\s+OR\s+REPLACE)\b", re.IGNORECASE
)
_PARTS = re.compile(
    r"ALTER\b.*\b(?:(?:DROP|TRUNCATE|EXCHANGE|DISCARD|IMPORT)\s+(?:PARTITION|TABLESPACE)"
    r"|RENAME\s+(?:TO|AS)\b)",
    re.IGNORECASE | re.DOTALL,
)
_COMMENT = re.compile(r"/\*(?!!).*?\*/|--[^\n]*|#[^\n]*", re.DOTALL)
_SCHEMA = re.compile(r"DROP\s+(?:DATABASE|SCHEMA)\b", re.IGNORECASE)


def unfollowed(statement: str, current: str, database: str, table: str) -> str | None:
    """Return why a table cannot be followed past a statement, as a clause; None if it can.

    :param current: the database that names without one are in.
    """
    text = _COMMENT.sub(" ", statement).strip()
    if _SCHEMA.match(text):
        name = re.escape(database)
        dropped = re.search(rf"(?<![\w$]){name}(?![\w$])", text, re.IGNORECASE)
        return f"the database {database} was dropped" if dropped else None
    if not _mentions(text, current, database, table):
        return None
    found = _WHOLE.match(text) or _PARTS.match(text)
    if found is not None:
        words = found[0].split()
        named = " ".join(words if words[0].upper() != "ALTER" else ["ALTER TABLE"]).upper()
        return f"{named} has removed or replaced rows of {database}.{table} without logging them"
    if _ROWS.match(text):
        return (
            f"a statement that changes {database}.{table} was logged as a text: "
            "set binlog_format = ROW for all sessions"
        )
    return None


def _mentions(text: str, current: str, database: str, table: str) -> bool:
    pattern = re.compile(
        rf"(?:(?P<database>`[^`]+`|[\w$]+)\s*\.\s*)?(?<![\w$])`?{re.escape(table)}`?(?![\w$])",
        re.IGNORECASE,
    )
    for found in pattern.finditer(text):
        named = (found["database"] or current).strip("`")
        if named.lower() == database.lower():
            return True
    return False
