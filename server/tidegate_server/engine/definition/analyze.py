"""What Spark's analyzer says of a definition query, and the query as it is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.answers import Analysis
from tidegate_server.core.model.names import DEFAULT_CATALOG, DEFAULT_SCHEMA
from tidegate_server.core.model.table import ColumnOrigin
from tidegate_server.core.model.types import Schema, distinct_names
from tidegate_server.core.model.versions import Source, SourceKind
from tidegate_server.core.model.zones import SESSION_ZONE
from tidegate_server.core.sql.streams import Stream, find_stream
from tidegate_server.engine.query.determinism import changes_by_itself, unstable
from tidegate_server.engine.query.expansion import expansions
from tidegate_server.engine.query.lineage import column_origins, source_columns
from tidegate_server.engine.query.plans import Node, read_plan
from tidegate_server.engine.query.references import ParsedQuery, parse_query
from tidegate_server.engine.query.resolution import Tables, current_place
from tidegate_server.engine.query.streams import (
    aliased,
    check_plan,
    check_rows,
    put_back,
    reading,
    with_columns,
)
from tidegate_server.engine.results.projection import result_schema
from tidegate_server.engine.session.sessions import Child
from tidegate_server.engine.storage.base import TableFormat

_OF_A_SESSION = frozenset({"current_schema", "current_catalog"})
_SQL_FUNCTIONS = frozenset({"SQLScalarFunction", "SQLFunctionNode"})
_CHANGE_FEEDS = frozenset({"table_changes", "table_changes_by_path"})
_ALIASES = "give the tables aliases"
_WHAT_TO_DO: Mapping[str, str] = {
    "AMBIGUOUS_COLUMN_OR_FIELD": _ALIASES,
    "AMBIGUOUS_REFERENCE": _ALIASES,
    "CANNOT_RESOLVE_STAR_EXPAND": _ALIASES,
    "UNRESOLVED_COLUMN": _ALIASES,
    "UNRESOLVABLE_TABLE_VALUED_FUNCTION": "Spark looks for a table function in the current schema"
    " only, and a refresh has none of yours: write its query in the place of the call",
}
"""By the condition, without its subcondition, under which a refresh could not run a query that its
author can. Other conditions say themselves what is wrong."""


def analyze(child: Child, text: str, format: TableFormat) -> Analysis:
    """Analyze a query without running it.

    The user's text is analyzed first, so that errors speak of it and not of our rewriting.

    :raises ServerError: MT_QUERY_UNSUPPORTED for what cannot be refreshed outside this session,
        MT_STREAM_* for a stream that cannot be read so.
    """
    spark = child.spark
    query_text = text.strip().rstrip(";").rstrip()
    stream = find_stream(query_text)
    if stream is not None:
        with child.lock:
            return _analyze_stream(spark, query_text, with_columns(spark, stream), format)
    with child.lock:
        query = parse_query(spark, query_text)
        frame = spark.sql(query_text)
        plan = analyzed_plan(frame)
        schema = result_schema(frame)
        tables = Tables(spark, format)
        candidates = expansions(tables, query, current_place(spark))
        first = next(candidates, query_text)
        found = unstable(plan)
        _refuse_session_names(found)
        refuse_reading_functions(plan)
        temporary = [*sorted(tables.temporary), *_temporary_names(spark, query, plan)]
        lineage = column_origins(plan, distinct_names(schema.names()))
        expanded = first
        if not temporary:
            # What a refresh will run has to be analyzed here, where the author sees the error.
            expanded = _kept(tables, _chain(first, candidates), schema, lineage)
        _refuse_change_feeds(query.functions | tables.functions)
    columns = source_columns(plan)
    return Analysis(
        schema=schema,
        expanded_query=expanded,
        sources=tuple(
            _with_columns(tables.sources[name], columns.get(name, Schema()))
            for name in sorted(tables.sources)
        ),
        temporary_objects=tuple(temporary),
        lineage=lineage,
        unstable=found,
        time_zone=_time_zone(spark),
    )


def _analyze_stream(
    spark: SparkSession, text: str, stream: Stream, format: TableFormat
) -> Analysis:
    """Analyze a query over a stream, whose rows are looked at one by one."""
    hidden = stream.with_view(text)
    with reading(spark, stream):
        check_rows(spark, hidden)
        query = parse_query(spark, hidden)
        if not query.references[0].aliased:
            hidden = aliased(hidden, query.references[0].end, stream)
            query = parse_query(spark, hidden)
        frame = spark.sql(hidden)
        plan = analyzed_plan(frame)
        check_plan(plan, hidden)
        schema = result_schema(frame)
        found = unstable(plan)
        _refuse_session_names(found)
        tables = Tables(spark, format)
        expanded = next(expansions(tables, query, current_place(spark)), hidden)
        temporary = _temporary_names(spark, query, plan)
    return Analysis(
        schema=schema,
        expanded_query=put_back(expanded, stream),
        sources=(Source(name=stream.name, kind=SourceKind.STREAM, table_id=str(stream.name)),),
        temporary_objects=tuple(temporary),
        unstable=found,
        time_zone=_time_zone(spark),
    )


def _time_zone(spark: SparkSession) -> str:
    return str(spark.conf.get(SESSION_ZONE))


def _refuse_session_names(found: tuple[str, ...]) -> None:
    """Refuse the current schema and catalog, which are not those of a refresh."""
    names = [name for name in changes_by_itself(found) if name in _OF_A_SESSION]
    if names:
        reason = f"it uses {', '.join(names)}, which every session has its own of: write the name"
        raise error(Code.MT_QUERY_UNSUPPORTED, reason=reason)


def refuse_reading_functions(plan: Node) -> None:
    """Refuse functions in SQL that read tables.

    :raises ServerError: MT_QUERY_UNSUPPORTED: Spark reads those as they are at the moment, whatever
        version a refresh is to read, and nobody would see that they changed.
    """
    for node in plan.walk():
        for name in source_columns(node) if node.kind in _SQL_FUNCTIONS else ():
            reason = f"a function in SQL reads {name}; write its query in the place of the call"
            raise error(Code.MT_QUERY_UNSUPPORTED, reason=reason)


def _refuse_change_feeds(functions: Collection[str]) -> None:
    """Refuse functions that read tables unseen."""
    for name in sorted(_CHANGE_FEEDS & set(functions)):
        reason = f"{name} reads a table unseen: read that itself, refreshes find what changed in it"
        raise error(Code.MT_QUERY_UNSUPPORTED, reason=reason)


def analyzed_plan(frame: DataFrame) -> Node:
    """Return the analyzed plan of a frame."""
    jdf: Any = frame._jdf
    return read_plan(jdf.queryExecution().analyzed())


def _kept(
    tables: Tables,
    candidates: Iterator[str],
    schema: Schema,
    lineage: tuple[ColumnOrigin, ...],
) -> str:
    """Return the first text that, run by a refresh, has the query's own columns.

    :raises ServerError: MT_QUERY_UNSUPPORTED if there is none.
    """
    problem = "its columns cannot be told apart; write their names instead of a star"
    cause: PySparkException | None = None
    tables = replace(tables, spark=_elsewhere(tables.spark))
    for text in candidates:
        try:
            frame = tables.spark.sql(tables.pinned(text, DEFAULT_CATALOG, DEFAULT_SCHEMA))
            names = distinct_names(frame.columns)
            found = column_origins(analyzed_plan(frame), names)
        except PySparkException as failed:
            cause = failed
            advice = _WHAT_TO_DO.get(str(failed.getCondition()).partition(".")[0])
            problem = "; ".join(filter(None, (_first_line(failed), advice)))
            continue
        finally:
            tables.forget()
        if _types(result_schema(frame)) == _types(schema) and found == lineage:
            return text
    raise error(Code.MT_QUERY_UNSUPPORTED, reason=problem) from cause


def _elsewhere(spark: SparkSession) -> SparkSession:
    """Return a session with the same settings, but with a refresh's current schema."""
    session: Any = spark._jsparkSession
    other = SparkSession(spark.sparkContext, session.cloneSession())
    other.catalog.setCurrentCatalog(DEFAULT_CATALOG)
    other.catalog.setCurrentDatabase(DEFAULT_SCHEMA)
    return other


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _types(schema: Schema) -> list[tuple[str, str, bool]]:
    return [(column.name, column.type, column.nullable) for column in schema]


def _with_columns(source: Source, columns: Schema) -> Source:
    return replace(source, columns=columns)


def _temporary_names(spark: SparkSession, query: ParsedQuery, plan: Node) -> list[str]:
    session: Any = spark._jsparkSession
    listed = session.sessionState().catalog().listTemporaryFunctions()
    names = {str(listed.apply(i).funcName()).lower() for i in range(listed.size())}
    variables = {
        str(node.fields["originalNameParts"])[1:-1]
        for node in plan.walk()
        if node.kind == "VariableReference"
    }
    return [
        *(f"function {name}" for name in sorted(names & query.functions)),
        *(f"variable {name}" for name in sorted(variables)),
    ]


def _first_line(failed: PySparkException) -> str:
    return str(failed).split("\n", 1)[0].rstrip(".")
