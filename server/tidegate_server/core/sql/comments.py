"""Respells ``//`` comments, which Spark does not know, as ``--``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token

from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.dialect import tokenize

_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/|//[^\n]*", re.DOTALL)
_BEFORE_PATHS = frozenset({"ADD", "LIST", "REFRESH", "RESET", "SET"})


def spark_text(query: str) -> str:
    """Return a query as Spark reads it; offsets stay the same."""
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


def spark_statement(text: str, head: Sequence[Token]) -> str:
    """Return a statement as Spark reads it.

    After words that a path may follow without quotes, as in ``ADD JAR hdfs://host/x.jar``, only
    the comments before these words are respelled.

    :param head: the statement's first tokens.
    """
    if Cursor("", head).spelling() not in _BEFORE_PATHS:
        return spark_text(text)
    begin = head[0].start
    return spark_text(text[:begin]) + text[begin:]


def _respell(comment: re.Match[str]) -> str:
    return comment[0].replace("//", "--", 1) if comment[0].startswith("//") else comment[0]
