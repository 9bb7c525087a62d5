"""Treats views as the tables of connectors that they are: streams to ingest, tables to drop.

https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/overview/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.connectors.sinks import mark_of
from tidegate_server.core.connectors.tables import (
    PROPERTY,
    is_endless,
    stream_query,
)
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.names import TableName, qualify, quote_identifier
from tidegate_server.core.sql.clauses import table_name
from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.dialect import readable
from tidegate_server.engine.query.references import (
    ParsedQuery,
    Reference,
    canonical_name,
    rewrite,
)
from tidegate_server.engine.query.resolution import (
    current_place,
    is_temporary_view,
    temporary_view,
)
from tidegate_server.engine.storage.entries import entry_of
from tidegate_server.engine.storage.jvm import items

_DROP = re.compile(r"\bDROP\s+TABLE\b", re.IGNORECASE)


def expand_connectors(spark: SparkSession, parsed: ParsedQuery) -> str:
    """Return a query with each table of a connector replaced by the query over its stream."""
    names = {reference.parts for reference in parsed.references}
    return _expand(parsed, {parts: _stream_of(_connector_view(spark, parts)) for parts in names})


def expand_endless(spark: SparkSession, parsed: ParsedQuery) -> str:
    """Return the same for tables without an end alone, temporary ones included."""
    return _expand(
        parsed,
        {
            reference.parts: endless_stream(spark, reference.parts)
            for reference in parsed.references
        },
    )


def endless_stream(spark: SparkSession, parts: tuple[str, ...]) -> str | None:
    """Return the query over the stream of a table without an end; None for any other name."""
    found = view_text(spark, parts)
    if found is None or (found[1] and PROPERTY not in found[1]):
        return None
    return stream_query(*found) if is_endless(*found) else None


def view_text(spark: SparkSession, parts: tuple[str, ...]) -> tuple[str, Mapping[str, str]] | None:
    """Return the query and the properties of a view; None for any other name.

    A temporary view has no properties.
    """
    if (temporary := temporary_view(spark, parts)) is not None:
        text = temporary.tableMeta().viewText()
        return (str(text.get()), {}) if text.isDefined() else None
    view = _view(spark, parts)
    return None if view is None else (str(view.viewText().get()), _properties(view))


def _expand(parsed: ParsedQuery, streams: Mapping[tuple[str, ...], str | None]) -> str:
    if not any(streams.values()):
        return parsed.text

    def replacement(reference: Reference) -> str:
        stream = streams.get(reference.parts)
        if stream is None:
            return parsed.text[reference.start : reference.end]
        alias = "" if reference.aliased else f" AS {quote_identifier(reference.parts[-1])}"
        return f"({stream}){alias}"

    return rewrite(parsed, replacement)


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
        name = canonical_name(table_name(at))
    except ServerError:
        return text  # Spark reports it
    view = _connector_view(spark, name)
    return text if view is None else f"{text[:start]}VIEW {text[start + len('VIEW ') :]}"


def sink_text(spark: SparkSession, name: TableName) -> str | None:
    """Return what defines a connector's table that can be written; None for anything else."""
    view = _view(spark, (name.catalog, name.schema, name.table))
    if view is None:
        return None
    text = str(view.viewText().get())
    mark = mark_of(text)
    return None if mark is None or mark.refused else text


def _stream_of(view: Any | None) -> str | None:
    """Return the query over the stream of a connector's table; None without one."""
    return None if view is None else stream_query(str(view.viewText().get()), _properties(view))


def _connector_view(spark: SparkSession, parts: tuple[str, ...]) -> Any | None:
    view = _view(spark, parts)
    return view if view is not None and PROPERTY in _properties(view) else None


def _view(spark: SparkSession, parts: tuple[str, ...]) -> Any | None:
    if len(parts) > 3 or is_temporary_view(spark, parts):
        return None
    place = current_place(spark)
    entry = entry_of(spark, qualify(parts, place.catalog, place.schema))
    return None if entry is None or not entry.viewText().isDefined() else entry


def _properties(entry: Any) -> dict[str, str]:
    pairs = items(entry.properties().toSeq())
    return {str(pair._1()): str(pair._2()) for pair in pairs}
