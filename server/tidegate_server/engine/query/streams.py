"""Reads streams with Spark, and checks queries over them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.core.connectors.change_targets import AFTER, FEED_COLUMNS, names_feed
from tidegate_server.core.connectors.changes import DELETED, SEQUENCE
from tidegate_server.core.connectors.mysql import FUNCTION as MYSQL
from tidegate_server.core.connectors.mysql import MySqlSource, source_of
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.names import quote_identifier
from tidegate_server.core.sql.cursor import Cursor, position
from tidegate_server.core.sql.dialect import readable
from tidegate_server.core.sql.streams import VIEW, Stream
from tidegate_server.engine.query.plans import SQL_KEYWORDS, Node
from tidegate_server.engine.query.references import parse_statement, span_of
from tidegate_server.engine.query.registry import decoded_columns
from tidegate_server.engine.storage.jvm import items, kind

_ROW_BY_ROW = frozenset(
    {"Filter", "Generate", "Project", "SubqueryAlias", "UnresolvedRelation", "View"}
    | {"StreamingRelation", "StreamingRelationV2"}
)
# Spark would ignore files a week older than the newest one, even if they arrive later.
_FILES = {"maxFileAge": "36500d"}
_METADATA = "_metadata"
"""Spark's hidden column that names the file of each row."""


@contextmanager
def stream_view(
    spark: SparkSession, stream: Stream, text: str, *, runs: bool = False
) -> Iterator[None]:
    """Give a session's queries access to a stream as the temporary view VIEW.

    :param text: the query. If it mentions ``_metadata``, which views do not pass on, the stream
        gets it as a column, and ``*`` is rejected beside it.
    :param runs: whether the stream is read, and not only analyzed. Only then are registries asked
        for the schemas of its records.
    :raises ServerError: MT_STREAM_SOURCE if Spark has no such source.
    """
    if stream.table:
        frame = _rows_inserted(spark, stream, text)
    elif stream.function == MYSQL:
        frame = _rows_now(spark, stream)
    else:
        frame = _load_stream(spark, stream)
        if decoded := decoded_columns(spark, stream.options, asked=runs):
            frame = frame.selectExpr("*", *decoded)
    with _viewed(spark, stream, text, frame):
        yield


@contextmanager
def events_view(
    spark: SparkSession, stream: Stream, text: str, events: DataFrame
) -> Iterator[None]:
    """Give a session's queries access to the events of a table of MySQL, as the view VIEW.

    :param events: the declared columns as texts or bytes, whether the row was deleted, and the
        number of the event.
    """
    columns = [
        F.col(events.columns[number]).cast(kind).alias(name)
        for number, (name, kind) in enumerate(mysql_source(stream).columns)
    ]
    own = [F.col("deleted").alias(DELETED), F.col("sequence").alias(SEQUENCE)]
    with _viewed(spark, stream, text, events.select(*columns, *own)):
        yield


def mysql_source(stream: Stream) -> MySqlSource:
    """Return the table of MySQL that a stream is about; raises MT_STREAM_UNUSABLE."""
    try:
        return source_of(stream.parameters)
    except ValueError as problem:
        reason = f"{MYSQL} is for tables of the connector mysql-cdc: {problem}"
        raise error(Code.MT_STREAM_UNUSABLE, reason=reason) from problem


def _rows_now(spark: SparkSession, stream: Stream) -> DataFrame:
    """Return the rows of a table of MySQL in the form of events, for the analysis of queries."""
    source = mysql_source(stream)
    parts = (source.connection, source.database, source.table)
    rows = spark.table(".".join(map(quote_identifier, parts)))
    columns = [
        F.col(quote_identifier(name)).cast(kind).alias(name) for name, kind in source.columns
    ]
    own = [F.lit(False).alias(DELETED), F.lit(0).cast("bigint").alias(SEQUENCE)]
    return rows.select(*columns, *own)


def _rows_inserted(spark: SparkSession, stream: Stream, text: str) -> DataFrame:
    """Return the rows of a table in the form of its changes, for the analysis of queries."""
    rows = spark.table(".".join(map(quote_identifier, stream.table)))
    if not names_feed(text):
        return rows
    values = (F.lit(AFTER[0]), F.lit(0).cast("bigint"), F.current_timestamp())
    pairs = zip(values, FEED_COLUMNS, strict=True)
    return rows.select("*", *(value.alias(name) for value, name in pairs))


