"""The definition query as it is kept: every name in full, every star written out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.model.names import TableName, quote_identifier
from tidegate_server.engine.query.plans import Node, read_plan
from tidegate_server.engine.query.references import Edit, ParsedQuery, Reference, Star, edited
from tidegate_server.engine.query.resolution import Place, Tables, selected, written
from tidegate_server.engine.storage.base import table_sql
from tidegate_server.engine.storage.jvm import java, kind

_Column = tuple[tuple[str, ...], str]
"""Qualifier and name of a column for which a star stands."""


def expansions(tables: Tables, query: ParsedQuery, place: Place) -> Iterator[str]:
    """Yield texts that mean the same and keep doing so, the most readable first.

    In the last one tables are reduced to the columns they have now, which comes to the same where
    a star, NATURAL JOIN or PIVOT cannot be written out. ``tables`` gathers the sources.
    """
    spark = tables.spark
    names = {reference: tables.visit(reference, place) for reference in query.references}
    common = list(tables.name_edits(query, place))
    stars = [_star_edit(spark, star) for star in query.stars]
    written_out = [edit for edit in stars if edit is not None]
    if len(written_out) == len(stars) and not query.open:
        plain = (_edit(tables, reference, name) for reference, name in names.items())
        yield edited(query.text, [*plain, *common, *written_out])
    if query.stars or query.open:
        closed = (_closed_edit(tables, reference, name) for reference, name in names.items())
        yield edited(query.text, [*closed, *common])


def _edit(tables: Tables, reference: Reference, name: TableName | None) -> Edit:
    text = written(reference) if name is None else table_sql(name)
    if reference.statement:
        columns = tables.spark.table(text).columns
        text = f"SELECT {', '.join(quote_identifier(c) for c in columns)} FROM {text}"
    return Edit(reference.start, reference.end, text)


def _closed_edit(tables: Tables, reference: Reference, name: TableName | None) -> Edit:
    """Leave out what a table gets later; a version that was chosen gets nothing."""
    if name is None or reference.statement or reference.time_travel:
        return _edit(tables, reference, name)
    columns = list(tables.columns(name))
    text = selected(reference, name, table_sql(name), columns)
    return Edit(reference.start, reference.end, text)


# ---- stars ---------------------------------------------------------------------------------------


def _star_edit(spark: SparkSession, star: Star) -> Edit | None:
    """Return the star as names; None if they would not be clear."""
    found = _star_columns(spark, star)
    target = kind(star.node) == "UnresolvedStar" and star.node.target().isDefined()
    names = None if found is None else _clear_names(found, qualify=bool(target))
    return None if names is None else Edit(star.start, star.end, ", ".join(names))


def _star_columns(spark: SparkSession, star: Star) -> list[_Column] | None:
    """Ask the analyzer what a star stands for, by itself over its input.

    A condition of a correlated subquery, which cannot be analyzed by itself, changes no columns.
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
        return None  # it depends on what stands around it
    return _outermost_columns(read_plan(analyzed))


def _outermost_columns(plan: Node) -> list[_Column] | None:
    while plan.kind == "WithCTE":
        plan = plan.children[-1]
    columns = plan.many("projectList")
    if plan.kind != "Project" or any(c.kind != "AttributeReference" for c in columns):
        return None
    return [(qualifier_parts(c.fields["qualifier"]), str(c.fields["name"])) for c in columns]


def qualifier_parts(text: Any) -> tuple[str, ...]:
    """Read a qualifier as plans write it: ``[catalog, schema, table]``."""
    return tuple(str(text)[1:-1].split(", ")) if isinstance(text, str) and text != "[]" else ()


def _clear_names(columns: list[_Column], *, qualify: bool) -> list[str] | None:
    """Write columns by their names alone if that is clear, else with their tables' names."""
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
