"""What a query's text mentions and where, found by Spark's own parser.

Only spans are replaced; the rest of the user's text stays byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.engine.storage.jvm import items, java, kind

_PART = r"(?:`(?:[^`]|``)+`|[^\s`.,()'\"/;]+)"
_NAME = re.compile(rf"{_PART}(?:\s*\.\s*{_PART})*")
_LONG_NAME = re.compile(rf"{_PART}\s*\.\s*{_PART}\s*\.\s*{_PART}")
_TABLE_WORD = re.compile(r"\bTABLE\s+$", re.IGNORECASE)
_STARS = frozenset({"UnresolvedStar", "UnresolvedStarExceptOrReplace", "UnresolvedRegex"})
_LISTS = frozenset({"Project", "Aggregate"})
_FOLLOWING_COLUMNS = frozenset({"Pivot", "Unpivot"})
_WRITTEN = "__required_write_privileges__"


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
class Mention:
    """A name of several parts, of a function or a column, with its span in code points."""

    parts: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Star:
    """A star and the parsed input over which it stands."""

    start: int
    end: int
    node: Any
    below: Any
    scopes: tuple[tuple[Any, int], ...]
    """Surrounding WITH nodes, outermost first, each with the number of its relations in sight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedQuery:
    """A query's text and what it mentions."""

    text: str
    references: tuple[Reference, ...]
    functions: frozenset[str] = frozenset()
    """Lower-case names of one part of the functions called."""
    calls: tuple[Mention, ...] = ()
    columns: tuple[Mention, ...] = ()
    """Columns written with the name of a schema: three parts or more."""
    stars: tuple[Star, ...] = ()
    open: bool = False
    """Whether, stars apart, columns that a source gets later would change the query."""
    aliases: frozenset[str] = frozenset()
    """Lower-case names that the query itself gives to relations."""


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """A replacement of a span of the text."""

    start: int
    end: int
    text: str


def rewrite(query: ParsedQuery, replacement: Callable[[Reference], str]) -> str:
    """Return the text with every reference replaced."""
    return edited(query.text, reference_edits(query, replacement))


