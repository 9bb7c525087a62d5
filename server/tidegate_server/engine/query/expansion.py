"""Expands a definition query for storage: full names, and stars written out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.model.names import TableName, quote_identifier
from tidegate_server.engine.query.plans import Node, read_plan
from tidegate_server.engine.query.references import Edit, ParsedQuery, Reference, Star, apply_edits
from tidegate_server.engine.query.resolution import Place, Tables, quoted_name, select_columns
from tidegate_server.engine.storage.base import table_sql
from tidegate_server.engine.storage.jvm import java, kind

_Column = tuple[tuple[str, ...], str]
"""Qualifier and name of a column that a star includes."""


def expansions(tables: Tables, query: ParsedQuery, place: Place) -> Iterator[str]:
    """Yield equivalent texts that later columns of the sources do not affect, the most readable
    first.

    The last one selects from each table only its current columns, for queries in which a star,
    NATURAL JOIN or PIVOT cannot be written out. ``tables`` collects the sources.
    """
    spark = tables.spark
    names = {reference: tables.visit(reference, place) for reference in query.references}
    common = list(tables.name_edits(query, place))
    stars = [_star_edit(spark, star) for star in query.stars]
    written_out = [edit for edit in stars if edit is not None]
    if len(written_out) == len(stars) and not query.open:
        plain = (_reference_edit(tables, reference, name) for reference, name in names.items())
        yield apply_edits(query.text, [*plain, *common, *written_out])
    if query.stars or query.open:
        closed = (
            _closed_reference_edit(tables, reference, name) for reference, name in names.items()
        )
        yield apply_edits(query.text, [*closed, *common])


def _reference_edit(tables: Tables, reference: Reference, name: TableName | None) -> Edit:
    text = quoted_name(reference) if name is None else table_sql(name)
    if reference.statement:
        columns = tables.spark.table(text).columns
        text = f"SELECT {', '.join(quote_identifier(c) for c in columns)} FROM {text}"
    return Edit(reference.start, reference.end, text)


def _closed_reference_edit(tables: Tables, reference: Reference, name: TableName | None) -> Edit:
    """Hide columns that a table gets later; with time travel the columns are fixed anyway."""
    if name is None or reference.statement or reference.time_travel:
        return _reference_edit(tables, reference, name)
    columns = list(tables.columns(name))
    text = select_columns(reference, name, table_sql(name), columns)
    return Edit(reference.start, reference.end, text)


# ---- stars ---------------------------------------------------------------------------------------


def _star_edit(spark: SparkSession, star: Star) -> Edit | None:
    """Return the edit that writes a star out; None if its names would be ambiguous."""
    found = _star_columns(spark, star)
    target = kind(star.node) == "UnresolvedStar" and star.node.target().isDefined()
    names = None if found is None else _unambiguous_names(found, qualify=bool(target))
    return None if names is None else Edit(star.start, star.end, ", ".join(names))


def _star_columns(spark: SparkSession, star: Star) -> list[_Column] | None:
    """Have Spark analyze a star over its input alone, and return the columns.

    Filters are skipped: they do not change the columns, and one in a correlated subquery cannot
    be analyzed alone.
    """
    jvm: Any = java(spark)
    logical = jvm.org.apache.spark.sql.catalyst.plans.logical
    below = star.below
    while kind(below) == "Filter":
        below = below.child()
    plan = logical.Project(jvm.PythonUtils.toSeq([star.node]), below)
    for scope, visible in reversed(star.scopes):
        relations = scope.cteRelations().take(visible)
        plan = logical.UnresolvedWith(plan, relations, scope.allowRecursion())
    mode = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    session: Any = spark._jsparkSession
    try:
        analyzed = session.sessionState().executePlan(plan, mode).analyzed()
    except (PySparkException, Py4JJavaError):
        return None  # it depends on the surrounding query
    return _outermost_columns(read_plan(analyzed))


def _outermost_columns(plan: Node) -> list[_Column] | None:
    while plan.kind == "WithCTE":
        plan = plan.children[-1]
    columns = plan.many("projectList")
    if plan.kind != "Project" or any(c.kind != "AttributeReference" for c in columns):
        return None
    return [(qualifier_parts(c.fields["qualifier"]), str(c.fields["name"])) for c in columns]


def qualifier_parts(text: Any) -> tuple[str, ...]:
    """Parse a qualifier in a plan's notation: ``[catalog, schema, table]``."""
    return tuple(str(text)[1:-1].split(", ")) if isinstance(text, str) and text != "[]" else ()


def _unambiguous_names(columns: list[_Column], *, qualify: bool) -> list[str] | None:
    """Return plain column names if they are unambiguous, else names qualified by their tables.

    None if those are ambiguous too.
    """
    qualifiers = {qualifier for qualifier, _ in columns}
    if not qualify and len(qualifiers) == 1 and _distinct([name for _, name in columns]):
        return [quote_identifier(name) for _, name in columns]
    tables = {qualifier[-1:] for qualifier in qualifiers if qualifier}
    if len(tables) < len({qualifier for qualifier in qualifiers if qualifier}):
        return None
    names = [
        ".".join(quote_identifier(part) for part in (*qualifier[-1:], name))
        for qualifier, name in columns
    ]
    return names if _distinct(names) else None


def _distinct(names: list[str]) -> bool:
    return len({name.lower() for name in names}) == len(names)
