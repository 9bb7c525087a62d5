"""Parses text to a statement: the only entry point."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.sql import privileges
from tidegate_server.core.sql.comments import spark_statement
from tidegate_server.core.sql.cursor import ONE_BY_ONE, Cursor, position, shorten
from tidegate_server.core.sql.dialect import head, tokenize
from tidegate_server.core.sql.external.connector_tables import (
    connector_view,
    has_options,
    names_connector,
)
from tidegate_server.core.sql.external.like import names_other, table_like
from tidegate_server.core.sql.external.plain_tables import plain_table
from tidegate_server.core.sql.facts import facts_of
from tidegate_server.core.sql.grammar import (
    LONGEST,
    LOOSE_RULES,
    RULES,
    SHARED_RULES,
    WORD_RULES,
    Rule,
    show_create_table,
)
from tidegate_server.core.sql.statements import (
    ResetOption,
    SetOption,
    ShowOption,
    SparkStatement,
    Statement,
)

# The forms that Spark's own parser reads as SET key = value, RESET key; other forms of SET are
# other statements (SET TIME ZONE, SET CATALOG, SET VARIABLE, ...).
# Only single characters are possessive: CPython before 3.11.5 captures wrong groups otherwise.
_NAME = r"`(?P<quoted>[^`]+(?:``[^`]*)*|(?:``[^`]*)+)`"
_KEY = (
    r"(?:hive(?:conf|var):|(?!hive(?:conf|var):))"
    rf"(?:{_NAME}|(?P<key>(?=[\w:-]*\.|\w++\s*+=)[A-Za-z_][\w.:-]*+))\s*+"
)
_REST = r"(?:[;\s]|--[^\n]*+|//[^\n]*+|/\*[^*]*(?:\*(?!/)[^*]*)*\*/)*"
_BARE_SET = re.compile(rf"SET\s++{_KEY}(?:=(?P<value>[^;]*+)(?:;{_REST})?|{_REST})", re.I)
_BARE_RESET = re.compile(rf"RESET(?:\s++{_KEY})?{_REST}", re.I)
_QUOTED = re.compile(_NAME)
_HEAD = 32  # tokens; ample to identify a statement and its facts
# DESCRIBE of anything but a table.
_NOT_TABLES = frozenset(
    {"CATALOG", "DATABASE", "SCHEMA", "NAMESPACE", "FUNCTION", "QUERY", "PROCEDURE"}
    | {"SELECT", "WITH", "FROM", "VALUES", "(", "HISTORY", "DETAIL"}
)


def parse(text: str) -> Statement:
    """Read one statement; any other than Tidegate's is returned unchanged as SparkStatement.

    Only ``//`` comments are respelled as ``--``, which Spark knows, and ``EXPLAIN PLAN FOR`` is
    EXPLAIN.

    Time is linear in the length of ``text``.

    :raises ServerError: PARSE_SYNTAX or another code of the grammar, with line and column.
    """
    leading = head(text, _HEAD)
    first = [_spelling(token) for token in leading[:LONGEST]]
    for length in range(len(first), 1, -1):
        if rule := RULES.get(tuple(first[:length])):
            return _read(text, rule, length)
    if rule := SHARED_RULES.get((first[0], first[1]) if len(first) > 1 else ("", "")):
        return _parse_shared(text, leading, rule, 2)
    if first and first[0] in WORD_RULES:
        return _read(text, WORD_RULES[first[0]], 1)
    if first and first[0] == "ALTER" and privileges.sets_owner(leading):
        return _read(text, privileges.alter_owner, 1)
    if first and first[0] in ("SET", "RESET"):
        return _setting(text, leading, LOOSE_RULES[first[0]])
    if first and first[0] in ("DESC", "DESCRIBE") and not _NOT_TABLES.intersection(first[1:2]):
        return _parse_shared(text, leading, LOOSE_RULES[first[0]])
    if first[:3] == ["SHOW", "CREATE", "TABLE"]:
        return _parse_shared(text, leading, show_create_table, 3)
    if names_other(text, first) and (like := table_like(text, _tokens(text))) is not None:
        return like
    if has_options(text, first):
        return _table_with_options(text)
    if first[:3] == ["DROP", "TEMPORARY", "TABLE"]:  # Spark has temporary views alone
        text = f"{text[: leading[1].start]}VIEW{text[leading[2].end + 1 :]}"
        leading = head(text, _HEAD)
    if first[:3] == ["EXPLAIN", "PLAN", "FOR"]:
        text = _blank_out(text, leading[1].start, leading[2].end + 1)
    return _spark(text, leading)


def _table_with_options(text: str) -> SparkStatement:
    """Return Spark's statement for CREATE TABLE ... WITH (...)."""
    found = connector_view(text, _tokens(text)) if names_connector(text) else None
    found = found or plain_table(text, _tokens(text))
    statement = _spark(found.text, head(found.text, _HEAD))
    return replace(statement, remarks=found.remarks, row_time=found.row_time)