def reference_edits(query: ParsedQuery, replacement: Callable[[Reference], str]) -> Iterator[Edit]:
    """Yield the edits that replace every reference."""
    for reference in query.references:
        opening = "SELECT * FROM " if reference.statement else ""
        yield Edit(reference.start, reference.end, opening + replacement(reference))


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return the text with every edit made; edits do not overlap."""
    pieces, end = [], 0
    for edit in sorted(edits):
        pieces += [text[end : edit.start], edit.text]
        end = edit.end
    return "".join([*pieces, text[end:]])


def parse_query(spark: SparkSession, text: str) -> ParsedQuery:
    """Parse the text of one query.

    :raises ServerError: MT_QUERY_UNSUPPORTED if a table's name cannot be told.
    :raises pyspark.errors.ParseException: if it is not one query.
    """
    walk = _Walk(spark, text)
    plan = _parser(spark).parseQuery(text)
    walk.plan(plan, frozenset(), aliased=False)
    return walk.result(bare=_is_bare(plan))


def parse_statement(spark: SparkSession, text: str) -> Any:
    """Return the parsed plan of any statement.

    :raises pyspark.errors.ParseException: if Spark cannot parse it.
    """
    return _parser(spark).parsePlan(text)


def _parser(spark: SparkSession) -> Any:
    """Return the session's parser; it follows the settings of the thread's active session."""
    session: Any = spark._jsparkSession
    jvm: Any = java(spark)
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
    return session.sessionState().sqlParser()


class _Walk:
    """Gathers what one query mentions and where, names of common table expressions left out."""

    def __init__(self, spark: SparkSession, text: str) -> None:
        self._spark = spark
        self._text = text
        self._long = _LONG_NAME.search(text) is not None
        self._found = _Found()
        self._scopes: tuple[tuple[Any, int], ...] = ()

    def result(self, *, bare: bool) -> ParsedQuery:
        found = self._found
        short = all(reference.statement for reference in found.references.values())
        return ParsedQuery(
            text=self._text,
            references=tuple(sorted(found.references.values(), key=lambda r: r.start)),
            functions=frozenset(found.functions),
            calls=tuple(found.calls.values()),
            columns=tuple(found.columns.values()),
            stars=tuple(found.stars.values()),
            open=found.open or (bare and not short),
            aliases=frozenset(found.aliases),
        )

    # ---- operators -----------------------------------------------------------------------------

    def plan(self, node: Any, scope: frozenset[str], *, aliased: bool) -> None:
        match kind(node):
            case "UnresolvedRelation":
                self._relation(node, scope, aliased=aliased, time_travel=False)
            case "RelationTimeTravel":
                self._relation(node.relation(), scope, aliased=aliased, time_travel=True)
            case "UnresolvedWith":
                self._with(node, scope)
            case "PlanWithUnresolvedIdentifier":
                self._identifier(node, scope, aliased=aliased)
            case found:
                self._operator(found, node, scope)

    def _operator(self, found: str, node: Any, scope: frozenset[str]) -> None:
        if found in _FOLLOWING_COLUMNS or (
            found == "Join" and kind(node.joinType()) == "NaturalJoin"
        ):
            self._found.open = True
        if found == "SubqueryAlias":
            self._found.aliases.add(str(node.alias()).lower())
        if found == "UnresolvedTableValuedFunction" and node.name().size() == 1:
            self._found.functions.add(str(node.name().apply(0)).lower())
        for expression in items(node.expressions()):
            self._expression(expression, node)
        for child in items(node.children()):
            self.plan(child, scope, aliased=found == "SubqueryAlias")
        for inner in items(node.subqueries()):
            self.plan(inner, scope, aliased=False)

    def _with(self, node: Any, scope: frozenset[str]) -> None:
        recursive = bool(node.allowRecursion())
        outer = self._scopes
        for place, relation in enumerate(items(node.cteRelations())):
            name = str(relation.productElement(0)).lower()
            self._found.aliases.add(name)
            self._scopes = (*outer, (node, place))
            inner = scope | {name} if recursive else scope
            self.plan(relation.productElement(1), inner, aliased=False)
            scope = scope | {name}
        self._scopes = (*outer, (node, node.cteRelations().size()))
        self.plan(node.child(), scope, aliased=False)
        self._scopes = outer

    # ---- relations -----------------------------------------------------------------------------

    def _relation(
        self, node: Any, scope: frozenset[str], *, aliased: bool, time_travel: bool
    ) -> None:
        parts = _strings(node.multipartIdentifier())
        if len(parts) == 1 and parts[0].lower() in scope:
            return
        if not bool(node.options().containsKey(_WRITTEN)):
            self._read(node, parts, aliased=aliased, time_travel=time_travel)

    def _identifier(self, node: Any, scope: frozenset[str], *, aliased: bool) -> None:
        parts = _strings(identifier_parts(self._spark, node.identifierExpr()))
        if node.children().isEmpty():
            if len(parts) > 1 or parts[0].lower() not in scope:
                self._read(node, parts, aliased=aliased, time_travel=False)
            return
        for child in items(node.children()):
            self.plan(child, scope, aliased=False)

    def _read(self, node: Any, parts: tuple[str, ...], *, aliased: bool, time_travel: bool) -> None:
        span = span_of(node)
        found = _NAME.match(self._text, span[0]) if span else None
        if kind(node) == "PlanWithUnresolvedIdentifier":
            start, end, word = (*(span or (0, 0)), None)
        elif span is None or found is None or split_name(found[0]) != parts:
            raise error(
                Code.MT_QUERY_UNSUPPORTED,
                reason=f"the mention of {'.'.join(parts)} cannot be located",
            )
        else:
            start, end = found.span()
            word = _TABLE_WORD.search(self._text, 0, start)
        self._found.references[start] = Reference(
            parts=parts,
            start=start if word is None else word.start(),
            end=end,
            aliased=aliased,
            time_travel=time_travel,
            statement=word is not None,
        )

    # ---- expressions ---------------------------------------------------------------------------

    def _expression(self, node: Any, operator: Any) -> None:
        match kind(node):
            case "Literal":
                return
            case "UnresolvedAttribute":
                if self._long and (named := self._named(node)) and len(named.parts) > 2:
                    self._found.columns[named.start] = named
                return
            case "UnresolvedFunction":
                self._call(node)
            case found if found in _STARS:
                self._star(node, operator)
        for child in items(node.children()):
            self._expression(child, operator)

    def _call(self, node: Any) -> None:
        if node.nameParts().size() == 1:
            self._found.functions.add(str(node.nameParts().apply(0)).lower())
        if (named := self._named(node)) is not None:
            self._found.calls[named.start] = named

    def _named(self, node: Any) -> Mention | None:
        """Return the name with which an expression's text begins, if it does."""
        span = span_of(node)
        parts = _strings(node.nameParts())
        found = _NAME.match(self._text, span[0]) if span else None
        if found is None or split_name(found[0]) != parts:
            return None
        return Mention(parts=parts, start=found.start(), end=found.end())

    def _star(self, node: Any, operator: Any) -> None:
        span = span_of(node)
        if span is None or kind(operator) not in _LISTS or "*" not in self._text[slice(*span)]:
            self._found.open = True
            return
        self._found.stars[span[0]] = Star(
            start=span[0], end=span[1], node=node, below=operator.child(), scopes=self._scopes
        )


