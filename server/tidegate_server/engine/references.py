"""The table references of a query's text, found by Spark's own parser.

Only names are replaced, by their spans; the rest of the user's text stays byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.errors import Code, error

_PART = r"(?:`(?:[^`]|``)+`|[^\s`.,()'\"/;]+)"
_NAME = re.compile(rf"{_PART}(?:\s*\.\s*{_PART})*")
_TABLE_WORD = re.compile(r"\bTABLE\s+$", re.IGNORECASE)
_STARS = frozenset({"UnresolvedStar", "UnresolvedStarExceptOrReplace", "UnresolvedRegex"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One mention of a table: its name's parts and span in code points, end exclusive."""

    parts: tuple[str, ...]
    start: int
    end: int
    aliased: bool
    """Whether an alias written by the user follows."""
    time_travel: bool
    """Whether the user chose a version."""
    statement: bool = False
    """Whether this is the short query ``TABLE name``, word included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedQuery:
    """A query's text and what it mentions."""

    text: str
    references: tuple[Reference, ...]
    open_columns: bool
    """Whether columns that a source gets later would become columns of the query."""
    functions: frozenset[str]
    """Lower-case names of one part of the functions called."""


def parse_query(spark: SparkSession, text: str) -> ParsedQuery:
    """Parse the text of one query.

    :raises ServerError: MT_QUERY_UNSUPPORTED if a table is named by an expression.
    :raises pyspark.errors.ParseException: if it is not one query.
    """
    session: Any = spark._jsparkSession
    plan = session.sessionState().sqlParser().parseQuery(text)
    walk = _Walk(text)
    walk.plan(plan, frozenset(), aliased=False)
    references = tuple(sorted(walk.references.values(), key=lambda r: r.start))
    return ParsedQuery(
        text=text,
        references=references,
        open_columns=_open_columns(plan),
        functions=frozenset(walk.functions),
    )


def rewrite(query: ParsedQuery, replacement: Callable[[Reference], str]) -> str:
    """Return the text with every reference replaced."""
    pieces, end = [], 0
    for reference in query.references:
        opening = "SELECT * FROM " if reference.statement else ""
        pieces += [query.text[end : reference.start], opening + replacement(reference)]
        end = reference.end
    return "".join([*pieces, query.text[end:]])


class _Walk:
    """Gathers what a parsed plan mentions, names of common table expressions left out."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.references: dict[int, Reference] = {}
        self.functions: set[str] = set()

    def plan(self, node: Any, scope: frozenset[str], *, aliased: bool) -> None:
        match str(node.getClass().getSimpleName()):
            case "UnresolvedRelation":
                self._relation(node, scope, aliased=aliased, time_travel=False)
            case "RelationTimeTravel":
                self._relation(node.relation(), scope, aliased=aliased, time_travel=True)
            case "UnresolvedWith":
                self._with(node, scope)
            case "PlanWithUnresolvedIdentifier":
                raise error(
                    Code.MT_QUERY_UNSUPPORTED, reason="IDENTIFIER(...) hides which table it reads"
                )
            case kind:
                for expression in _items(node.expressions()):
                    self._expression(expression)
                for child in _items(node.children()):
                    self.plan(child, scope, aliased=kind == "SubqueryAlias")
                for inner in _items(node.subqueries()):
                    self.plan(inner, scope, aliased=False)

    def _with(self, node: Any, scope: frozenset[str]) -> None:
        recursive = bool(node.allowRecursion())
        for relation in _items(node.cteRelations()):
            name = str(relation.productElement(0)).lower()
            inner = scope | {name} if recursive else scope
            self.plan(relation.productElement(1), inner, aliased=False)
            scope = scope | {name}
        self.plan(node.child(), scope, aliased=False)

    def _relation(
        self, node: Any, scope: frozenset[str], *, aliased: bool, time_travel: bool
    ) -> None:
        parts = tuple(str(part) for part in _items(node.multipartIdentifier()))
        if len(parts) == 1 and parts[0].lower() in scope:
            return
        start = int(node.origin().startIndex().get())
        found = _NAME.match(self._text, start)
        if found is None or split_name(found[0]) != parts:
            raise error(
                Code.MT_QUERY_UNSUPPORTED,
                reason=f"the mention of {'.'.join(parts)} cannot be located",
            )
        word = _TABLE_WORD.search(self._text, 0, start)
        self.references[start] = Reference(
            parts=parts,
            start=start if word is None else word.start(),
            end=found.end(),
            aliased=aliased,
            time_travel=time_travel,
            statement=word is not None,
        )

    def _expression(self, node: Any) -> None:
        kind = str(node.getClass().getSimpleName())
        if kind == "UnresolvedFunction" and node.nameParts().size() == 1:
            self.functions.add(str(node.nameParts().apply(0)).lower())
        for child in _items(node.children()):
            self._expression(child)


def _open_columns(node: Any) -> bool:
    """Look at the outermost SELECT lists; a query without one, such as TABLE t, is open too."""
    match str(node.getClass().getSimpleName()):
        case "Project" | "Aggregate":
            return any(_has_star(expression) for expression in _items(node.expressions()))
        case "UnresolvedRelation":
            return True
        case _:
            return any(_open_columns(child) for child in _items(node.children()))


def _has_star(expression: Any) -> bool:
    return str(expression.getClass().getSimpleName()) in _STARS or any(
        _has_star(child) for child in _items(expression.children())
    )


def split_name(text: str) -> tuple[str, ...]:
    """Split a written name into its parts, backticks taken off."""
    return tuple(
        part[1:-1].replace("``", "`") if part.startswith("`") else part
        for part in re.findall(_PART, text)
    )


def _items(sequence: Any) -> Iterator[Any]:
    """Iterate a Scala Seq."""
    for index in range(sequence.size()):
        yield sequence.apply(index)