@contextmanager
def _viewed(spark: SparkSession, stream: Stream, text: str, frame: DataFrame) -> Iterator[None]:
    if stream.path is not None and _METADATA in text and _METADATA not in frame.columns:
        frame = frame.select("*", _METADATA)
    frame.createOrReplaceTempView(VIEW)
    try:
        yield
    finally:
        spark.catalog.dropTempView(VIEW)


def with_columns(spark: SparkSession, stream: Stream) -> Stream:
    """Return a stream of files with the files' current columns, unless it specifies columns."""
    if stream.path is None or "schema" in stream.parameters or stream.source == "text":
        return stream
    reader = spark.read.format(stream.source).options(**stream.options)
    if stream.source in ("csv",):
        reader = reader.option("inferSchema", "true")
    frame: Any = reader.load(stream.path)
    return stream.with_schema(str(frame._jdf.schema().toDDL()))


def check_rows(spark: SparkSession, text: str) -> None:
    """Check by its parsed text that a query processes one row at a time.

    :raises ServerError: MT_STREAM_QUERY, with a position in ``text``.
    :raises pyspark.errors.ParseException: if Spark cannot parse it.
    """
    _check(parse_statement(spark, text), text)


def check_plan(plan: Node, text: str) -> None:
    """Check the same in the analyzed plan, where aggregates and windows become visible.

    :raises ServerError: MT_STREAM_QUERY.
    """
    for node in plan.walk():
        if node.kind in ("Aggregate", "Window") or node.kind.endswith("Subquery"):
            shown = {"Aggregate": "an aggregate", "Window": "a window"}
            raise _query_error(node.kind, text, None, shown.get(node.kind))


def _check(node: Any, text: str) -> None:
    found = kind(node)
    if found not in _ROW_BY_ROW:
        raise _query_error(found, text, span_of(node))
    if found == "Project" and _METADATA in text:
        for column in items(node.projectList()):
            if kind(column) == "UnresolvedStar":
                reason = f"{_METADATA} and * cannot be in one query: write the names of columns"
                raise error(Code.MT_QUERY_UNSUPPORTED, reason=reason)
    for inner in items(node.subqueries()):
        raise _query_error("a subquery", text, span_of(inner), "a subquery")
    for child in items(node.children()):
        _check(child, text)


def _query_error(
    operator: str, text: str, span: tuple[int, int] | None, shown: str | None = None
) -> ServerError:
    words = tuple(SQL_KEYWORDS.get(operator, "").split())
    offset = _offset(text, words) if words else None
    if offset is None:
        offset = span[0] if span is not None else 0
    line, column = position(text, offset)
    found = shown or " ".join(words) or operator
    return error(Code.MT_STREAM_QUERY, found=found, line=line, column=column)


def _offset(text: str, words: tuple[str, ...]) -> int | None:
    at = Cursor(text, readable(text))
    while not at.ended:
        if at.sees(*words):
            return at.offset
        at.advance()
    return None


def restore_stream(text: str, stream: Stream) -> str:
    """Replace VIEW in a query by the stream."""
    return re.sub(rf"`?{VIEW}`?\s*", lambda _: f"{stream.sql()} ", text, count=1)


def add_alias(text: str, end: int, stream: Stream) -> str:
    """Add an alias to the stream, which ends at ``end``, to qualify its columns."""
    name = stream.function or stream.table[-1]
    return f"{text[:end]} AS {quote_identifier(name)}{text[end:]}"


def _load_stream(spark: SparkSession, stream: Stream) -> DataFrame:
    options = {**(_FILES if stream.path is not None else {}), **stream.options}
    reader = spark.readStream.format(stream.source).options(**options)
    if "schema" in stream.parameters:
        reader = reader.schema(stream.parameters["schema"])
    try:
        return reader.load(stream.path)
    except AnalysisException as caught:
        if stream.source in str(caught) and "Failed to find data source" in str(caught):
            raise error(Code.MT_STREAM_SOURCE, source=stream.source) from caught
        raise
