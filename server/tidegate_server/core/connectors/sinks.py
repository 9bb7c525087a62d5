"""How rows are written into the tables of connectors: expressions for Spark's writers.

https://nightlies.apache.org/flink/flink-docs-stable/docs/dev/table/sql/insert/
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate_server.core.connectors.avro import avro_schema, stored_type
from tidegate_server.core.connectors.columns import ConnectorColumn
from tidegate_server.core.connectors.formats import REGISTRY_FORMAT, Format, map_sql, schema_of
from tidegate_server.core.connectors.options import OptionError
from tidegate_server.core.model.names import quote_identifier, quote_literal
from tidegate_server.core.model.types import TypeKind, parse_type

_MARK = re.compile(r"SELECT /\* connector=([a-z-]+) (?:(\{.*?\}) )?\*/ ", re.DOTALL)
"""Begins the query of a view; ``ConnectorSinks.java`` reads the same."""
_WRITERS: Mapping[str, str] = {"upsert-kafka": "kafka"}
"""The connectors that write, of those that have another name."""
_GLOB = re.compile(r"[\[{*?\\]")
_TIMES = (TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_NTZ)
_LOCAL = "TIMESTAMP_LTZ"
_LINES = ("US-ASCII", "ISO-8859-1", "UTF-8")
"""Charsets in which the end of a line is one byte."""


WRITABLE = ("headers", "timestamp")
"""The metadata of records that an INSERT writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """How the rows of an INSERT become files or records."""

    columns: tuple[ConnectorColumn, ...]
    """Those of a row that is inserted."""
    expressions: tuple[str, ...]
    """SQL for the columns of the file or record, from those columns."""
    format: str = ""
    """Spark's name of the format of files."""
    path: str = ""
    partitions: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    """Those of Spark's writer."""
    connection: str = ""
    """The connection to the database with the table."""
    table: tuple[str, ...] = ()
    """The name of the table there."""
    key: tuple[str, ...] = ()
    """The columns by which rows replace others; none if they are added."""
    batch: int = 0
    """Rows that one round trip to the database inserts; 0 for what the connection says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwritable:
    """A table whose rows can only be read."""

    reason: str
    """A clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a view says of the table of a connector that it is."""

    connector: str
    path: str = ""
    """The directory that an INSERT writes to, if any."""
    refused: str = ""
    """Why it cannot be written; a clause."""
    columns: str = ""
    """The columns of a row that is inserted, as Spark's DDL."""
    key: tuple[str, ...] = ()
    """The columns by which rows that are inserted replace others; none if they are added."""
    stream: str = ""
    """The query of the events that the table's changes are, if it is another one."""


def marked(query: str, connector: str, sink: Sink | Unwritable, *, stream: str = "") -> str:
    """Return the query of a view with a comment that says how rows are written.

    :param stream: the query of the events that the table's changes are, if it is another one.
    """
    writer = _WRITERS.get(connector, connector)
    if isinstance(sink, Unwritable):
        said: dict[str, Any] = {"connector": writer, "refused": sink.reason}
        if stream:
            said["stream"] = stream
    else:
        said = {
            "connector": writer,
            "columns": _ddl(sink.columns),
            "expressions": sink.expressions,
            "format": sink.format,
            "path": sink.path,
            "partitions": sink.partitions,
            "options": dict(sink.options),
            "connection": sink.connection,
            "table": sink.table,
            "key": sink.key,
            "batch": sink.batch,
        }
        said = {key: value for key, value in said.items() if value}
    text = json.dumps(said)
    # It must not end the comment, begin another one, or be a variable of Spark.
    text = text.replace("*", "\\u002a").replace("$", "\\u0024")
    return f"SELECT /* connector={connector} {text} */ {query.removeprefix('SELECT ')}"


def mark_of(query: str) -> Mark | None:
    """Return what the query of a view says; None if it is no table of a connector."""
    found = _MARK.match(query)
    if found is None:
        return None
    try:
        said = json.loads(found[2] or "{}")
    except ValueError:
        said = {"path": None}
    path, refused, key = said.get("path", ""), said.get("refused", ""), said.get("key", [])
    if not isinstance(path, str) or not isinstance(refused, str) or not isinstance(key, list):
        path, refused, key = "", "the comment in its view is not the server's", []
    elif "columns" not in said and not refused:
        refused = "it was created by an earlier version: create it again"
    return Mark(
        connector=found[1],
        path=path,
        refused=refused,
        columns=str(said.get("columns", "")),
        key=tuple(map(str, key)),
        stream=str(said.get("stream", "")),
    )


def upserts(query: str) -> bool:
    """Return whether a row that is inserted into a view replaces the one with the same key."""
    mark = mark_of(query)
    return mark is not None and bool(mark.key)


def _ddl(columns: tuple[ConnectorColumn, ...]) -> str:
    return ", ".join(
        schema_of((each,)) + ("" if each.nullable else " NOT NULL") for each in columns
    )


