"""Translates statements, queries, expressions and types: the only entry point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.dialect import head
from tidegate_server.core.sql.flink.calls import CALLS
from tidegate_server.core.sql.flink.output import Parts, Translation, compact, made, verbatim
from tidegate_server.core.sql.flink.relations import RELATIONS
from tidegate_server.core.sql.flink.rewriter import Rewriter, Rule
from tidegate_server.core.sql.flink.tokens import Item, Kind, items_of, sees
from tidegate_server.core.sql.flink.types import read_type, translate_type
from tidegate_server.core.sql.flink.windows import WINDOW_CALLS

__all__ = ["translate_query", "translate_statement", "translate_type"]

_CALLS: Mapping[str, Rule] = {**CALLS, **WINDOW_CALLS}
_QUERIES = frozenset(
    {"SELECT", "WITH", "VALUES", "FROM", "TABLE", "(", "INSERT", "DELETE", "UPDATE", "MERGE"}
)
_UNTOUCHED = frozenset({"SET", "RESET", "ADD", "LIST", "REMOVE", "BEGIN", "DECLARE", "USE"})
"""Statements that may contain what is no token of SQL."""
_TYPE_ENDS = frozenset(
    {"NOT", "NULL", "COMMENT", "METADATA", "PRIMARY", "CONSTRAINT", "UNIQUE", "FIRST", "AFTER"}
    | {"AS", "DEFAULT", "GENERATED", "CHECK"}
)
_TYPE_GOES_ON = (("NOT", "NULL", "ARRAY"), ("NOT", "NULL", "MULTISET"))


def translate_query(text: str) -> Translation:
    """Translate a query, or a statement that changes rows.

    :raises ServerError: FLINK_SQL_UNSUPPORTED, PARSE_SYNTAX, with line and column in ``text``.
    """
    rewriter = Rewriter(text, _CALLS, RELATIONS)
    items = items_of(text)
    return Translation(text, compact(text, rewriter.level(items, 0, len(text))))


def translate_statement(text: str) -> Translation:
    """Translate any statement: its queries, conditions, column types and strings.

    :raises ServerError: as :func:`translate_query`.
    """
    return Translation(text, compact(text, _statement(text)))


def _statement(text: str) -> Parts:
    first = Cursor("", head(text, 3))
    statement_set = first.spelling() in ("BEGIN", "EXECUTE") and first.spelling(1) == "STATEMENT"
    if first.spelling() in _UNTOUCHED and not statement_set:
        return verbatim(text, 0, len(text))
    items = items_of(text)
    rewriter = Rewriter(text, _CALLS, RELATIONS)
    start = _after_prefix(items)
    word = items[start].word if start < len(items) else ""
    if word in _QUERIES or statement_set:
        return rewriter.level(items, 0, len(text))
    if word in ("CREATE", "REPLACE", "CACHE"):
        return _create(rewriter, items, start)
    if word == "ALTER":
        return _alter(rewriter, items, start)
    if sees(items, 0, "SHOW", "JARS"):
        start, end = items[0].start, items[1].end
        return (
            *verbatim(text, 0, start),
            *made(start, "LIST JARS"),
            *verbatim(text, end, len(text)),
        )
    return _plain(rewriter, items, 0, len(text))


def _after_prefix(items: Sequence[Item]) -> int:
    """Return where the statement begins that EXPLAIN or DESCRIBE is about."""
    first = items[0].word if items else ""
    if first in ("DESC", "DESCRIBE"):
        at = 2 if sees(items, 1, "QUERY") else 1
        return at if _sees_query(items, at) else 0
    if first != "EXPLAIN":
        return 0
    known = {*_QUERIES, "CREATE", "ALTER", "REPLACE"} - {"("}
    return next((i for i, item in enumerate(items[:8]) if item.word in known), 1)


def _create(rewriter: Rewriter, items: Sequence[Item], start: int) -> Parts:
    """Translate CREATE [MATERIALIZED] TABLE and VIEW: the columns, and the query after AS."""
    text = rewriter.text
    query = next(
        (
            i + 1
            for i, item in enumerate(items)
            if i > start and item.word == "AS" and _sees_query(items, i + 1)
        ),
        len(items),
    )
    listed = _after_name(items, start)
    parts: list[Parts] = []
    at = 0
    for i, item in enumerate(items[:query]):
        found: Parts | None = None
        if item.opens("(") and i == listed:
            found = _columns(rewriter, item)
        elif item.opens("(") and sees(items, i - 2, "IMMUTABLE", "WHERE"):
            found = rewriter.group(item)
        elif item.kind is Kind.STRING or item.kind is Kind.GROUP:
            found = _strings(rewriter, item)
        if found is not None:
            parts += [verbatim(text, at, item.start), found]
            at = item.end
    before = made(0, *parts, verbatim(text, at, items[query - 1].end))
    if query == len(items):
        return (*before, *verbatim(text, items[query - 1].end, len(text)))
    return (*before, *rewriter.level(items[query:], items[query - 1].end, len(text)))


def _sees_query(items: Sequence[Item], at: int) -> bool:
    """Return whether a query begins at an item."""
    return at < len(items) and items[at].word in ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "(")


def _after_name(items: Sequence[Item], start: int) -> int:
    """Return where the table's name ends, the place of a column list; -1 if there is none."""
    at = next((i for i, item in enumerate(items) if i > start and item.word == "TABLE"), None)
    if at is None:
        return -1
    at += 4 if sees(items, at + 1, "IF", "NOT", "EXISTS") else 1
    while sees(items, at + 1, "."):
        at += 2
    return at + 1


