"""Analyzes a definition query with Spark, and expands it for storage."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.connectors.changes import EXPLODED, change_key
from tidegate_server.core.connectors.mysql import FUNCTION as MYSQL
from tidegate_server.core.connectors.readers import READERS
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Analysis
from tidegate_server.core.model.names import DEFAULT_CATALOG, DEFAULT_SCHEMA
from tidegate_server.core.model.table import ColumnOrigin
from tidegate_server.core.model.types import Schema, distinct_names
from tidegate_server.core.model.versions import Source, SourceKind
from tidegate_server.core.model.zones import SESSION_ZONE
from tidegate_server.core.sql.external.changes import events_of
from tidegate_server.core.sql.streams import (
    Stream,
    count_streams,
    find_stream,
    reject_changes,
    reject_readers,
)
from tidegate_server.engine.query.connector_views import expand_connectors
from tidegate_server.engine.query.determinism import time_dependent, unstable_parts
from tidegate_server.engine.query.expansion import expansions
from tidegate_server.engine.query.lineage import column_origins, source_columns
from tidegate_server.engine.query.plans import Node, read_plan
from tidegate_server.engine.query.references import ParsedQuery, parse_query
from tidegate_server.engine.query.resolution import Tables, current_place
from tidegate_server.engine.query.streams import (
    add_alias,
    check_plan,
    check_rows,
    restore_stream,
    stream_view,
    with_columns,
)
from tidegate_server.engine.results.projection import result_schema
from tidegate_server.engine.session.sessions import Child
from tidegate_server.engine.storage.base import TableFormat

_SESSION_FUNCTIONS = frozenset({"current_schema", "current_catalog"})
_SQL_FUNCTIONS = frozenset({"SQLScalarFunction", "SQLFunctionNode"})
_CHANGE_FEEDS = frozenset({"table_changes", "table_changes_by_path"})
_READERS = frozenset(name for name, reader in READERS.items() if reader.needs)
_ALIASES = "give the tables aliases"
_ADVICE: Mapping[str, str] = {
    "AMBIGUOUS_COLUMN_OR_FIELD": _ALIASES,
    "AMBIGUOUS_REFERENCE": _ALIASES,
    "CANNOT_RESOLVE_STAR_EXPAND": _ALIASES,
    "UNRESOLVED_COLUMN": _ALIASES,
    "UNRESOLVABLE_TABLE_VALUED_FUNCTION": "Spark finds table functions only in the current schema,"
    " and a refresh has another one: replace the call by the function's query",
}
"""Advice by error condition, without subcondition, for queries that run in the author's session but
not in a refresh. The messages of other conditions explain themselves."""


def analyze(child: Child, text: str, format: TableFormat) -> Analysis:
    """Analyze a query without running it.

    The user's text is analyzed first, so that errors refer to it and not to the expanded query.

    :raises ServerError: MT_QUERY_UNSUPPORTED if it cannot be refreshed outside this session,
        MT_STREAM_* for an unsupported query over a stream.
    """
    spark = child.spark
    query_text = text.strip().rstrip(";").rstrip()
    with child.lock:
        if (stream := find_stream(query_text)) is not None:
            reject_changes(stream, query_text)
            return analyze_stream(spark, query_text, with_columns(spark, stream), format)
        reject_readers(query_text)
        query = parse_query(spark, query_text)
        ingested = expand_connectors(spark, query)
        if ingested != query_text:
            return _analyze_connectors(spark, ingested, format)
        frame = spark.sql(query_text)
        plan = analyzed_plan(frame)
        schema = result_schema(frame)
        tables = Tables(spark, format)
        candidates = expansions(tables, query, current_place(spark))
        first = next(candidates, query_text)
        found = unstable_parts(plan)
        _reject_session_names(found)
        reject_reading_functions(plan)
        temporary = [*sorted(tables.temporary), *_temporary_names(spark, query, plan)]
        lineage = column_origins(plan, distinct_names(schema.names()))
        expanded = first
        if not temporary:
            # Analyze the text that a refresh will run now, while the author can see an error.
            expanded = _first_equivalent(tables, chain((first,), candidates), schema, lineage)
        reject_hiding_functions(query.functions | tables.functions)
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


def _analyze_connectors(spark: SparkSession, text: str, format: TableFormat) -> Analysis:
    """Analyze a query in which the streams of connectors stand for their tables.

    Errors have no place, since the author has not written this text.
    """
    if count_streams(text) > 1:
        raise error(Code.MT_STREAM_QUERY, found="reading several of them")
    try:
        stream = find_stream(text)
        if stream is None:
            raise AssertionError("a connector's table became no stream")
        return analyze_stream(spark, text, with_columns(spark, stream), format)
    except ServerError as problem:
        problem.line = problem.column = None
        raise


def analyze_stream(spark: SparkSession, text: str, stream: Stream, format: TableFormat) -> Analysis:
    """Analyze a query over a stream, which must process one row at a time."""
    hidden = stream.with_view(text)
    with stream_view(spark, stream, text):
        check_rows(spark, hidden)
        query = parse_query(spark, hidden)
        if not query.references[0].aliased:
            hidden = add_alias(hidden, query.references[0].end, stream)
            query = parse_query(spark, hidden)
        frame = spark.sql(hidden)
        plan = analyzed_plan(frame)
        check_plan(plan, hidden)
        schema = result_schema(frame)
        found = unstable_parts(plan)
        _reject_session_names(found)
        tables = Tables(spark, format)
        expanded = next(expansions(tables, query, current_place(spark)), hidden)
        temporary = _temporary_names(spark, query, plan)
        key = _change_key(spark, stream.with_view(text), plan, schema)
        if stream.function == MYSQL and not key:
            reason = f"{MYSQL} is for tables of the connector mysql-cdc: read such a table"
            raise error(Code.MT_QUERY_UNSUPPORTED, reason=reason)
    return Analysis(
        schema=schema if not key else _required(schema, key),
        expanded_query=restore_stream(expanded, stream),
        sources=(Source(name=stream.name, kind=SourceKind.STREAM, table_id=str(stream.name)),),
        temporary_objects=tuple(temporary),
        unstable=found,
        time_zone=_time_zone(spark),
        key=key,
    )


def _change_key(spark: SparkSession, text: str, plan: Node, schema: Schema) -> tuple[str, ...]:
    """Return the columns of the key by which the changes that a query reads are applied.

    :return: none if the query reads no table of changes.
    :raises ServerError: MT_QUERY_UNSUPPORTED if it has no row per event, or lacks the key.
    """
    wanted = change_key(text)
    if not wanted:
        return ()
    generators = sum(node.kind == "Generate" for node in plan.walk())
    events = events_of(text)
    if events is None or generators > text.count(EXPLODED):
        reason = "over changes a query is SELECT ... FROM the table, with or without WHERE"
        raise error(Code.MT_QUERY_UNSUPPORTED, reason=reason)
    spark.sql(events)  # an error of this text is one of the query's names
    found = []
    for name in wanted:
        column = schema.find(name)
        if column is None:
            reason = f"changes are applied by the key ({', '.join(wanted)}): select {name}, too"
            raise error(Code.MT_QUERY_UNSUPPORTED, reason=reason)
        found.append(column.name)
    return tuple(found)


def _required(schema: Schema, key: Collection[str]) -> Schema:
    """Return a schema with the columns of the key NOT NULL: a row without a key is an error."""
    columns = (replace(c, nullable=c.nullable and c.name not in key) for c in schema)
    return Schema(tuple(columns))


def _time_zone(spark: SparkSession) -> str:
    return str(spark.conf.get(SESSION_ZONE))


def _reject_session_names(found: tuple[str, ...]) -> None:
    """Reject the current schema and catalog, which differ in a refresh."""
    names = [name for name in time_dependent(found) if name in _SESSION_FUNCTIONS]
    if names:
        reason = f"it uses {', '.join(names)}, which differs between sessions: write the name"
        raise error(Code.MT_QUERY_UNSUPPORTED, reason=reason)


def reject_reading_functions(plan: Node) -> None:
    """Reject SQL functions that read tables.

    Spark would read the current version of those tables, not the one that a refresh is to read,
    and changes of them would go unnoticed.

    :raises ServerError: MT_QUERY_UNSUPPORTED.
    """
    for node in plan.walk():
        for name in source_columns(node) if node.kind in _SQL_FUNCTIONS else ():
            reason = f"an SQL function reads {name}; replace the call by the function's query"
            raise error(Code.MT_QUERY_UNSUPPORTED, reason=reason)


def reject_hiding_functions(functions: Collection[str]) -> None:
    """Reject functions, including those in views, whose changes refreshes would not notice.

    :param functions: the names of all that are called.
    :raises ServerError: MT_QUERY_UNSUPPORTED.
    """
    for name in sorted(_CHANGE_FEEDS & set(functions)):
        reason = f"{name} hides the table it reads: read the table, refreshes detect its changes"
        raise error(Code.MT_QUERY_UNSUPPORTED, reason=reason)
    for name in sorted(_READERS & set(functions)):
        reason = f"a view calls {name}, whose changes go unnoticed: read STREAM {name}(...)"
        raise error(Code.MT_QUERY_UNSUPPORTED, reason=reason)


def analyzed_plan(frame: DataFrame) -> Node:
    """Return the analyzed plan of a frame."""
    jdf: Any = frame._jdf
    return read_plan(jdf.queryExecution().analyzed())


def _first_equivalent(
    tables: Tables,
    candidates: Iterator[str],
    schema: Schema,
    lineage: tuple[ColumnOrigin, ...],
) -> str:
    """Return the first text that yields the query's own columns when run by a refresh.

    :raises ServerError: MT_QUERY_UNSUPPORTED if there is none.
    """
    problem = "its columns are ambiguous; write their names instead of a star"
    cause: PySparkException | None = None
    tables = replace(tables, spark=_refresh_session(tables.spark))
    for text in candidates:
        try:
            frame = tables.spark.sql(tables.pin(text, DEFAULT_CATALOG, DEFAULT_SCHEMA))
            names = distinct_names(frame.columns)
            found = column_origins(analyzed_plan(frame), names)
        except PySparkException as caught:
            cause = caught
            advice = _ADVICE.get(str(caught.getCondition()).partition(".")[0])
            problem = "; ".join(filter(None, (_first_line(caught), advice)))
            continue
        finally:
            tables.drop_registered()
        if _typed_columns(result_schema(frame)) == _typed_columns(schema) and found == lineage:
            return text
    raise error(Code.MT_QUERY_UNSUPPORTED, reason=problem) from cause


def _refresh_session(spark: SparkSession) -> SparkSession:
    """Return a session with the same settings, but with the current schema of a refresh."""
    session: Any = spark._jsparkSession
    other = SparkSession(spark.sparkContext, session.cloneSession())
    other.catalog.setCurrentCatalog(DEFAULT_CATALOG)
    other.catalog.setCurrentDatabase(DEFAULT_SCHEMA)
    return other


def _typed_columns(schema: Schema) -> list[tuple[str, str, bool]]:
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


def _first_line(caught: PySparkException) -> str:
    return str(caught).split("\n", 1)[0].rstrip(".")