# ---- files -------------------------------------------------------------------------------------


def files_sink(
    fields: tuple[ConnectorColumn, ...], partitions: tuple[str, ...], format: Format, path: str
) -> Sink | Unwritable:
    """Return how files are written.

    :param partitions: the columns that are in the names of directories, of ``fields``.
    """
    if _GLOB.search(path):
        return Unwritable(reason="its path is a pattern")
    folded = {each.lower() for each in partitions}
    names = {each.name.lower(): each.name for each in fields}
    rows = tuple(each for each in fields if each.name.lower() not in folded)
    if not rows:
        return Unwritable(reason="all of its columns are in the names of directories")
    values = {each.name: _field_sql(each, format) for each in rows}
    options = format.writer_options()
    if format.name == "raw":
        values = {"value": f"CAST({_raw_sql(rows[0], format)} AS STRING)"}
    elif format.name == "avro":
        values = {each.name: format.avro_files.written_sql(each) for each in rows}
        options["avroSchema"] = avro_schema(rows, moments=format.avro_files.legacy)
    keys = tuple(names[each.lower()] for each in partitions)
    values |= {each: quote_identifier(each) for each in keys}
    return Sink(
        columns=fields,
        expressions=tuple(f"{sql} AS {quote_identifier(name)}" for name, sql in values.items()),
        format=format.spark_name,
        path=path,
        partitions=keys,
        options=options,
    )


def _field_sql(column: ConnectorColumn, format: Format) -> str:
    """Return SQL for a value in JSON or CSV, where Flink writes times without a zone."""
    name = quote_identifier(column.name)
    if format.name not in ("json", "csv") or parse_type(column.type).kind not in _TIMES:
        return name
    if column.type.upper() == _LOCAL:
        return name  # written in UTC by the writer's options
    text = f"CAST({name} AS STRING)"
    return f"replace({text}, ' ', 'T')" if format.iso else text


def _raw_sql(column: ConnectorColumn, format: Format) -> str:
    """Return SQL for the bytes of a value in the format raw."""
    name, charset = quote_identifier(column.name), format.given.get("charset", "UTF-8")
    if parse_type(column.type).kind is TypeKind.BINARY:
        return name
    return f"encode({name}, {quote_literal(charset)})"


def line_sql(format: Format) -> str:
    """Return SQL for a line that is read in the format raw, from Spark's column ``value``.

    :raises OptionError: if the end of a line is more than one byte in the charset.
    """
    charset = format.given.get("charset")
    if charset is None:
        return "value"
    if charset.upper() not in _LINES:
        raise OptionError(f"raw.charset of files is one of {', '.join(_LINES)}, not {charset}")
    return f"decode(CAST(value AS BINARY), {quote_literal(charset)})"


# ---- records -----------------------------------------------------------------------------------


def encoded(format: Format, columns: list[ConnectorColumn], *, prefix: str = "") -> str:
    """Return SQL for the key or value of a record.

    :param prefix: what the names of the columns have before those of the fields.
    """
    if format.name == "raw":
        return _raw_sql(columns[0], format)
    if format.name in ("avro", REGISTRY_FORMAT):
        named = [replace(each, name=each.name.removeprefix(prefix)) for each in columns]
        values = ", ".join(
            f"{quote_literal(field.name)}, CAST({quote_identifier(each.name)} AS "
            f"{stored_type(each.type)})"
            for field, each in zip(named, columns, strict=True)
        )
        return f"to_avro(named_struct({values}), {quote_literal(avro_schema(named))})"
    fields = ", ".join(
        f"{quote_literal(each.name.removeprefix(prefix))}, {_field_sql(each, format)}"
        for each in columns
    )
    return f"to_{format.name}(named_struct({fields}), {map_sql(format.writer_options())})"


def kafka_sink(
    columns: tuple[ConnectorColumn, ...],
    key: str | None,
    value: str,
    metadata: Mapping[str, str],
    options: Mapping[str, str],
    *,
    upserts: tuple[str, ...] = (),
) -> Sink:
    """Return how records are written.

    :param key: SQL for the key of a record; None without one.
    :param metadata: columns by the keys of :data:`WRITABLE`.
    :param upserts: the columns of the key if a record replaces others with the same key.
    """
    expressions = [f"{value} AS value"]
    if key is not None:
        expressions.append(f"{key} AS key")
    if "timestamp" in metadata:
        name = quote_identifier(metadata["timestamp"])
        expressions.append(f"unix_millis(CAST({name} AS TIMESTAMP)) AS timestamp")
    if "headers" in metadata:
        name = quote_identifier(metadata["headers"])
        pair = "named_struct('key', CAST(e.key AS STRING), 'value', CAST(e.value AS BINARY))"
        expressions.append(f"transform(map_entries({name}), e -> {pair}) AS headers")
    return Sink(columns=columns, expressions=tuple(expressions), options=options, key=upserts)
