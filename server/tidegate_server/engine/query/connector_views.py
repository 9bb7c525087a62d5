"""Treats views as the tables of connectors that they are: streams to ingest, tables to drop.

https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/overview/
"""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from tidegate_server.core.connectors.tables import STREAM_PROPERTY
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.names import qualify, quote_identifier
from tidegate_server.core.sql.clauses import table_name
from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.dialect import readable
from tidegate_server.engine.query.references import Reference, parse_query, rewrite
from tidegate_server.engine.query.resolution import current_place, is_temporary_view
from tidegate_server.engine.storage.entries import entry_of

_DROP = re.compile(r"\bDROP\s+TABLE\b", re.IGNORECASE)


def expand_connectors(spark: SparkSession, text: str) -> str:
    """Return a query with each table of a connector replaced by the query over its stream.

    :raises pyspark.errors.ParseException: if it is not a single query.
    """
    query = parse_query(spark, text)
    streams = {
        reference.parts: _stream_of(spark, reference.parts) for reference in query.references
    }
    if not any(streams.values()):
        return text

    def replacement(reference: Reference) -> str:
        stream = streams[reference.parts]
        if stream is None:
            return text[reference.start : reference.end]
        alias = "" if reference.aliased else f" AS {quote_identifier(reference.parts[-1])}"
        return f"({stream}){alias}"

    return rewrite(query, replacement)


def drop_as_view(spark: SparkSession, text: str) -> str:
    """Return DROP TABLE of a connector's table as DROP VIEW; any other statement as it is."""
    if _DROP.search(text) is None:
        return text
    at = Cursor(text, readable(text))
    if not at.accept("DROP") or not at.sees("TABLE"):
        return text
    start = at.offset
    at.advance()
    at.accept("IF", "EXISTS")
    try:
        name = table_name(at)
    except ServerError:
        return text  # Spark reports it
    if _stream_of(spark, name) is None:
        return text
    return f"{text[:start]}VIEW {text[start + len('VIEW ') :]}"


def _stream_of(spark: SparkSession, parts: tuple[str, ...]) -> str | None:
    """Return the query over the stream of a connector's table; None for any other name."""
    if len(parts) > 3 or is_temporary_view(spark, parts):
        return None
    place = current_place(spark)
    entry = entry_of(spark, qualify(parts, place.catalog, place.schema))
    if entry is None or str(entry.tableType().name()) != "VIEW":
        return None
    found = entry.properties().get(STREAM_PROPERTY)
    return str(found.get()) if found.isDefined() else None