def parse_as_sparks(text: str) -> SparkStatement:
    """Return a statement unchanged, for Spark, even if Tidegate has one of this form."""
    return _spark(text, head(text, _HEAD))


def _blank_out(text: str, start: int, end: int) -> str:
    """Return a text with one part replaced by blanks, so that offsets stay the same."""
    return f"{text[:start]}{' ' * (end - start)}{text[end:]}"


def _spark(text: str, leading: Sequence[Token]) -> SparkStatement:
    second = _second_statement(text)
    if second is not None:
        line, column = position(text, second)
        found = shorten(text[second:])
        raise error(
            Code.PARSE_SYNTAX,
            line=line,
            column=column,
            found=found,
            expected="the end of the statement",
            hint=ONE_BY_ONE,
        )
    return SparkStatement(text=spark_statement(text, leading), facts=facts_of(text, leading))


def _second_statement(text: str) -> int | None:
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


def _read(text: str, rule: Rule, length: int) -> Statement:
    at = Cursor(text, _tokens(text))
    for _ in range(length):
        at.advance()
    statement = rule(at)
    at.end()
    return statement


def _parse_shared(text: str, leading: Sequence[Token], rule: Rule, length: int = 1) -> Statement:
    """Read a statement that Spark also has; a form only Spark knows is Spark's.

    :param length: how many words the rule leaves to its caller.
    """
    try:
        return _read(text, rule, length)
    except ServerError:
        return _spark(text, leading)


def _setting(text: str, leading: Sequence[Token], rule: Rule) -> Statement:
    start = leading[0].start
    if found := _BARE_SET.fullmatch(text, start):
        key = _bare(found)
        if key is None or found["value"] is None:
            return ShowOption(key=key or "")
        value = found["value"].strip()
        quoted = _QUOTED.fullmatch(value)
        return SetOption(key=key, value=_unescape(quoted[1]) if quoted else value)
    if found := _BARE_RESET.fullmatch(text, start):
        return ResetOption(key=_bare(found))
    return _parse_shared(text, leading, rule)


def _bare(found: re.Match[str]) -> str | None:
    """Return the key of SET and RESET, which Spark also takes in backticks."""
    return found["key"] if found["quoted"] is None else _unescape(found["quoted"])


def _unescape(name: str) -> str:
    return name.replace("``", "`")


def _tokens(text: str) -> list[Token]:
    try:
        return tokenize(text)
    except TokenError as problem:
        line, column = position(text, _unreadable(text, problem))
        raise error(
            Code.PARSE_SYNTAX,
            line=line,
            column=column,
            found="an unfinished literal, quoted name or comment",
            expected="its end",
        ) from problem


def _unreadable(text: str, problem: TokenError) -> int:
    """Return the offset of the unfinished token; sqlglot puts it last in its message."""
    found = re.search(r"from \d+:(\d+)$", str(problem.__cause__))
    if found and int(found[1]) < len(text):
        return int(found[1])
    return max(text.rfind("/*"), 0)


def _spelling(token: Token) -> str:
    return Cursor("", [token]).spelling()
