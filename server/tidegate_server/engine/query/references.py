"""Finds tables, functions, columns and stars in a query's text, with Spark's own parser.

Edits replace only their spans; the rest of the user's text stays byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.names import DEFAULT_CATALOG
from tidegate_server.engine.storage.jvm import items, java, kind, known_instance

_PART = r"(?:`(?:[^`]|``)+`|[^\s`.,()'\"/;]+)"
_NAME = re.compile(rf"{_PART}(?:\s*\.\s*{_PART})*")
_LONG_NAME = re.compile(rf"{_PART}\s*\.\s*{_PART}\s*\.\s*{_PART}")
_TABLE_WORD = re.compile(r"\bTABLE\s+$", re.IGNORECASE)
_STARS = frozenset({"UnresolvedStar", "UnresolvedStarExceptOrReplace", "UnresolvedRegex"})
_LISTS = frozenset({"Project", "Aggregate"})
_FOLLOWING_COLUMNS = frozenset({"Pivot", "Unpivot"})
_FULL = 3
"""The parts of a name with a catalog."""
_WRITTEN = "__required_write_privileges__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One mention of a table: its name's parts and span in code points, end exclusive."""

    parts: tuple[str, ...]
    start: int
    end: int
    aliased: bool
    """Whether the user wrote an alias after it."""
    time_travel: bool
    """Whether the query reads a version by time travel."""
    statement: bool = False
    """Whether this is the short query ``TABLE name``, keyword included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """The name of a function or column, with its span in code points."""

    parts: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Star:
    """A star and its parsed input."""

    start: int
    end: int
    node: Any
    below: Any
    scopes: tuple[tuple[Any, int], ...]
    """Surrounding WITH nodes, outermost first, each with the number of its visible relations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedQuery:
    """A query's text and what it mentions."""

    text: str
    references: tuple[Reference, ...]
    functions: frozenset[str] = frozenset()
    """Names of the functions that are called without a schema, in lower case."""
    calls: tuple[Mention, ...] = ()
    columns: tuple[Mention, ...] = ()
    """Columns qualified by a schema: three parts or more."""
    stars: tuple[Star, ...] = ()
    open: bool = False
    """Whether later columns of a source would change the query, apart from stars."""
    aliases: frozenset[str] = frozenset()
    """Names that the query itself gives to relations, in lower case."""


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """A replacement for a span of the text."""

    start: int
    end: int
    text: str


def rewrite(query: ParsedQuery, replacement: Callable[[Reference], str]) -> str:
    """Return the text with every reference replaced."""
    return apply_edits(query.text, reference_edits(query, replacement))


def reference_edits(query: ParsedQuery, replacement: Callable[[Reference], str]) -> Iterator[Edit]:
    """Yield the edits that replace every reference."""
    for reference in query.references:
        opening = "SELECT * FROM " if reference.statement else ""
        yield Edit(reference.start, reference.end, opening + replacement(reference))


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Apply edits, which must not overlap."""
    pieces, end = [], 0
    for edit in sorted(edits):
        pieces += [text[end : edit.start], edit.text]
        end = edit.end
    return "".join([*pieces, text[end:]])


def parse_query(spark: SparkSession, text: str) -> ParsedQuery:
    """Parse the text of one query.

    :raises ServerError: MT_QUERY_UNSUPPORTED if a table's name cannot be determined or located.
    :raises pyspark.errors.ParseException: if it is not a single query.
    """
    walk = _Walk(spark, text)
    plan = parse_single_query(spark, text)
    walk.visit_plan(plan, frozenset(), aliased=False)
    return walk.result(bare=_is_bare(plan))


def parse_single_query(spark: SparkSession, text: str) -> Any:
    """Return the parsed plan of a query.

    :raises pyspark.errors.ParseException: if it is not a single query.
    """
    return _without_aliases(_parser(spark).parseQuery(text))


def parse_statement(spark: SparkSession, text: str) -> Any:
    """Return the parsed plan of any statement.

    :raises pyspark.errors.ParseException: if Spark cannot parse it.
    """
    return _without_aliases(_parser(spark).parsePlan(text))


def canonical_name(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the name of a table with the session catalog instead of an alias of it."""
    gate = known_instance("tidegate.Gate")
    if len(parts) == _FULL and gate is not None and gate.catalogs().isAlias(parts[0]):
        return (DEFAULT_CATALOG, *parts[1:])
    return parts