@dataclass(slots=True)
class _Found:
    """What has been found, by the place where it begins."""

    references: dict[int, Reference] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    calls: dict[int, Mention] = field(default_factory=dict)
    columns: dict[int, Mention] = field(default_factory=dict)
    stars: dict[int, Star] = field(default_factory=dict)
    open: bool = False
    aliases: set[str] = field(default_factory=set)


def _is_bare(node: Any) -> bool:
    """Say whether a query has no outermost SELECT list, so that its columns are a table's."""
    match kind(node):
        case "Project" | "Aggregate":
            return False
        case "UnresolvedRelation":
            return True
        case _:
            return any(_is_bare(child) for child in items(node.children()))


# ---- names that are computed -------------------------------------------------------------------


def identifier_parts(spark: SparkSession, expression: Any) -> Any:
    """Return the parts of the name that IDENTIFIER(expression) stands for, as a Scala Seq.

    :raises ServerError: MT_QUERY_UNSUPPORTED if the expression has no value of its own.
    """
    value = constant_text(spark, expression)
    if value is None:
        raise error(Code.MT_QUERY_UNSUPPORTED, reason="IDENTIFIER(...) hides which table it means")
    return parse_name(spark, value)


def parse_name(spark: SparkSession, text: str) -> Any:
    """Return the parts of a written name, as a Scala Seq."""
    return _parser(spark).parseMultipartIdentifier(text)


# ---- expressions without rows ------------------------------------------------------------------


def constant(spark: SparkSession, expression: Any, *, script: bool = False) -> Any:
    """Return what a parsed expression over literals and session variables gives, as a Literal of
    Catalyst's; None for any other one.

    :param script: whether it stands in a script, whose variables nobody knows beforehand.
    """
    if kind(expression) == "Literal":
        return expression
    if script and _mentions_names(expression):
        return None
    try:
        frame: Any = spark.sql(f"SELECT {expression.sql()}")
        folded = frame._jdf.queryExecution().optimizedPlan().expressions().apply(0)
    except PySparkException:
        return None
    value = folded.child() if kind(folded) == "Alias" else folded
    return value if kind(value) == "Literal" else None


def constant_text(spark: SparkSession, expression: Any, *, script: bool = False) -> str | None:
    """Return the same as a text; None also for NULL."""
    literal = constant(spark, expression, script=script)
    if literal is None or literal.value() is None:
        return None
    return str(literal.toString())


def _mentions_names(expression: Any) -> bool:
    """Say whether an expression has columns, variables or queries in it."""
    if kind(expression) in ("UnresolvedAttribute", "ScalarSubquery", "Exists", "InSubquery"):
        return True
    return any(_mentions_names(child) for child in items(expression.children()))


# ---- Scala -------------------------------------------------------------------------------------


def split_name(text: str) -> tuple[str, ...]:
    """Split a written name into its parts, backticks taken off."""
    return tuple(
        part[1:-1].replace("``", "`") if part.startswith("`") else part
        for part in re.findall(_PART, text)
    )


def _strings(sequence: Any) -> tuple[str, ...]:
    return tuple(str(part) for part in items(sequence))


def span_of(node: Any) -> tuple[int, int] | None:
    """Return where in the text a parsed node stands, in code points."""
    origin = node.origin()
    start, stop = origin.startIndex(), origin.stopIndex()
    if not (start.isDefined() and stop.isDefined()):
        return None
    return int(start.get()), int(stop.get()) + 1
