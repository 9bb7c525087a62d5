"""The errors of the translation; each points into the user's own text."""

from __future__ import annotations

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.sql.cursor import position


def refuse(text: str, offset: int, what: str, hint: str) -> ServerError:
    """Return the error for Flink SQL that cannot be given the same meaning.

    :param hint: what to write instead.
    """
    line, column = position(text, offset)
    return error(Code.FLINK_SQL_UNSUPPORTED, line=line, column=column, what=what, hint=hint)


def misread(text: str, offset: int, found: str, expected: str, hint: str = "") -> ServerError:
    """Return a syntax error."""
    line, column = position(text, offset)
    return error(
        Code.PARSE_SYNTAX, line=line, column=column, found=found, expected=expected, hint=hint
    )