def _without_aliases(plan: Any) -> Any:
    """Return a parsed plan whose names have the session catalog instead of its aliases."""
    gate = known_instance("tidegate.Gate")
    return plan if gate is None else gate.catalogs().withoutAliases(plan)


def _parser(spark: SparkSession) -> Any:
    """Return the session's parser, which uses the settings of the thread's active session."""
    session: Any = spark._jsparkSession
    jvm: Any = java(spark)
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
    return session.sessionState().sqlParser()


class _Walk:
    """Collects what one query mentions, except for names of common table expressions."""

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

    def visit_plan(self, node: Any, scope: frozenset[str], *, aliased: bool) -> None:
        match kind(node):
            case "UnresolvedRelation":
                self._visit_relation(node, scope, aliased=aliased, time_travel=False)
            case "RelationTimeTravel":
                self._visit_relation(node.relation(), scope, aliased=aliased, time_travel=True)
            case "UnresolvedWith":
                self._visit_with(node, scope)
            case "PlanWithUnresolvedIdentifier":
                self._visit_identifier(node, scope, aliased=aliased)
            case found:
                self._visit_operator(found, node, scope)

    def _visit_operator(self, found: str, node: Any, scope: frozenset[str]) -> None:
        if found in _FOLLOWING_COLUMNS or (
            found == "Join" and kind(node.joinType()) == "NaturalJoin"
        ):
            self._found.open = True
        if found == "SubqueryAlias":
            self._found.aliases.add(str(node.alias()).lower())
        if found == "UnresolvedTableValuedFunction" and node.name().size() == 1:
            self._found.functions.add(str(node.name().apply(0)).lower())
        for expression in items(node.expressions()):
            self._visit_expression(expression, node)
        for child in items(node.children()):
            self.visit_plan(child, scope, aliased=found == "SubqueryAlias")
        for inner in items(node.subqueries()):
            self.visit_plan(inner, scope, aliased=False)

    def _visit_with(self, node: Any, scope: frozenset[str]) -> None:
        recursive = bool(node.allowRecursion())
        outer = self._scopes
        for place, relation in enumerate(items(node.cteRelations())):
            name = str(relation.productElement(0)).lower()
            self._found.aliases.add(name)
            self._scopes = (*outer, (node, place))
            inner = scope | {name} if recursive else scope
            self.visit_plan(relation.productElement(1), inner, aliased=False)
            scope = scope | {name}
        self._scopes = (*outer, (node, node.cteRelations().size()))
        self.visit_plan(node.child(), scope, aliased=False)
        self._scopes = outer

    # ---- relations -----------------------------------------------------------------------------

    def _visit_relation(
        self, node: Any, scope: frozenset[str], *, aliased: bool, time_travel: bool
    ) -> None:
        parts = _strings(node.multipartIdentifier())
        if len(parts) == 1 and parts[0].lower() in scope:
            return
        if not bool(node.options().containsKey(_WRITTEN)):
            self._add_reference(node, parts, aliased=aliased, time_travel=time_travel)

    def _visit_identifier(self, node: Any, scope: frozenset[str], *, aliased: bool) -> None:
        parts = canonical_name(_strings(identifier_parts(self._spark, node.identifierExpr())))
        if node.children().isEmpty():
            if len(parts) > 1 or parts[0].lower() not in scope:
                self._add_reference(node, parts, aliased=aliased, time_travel=False)
            return
        for child in items(node.children()):
            self.visit_plan(child, scope, aliased=False)

    def _add_reference(
        self, node: Any, parts: tuple[str, ...], *, aliased: bool, time_travel: bool
    ) -> None:
        span = span_of(node)
        found = _NAME.match(self._text, span[0]) if span else None
        if kind(node) == "PlanWithUnresolvedIdentifier":
            start, end, word = (*(span or (0, 0)), None)
        elif span is None or found is None or canonical_name(split_name(found[0])) != parts:
            raise error(
                Code.MT_QUERY_UNSUPPORTED,
                reason=f"the name {'.'.join(parts)} cannot be located in its text",
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

    def _visit_expression(self, node: Any, operator: Any) -> None:
        match kind(node):
            case "Literal":
                return
            case "UnresolvedAttribute":
                if self._long and (mention := self._mention(node)) and len(mention.parts) > 2:
                    self._found.columns[mention.start] = mention
                return
            case "UnresolvedFunction":
                self._visit_call(node)
            case found if found in _STARS:
                self._visit_star(node, operator)
        for child in items(node.children()):
            self._visit_expression(child, operator)

    def _visit_call(self, node: Any) -> None:
        if node.nameParts().size() == 1:
            self._found.functions.add(str(node.nameParts().apply(0)).lower())
        if (mention := self._mention(node)) is not None:
            self._found.calls[mention.start] = mention

    def _mention(self, node: Any) -> Mention | None:
        """Return the name at the start of an expression's text, or None if it starts otherwise."""
        span = span_of(node)
        parts = _strings(node.nameParts())
        found = _NAME.match(self._text, span[0]) if span else None
        if found is None or split_name(found[0]) != parts:
            return None
        return Mention(parts=parts, start=found.start(), end=found.end())

    def _visit_star(self, node: Any, operator: Any) -> None:
        span = span_of(node)
        if span is None or kind(operator) not in _LISTS or "*" not in self._text[slice(*span)]:
            self._found.open = True
            return
        self._found.stars[span[0]] = Star(
            start=span[0], end=span[1], node=node, below=operator.child(), scopes=self._scopes
        )


@dataclass(slots=True)
class _Found:
    """What has been found so far, by start offset."""

    references: dict[int, Reference] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    calls: dict[int, Mention] = field(default_factory=dict)
    columns: dict[int, Mention] = field(default_factory=dict)
    stars: dict[int, Star] = field(default_factory=dict)
    open: bool = False
    aliases: set[str] = field(default_factory=set)


def _is_bare(node: Any) -> bool:
    """Say whether a query has no outermost SELECT list and thus returns a table's own columns."""
    match kind(node):
        case "Project" | "Aggregate":
            return False
        case "UnresolvedRelation":
            return True
        case _:
            return any(_is_bare(child) for child in items(node.children()))


# ---- computed names ----------------------------------------------------------------------------


def identifier_parts(spark: SparkSession, expression: Any) -> Any:
    """Return the parts of the name in IDENTIFIER(expression), as a Scala Seq.

    :raises ServerError: MT_QUERY_UNSUPPORTED if the expression is not constant.
    """
    value = constant_text(spark, expression)
    if value is None:
        raise error(Code.MT_QUERY_UNSUPPORTED, reason="the name in IDENTIFIER(...) is not constant")
    return parse_name(spark, value)


def parse_name(spark: SparkSession, text: str) -> Any:
    """Return the parts of a written name, as a Scala Seq."""
    return _parser(spark).parseMultipartIdentifier(text)


# ---- constant expressions ----------------------------------------------------------------------


def constant(spark: SparkSession, expression: Any, *, script: bool = False) -> Any:
    """Evaluate a parsed expression over literals and session variables to a Catalyst Literal.

    None for any other expression.

    :param script: whether it is part of a script, whose variables only get values at run time.
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
    """Return the value of :func:`constant` as text; None also for NULL."""
    literal = constant(spark, expression, script=script)
    if literal is None or literal.value() is None:
        return None
    return str(literal.toString())


def _mentions_names(expression: Any) -> bool:
    """Say whether an expression contains columns, variables or subqueries."""
    if kind(expression) in ("UnresolvedAttribute", "ScalarSubquery", "Exists", "InSubquery"):
        return True
    return any(_mentions_names(child) for child in items(expression.children()))


# ---- Scala -------------------------------------------------------------------------------------


def split_name(text: str) -> tuple[str, ...]:
    """Split a written name into its parts, without backticks."""
    return tuple(
        part[1:-1].replace("``", "`") if part.startswith("`") else part
        for part in re.findall(_PART, text)
    )


def _strings(sequence: Any) -> tuple[str, ...]:
    return tuple(str(part) for part in items(sequence))


def span_of(node: Any) -> tuple[int, int] | None:
    """Return the span of a parsed node in the text, in code points."""
    origin = node.origin()
    start, stop = origin.startIndex(), origin.stopIndex()
    if not (start.isDefined() and stop.isDefined()):
        return None
    return int(start.get()), int(stop.get()) + 1
