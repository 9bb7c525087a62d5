"""Analyzes an INSERT whose query reads a stream, which becomes a job."""

from __future__ import annotations

from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from tidegate_server.core.connectors.tables import connector_of, refused_insert, unsupported_error
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import InsertAnalyzed
from tidegate_server.core.messages.requests import AnalyzeInsert
from tidegate_server.core.model.names import qualify, quote_identifier, visible_name
from tidegate_server.core.sql.streams import Stream, find_stream
from tidegate_server.engine.definition.analyze import analyze_stream
from tidegate_server.engine.gate.gate import names_of_parsed
from tidegate_server.engine.query.connector_views import (
    endless_stream,
    expand_endless,
    view_text,
)
from tidegate_server.engine.query.job_targets import changes_taken, find_target
from tidegate_server.engine.query.references import parse_query, parse_statement
from tidegate_server.engine.query.resolution import current_place
from tidegate_server.engine.query.streams import check_rows, with_columns
from tidegate_server.engine.query.table_changes import locate_changes
from tidegate_server.engine.session.sessions import Child
from tidegate_server.engine.storage.base import TableFormat
from tidegate_server.engine.storage.jvm import analyze_only


def reads_stream(child: Child, text: str) -> bool:
    """Return whether a query reads a stream row by row, which has no end.

    Tables of connectors without an end are streams, also temporary ones, unless the query ends by
    itself, as one with LIMIT does.

    :raises ServerError: MT_STREAM_UNUSABLE or PARSE_SYNTAX for an invalid STREAM.
    """
    with child.lock:
        if find_stream(text) is not None:
            return True
        spark = child.spark
        try:
            names = names_of_parsed(spark, parse_statement(spark, text))
        except ParseException:
            return False  # the statement fails in the same way
        if all(endless_stream(spark, parts) is None for parts in names):
            return False
        ingested = expand_endless(spark, parse_query(spark, text))
        if (stream := find_stream(ingested)) is None:
            return False
        try:
            check_rows(spark, stream.with_view(ingested))
        except ServerError:
            return False
        return True


def analyze_insert(child: Child, request: AnalyzeInsert, format: TableFormat) -> InsertAnalyzed:
    """Analyze an INSERT whose query reads a stream.

    :raises ServerError: MT_STREAM_* for an unsupported query; NOT_SUPPORTED if it reads the changes
        of a connector's table, or the target is neither a Delta table nor a connector's table that
        can be written; MT_CHANGES_UNREADABLE or JOB_CHANGES_UNWRITABLE for those of a table.
    :raises pyspark.errors.AnalysisException: if the rows do not fit into the target.
    """
    with child.lock:
        stream, text = _stream_of(child.spark, request.sql)
        source_id = ""
        if stream.table:
            stream, source_id = locate_changes(child.spark, stream, text, format)
        analysis = analyze_stream(child.spark, text, with_columns(child.spark, stream), format)
        if analysis.key:
            what = "An INSERT of changes, which would add a row for each,"
            hint = "Create a materialized table over them, which applies them by their key."
            raise error(Code.NOT_SUPPORTED, what=what, hint=hint)
        place = current_place(child.spark)
        target = qualify(request.target, place.catalog, place.schema)
        listed = f" ({', '.join(map(quote_identifier, request.columns))})"
        values = ", ".join(
            f"CAST(NULL AS {column.type}) AS {quote_identifier(column.name)}"
            for column in analysis.schema
        )
        columns = listed if request.columns else ""
        _check_connector(child.spark, request.target)
        # In the user's words, so that an error has its place and names.
        written = parse_statement(child.spark, f"{request.head}SELECT {values}")
        analyze_only(child.spark, written)
        probe = f"INSERT INTO {target.quoted()}{columns} SELECT {values}"
        found = find_target(child.spark, format, target)
    if found is None:
        raise error(
            Code.NOT_SUPPORTED,
            what=f"An INSERT of a stream into {visible_name(target)}",
            hint="Jobs write into Delta tables, and tables of connectors that are not temporary.",
        )
    if stream.table:
        changes_taken(found, target, stream, request.sql, request.columns)
    return InsertAnalyzed(
        analysis=analysis, target=target, table_id=found.id, probe=probe, source_id=source_id
    )


def _stream_of(spark: SparkSession, text: str) -> tuple[Stream, str]:
    """Return the stream that a query reads, and the query over it instead of its table."""
    ingested = text
    if find_stream(text) is None:
        ingested = expand_endless(spark, parse_query(spark, text))
    stream = find_stream(ingested)
    if stream is None:  # its table was dropped meanwhile
        raise error(Code.MT_STREAM_UNUSABLE, reason="it reads no stream any more")
    return stream, ingested


def _check_connector(spark: SparkSession, target: tuple[str, ...]) -> None:
    """Reject a connector's table that is only read; raises NOT_SUPPORTED."""
    found = view_text(spark, target)
    if found is not None and (reason := refused_insert(*found)) is not None:
        raise unsupported_error("INSERT", target, connector_of(*found), reason)