def _columns(rewriter: Rewriter, group: Item) -> Parts:
    """Translate a column list: types, computed columns, conditions."""
    text, at = rewriter.text, group.start
    parts: list[Parts] = []
    for column in _split(group.inner):
        if column:
            parts += [verbatim(text, at, column[0].start), _column(rewriter, column)]
            at = column[-1].end
    return made(group.start, *parts, verbatim(text, at, group.end))


def _split(items: Sequence[Item]) -> list[Sequence[Item]]:
    """Split a column list at its commas, not at those within ``<`` and ``>``."""
    found: list[list[Item]] = [[]]
    depth = 0
    for item in items:
        if item.kind is Kind.SYMBOL and set(item.value) <= {"<", ">"}:
            depth += item.value.count("<") - item.value.count(">")
        if item.word == "," and depth <= 0:
            found.append([])
        else:
            found[-1].append(item)
    return [tuple(part) for part in found]


def _column(rewriter: Rewriter, items: Sequence[Item]) -> Parts:
    text, last = rewriter.text, items[-1].end
    if items[0].word == "WATERMARK" and sees(items, 1, "FOR"):
        by = next((i for i, item in enumerate(items) if item.word == "AS"), len(items) - 1)
        return (
            *verbatim(text, items[0].start, items[by].end),
            *rewriter.level(items[by + 1 :], items[by].end, last),
        )
    if items[0].word in ("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK") and len(items) > 1:
        return _constraint(rewriter, items)
    if len(items) > 1 and items[1].word == "AS":
        end = len(items)
        if len(items) > 3 and items[-2].word == "COMMENT" and items[-1].kind is Kind.STRING:
            end -= 2
        name = verbatim(text, items[0].start, items[1].end)
        body = rewriter.level(items[2:end], items[1].end, items[end - 1].end)
        return (*name, *body, *_plain(rewriter, items[end:], items[end - 1].end, last))
    if len(items) < 2:
        return verbatim(text, items[0].start, last)
    end = 1
    while end < len(items) and (
        items[end].word not in _TYPE_ENDS or any(sees(items, end, *w) for w in _TYPE_GOES_ON)
    ):
        end += 3 if items[end].word == "NOT" else 1
    if end == 1:
        return _plain(rewriter, items, items[0].start, last)
    spelled = read_type(text, items[1:end]).text
    if spelled.upper() == text[items[1].start : items[end - 1].end].upper():
        spelled = text[items[1].start : items[end - 1].end]
    return (
        *verbatim(text, items[0].start, items[1].start),
        *made(items[1].start, spelled),
        *_plain(rewriter, items[end:], items[end - 1].end, last),
    )


def _constraint(rewriter: Rewriter, items: Sequence[Item]) -> Parts:
    text, at = rewriter.text, items[0].start
    parts: list[Parts] = []
    for i, item in enumerate(items):
        condition = item.opens("(") and i and items[i - 1].word in ("EXPECT", "ASSERT", "CHECK")
        if condition:
            parts += [verbatim(text, at, item.start), rewriter.group(item)]
            at = item.end
    return made(items[0].start, *parts, verbatim(text, at, items[-1].end))


def _alter(rewriter: Rewriter, items: Sequence[Item], start: int) -> Parts:
    """Translate ALTER: the query after AS, conditions, and the types of columns."""
    text = rewriter.text
    for i in range(start + 2, len(items)):
        if items[i].word == "AS" and _sees_query(items, i + 1):
            return (
                *_plain(rewriter, items[: i + 1], 0, items[i].end),
                *rewriter.level(items[i + 1 :], items[i].end, len(text)),
            )
        if items[i].word == "WHERE" and items[i - 1].word in (
            "REFRESH",
            "FULL",
            "IMMUTABLE",
            "INCREMENTAL",
        ):
            return (
                *_plain(rewriter, items[: i + 1], 0, items[i].end),
                *rewriter.level(items[i + 1 :], items[i].end, len(text)),
            )
        if items[i].word in ("ADD", "MODIFY"):
            return _altered_columns(rewriter, items, i + 1)
    return _plain(rewriter, items, 0, len(text))


def _altered_columns(rewriter: Rewriter, items: Sequence[Item], at: int) -> Parts:
    text = rewriter.text
    at += 1 if at < len(items) and items[at].word in ("COLUMN", "COLUMNS") else 0
    rest = items[at:]
    if rest and rest[-1].word == ";":
        rest = rest[:-1]
    if not rest or rest[0].word in ("PARTITION", "IF"):
        return _plain(rewriter, items, 0, len(text))
    before = _plain(rewriter, items[:at], 0, rest[0].start)
    if rest[0].opens("("):
        found, end = _columns(rewriter, rest[0]), rest[0].end
    else:
        found, end = _column(rewriter, rest), rest[-1].end
    return (*before, *found, *verbatim(text, end, len(text)))


def _plain(rewriter: Rewriter, items: Sequence[Item], start: int, end: int) -> Parts:
    """Translate only the strings."""
    parts: list[Parts] = []
    at = start
    for item in items:
        if item.kind in (Kind.STRING, Kind.GROUP):
            parts += [verbatim(rewriter.text, at, item.start), _strings(rewriter, item)]
            at = item.end
    return made(start, *parts, verbatim(rewriter.text, at, end))


def _strings(rewriter: Rewriter, item: Item) -> Parts:
    if item.kind is Kind.STRING:
        return rewriter.string(item)
    return _plain(rewriter, item.inner, item.start, item.end)
