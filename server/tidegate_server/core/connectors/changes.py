"""Tables of changes by key: formats whose records are inserts, updates and deletes of rows.

https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/formats/debezium/
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate_server.core.connectors import options, registry
from tidegate_server.core.connectors.columns import ConnectorColumn, ConnectorTable, listed
from tidegate_server.core.connectors.formats import json_options, map_sql, schema_of, stored_schema
from tidegate_server.core.connectors.options import OptionError
from tidegate_server.core.model.names import quote_identifier, quote_literal

DELETED = "__deleted"
SEQUENCE = "__sequence"
"""Columns of the events of a table: whether the row was deleted, and what orders the events."""
EXPLODED = "explode( "
"""Begins the call that makes rows of the array in a record; users write it differently."""
_EVENTS, _END = "/* events */ ", " /* end */"
_MARK = re.compile(r"/\* changes by (?P<key>.+?) \*/ ")
_PART = re.compile(r"`((?:[^`]|``)+)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFormat:
    """A format of changes; ``{row}`` in its texts is the type of a row."""

    schema: str
    operation: str
    """SQL for the kind of change in the parsed ``_value``."""
    rows: str
    """SQL for the row that is there, or was, after the change."""
    deletes: tuple[str, ...]
    others: tuple[str, ...]
    """The kinds of changes after which the row is there."""
    several: bool = False
    """Whether ``rows`` is an array."""
    texts: bool = False
    """Whether all values of rows are texts, also numbers."""
    registry: bool = False
    """Whether its values are those of Avro, with schemas in a registry, instead of JSON."""
    options: Mapping[str, options.Parse] = field(default_factory=dict)


_COMMON: Mapping[str, options.Parse] = {
    "ignore-parse-errors": options.flag,
    "timestamp-format.standard": options.one_of("SQL", "ISO-8601"),
}
FORMATS: Mapping[str, ChangeFormat] = {
    "debezium-json": ChangeFormat(
        schema="before {row}, after {row}, op STRING",
        operation="_value.op",
        rows="if(_value.op = 'd', _value.before, _value.after)",
        deletes=("d",),
        others=("c", "r", "u"),
        options={"schema-include": options.flag},
    ),
    "debezium-avro-confluent": ChangeFormat(
        schema="before {row}, after {row}, op STRING",
        operation="_value.op",
        rows="if(_value.op = 'd', _value.before, _value.after)",
        deletes=("d",),
        others=("c", "r", "u"),
        registry=True,
        options=registry.OPTIONS,
    ),
    "canal-json": ChangeFormat(
        schema="data ARRAY<{row}>, type STRING, database STRING, `table` STRING",
        operation="_value.type",
        rows="_value.data",
        deletes=("DELETE",),
        others=("INSERT", "UPDATE"),
        several=True,
        texts=True,
        options={"database.include": options.text, "table.include": options.text},
    ),
    "maxwell-json": ChangeFormat(
        schema="data {row}, type STRING",
        operation="_value.type",
        rows="_value.data",
        deletes=("delete",),
        others=("insert", "update", "bootstrap-insert"),
    ),
    "ogg-json": ChangeFormat(
        schema="before {row}, after {row}, op_type STRING",
        operation="_value.op_type",
        rows="if(_value.op_type = 'D', _value.before, _value.after)",
        deletes=("D",),
        others=("I", "U"),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The events in a relation of records."""

    relation: str
    """The relation, with a column ``_row`` for each row."""
    deleted: str
    """SQL for whether the row was deleted."""


def format_options(name: str, given: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """Return the values of a format's options, without its name before them.

    :param given: the options of the table; those of the format begin with ``prefix`` and its name.
    :raises OptionError: if one of them is invalid.
    """
    start, format = f"{prefix}{name}.", FORMATS[name]
    own = {key: text for key, text in given.items() if key.startswith(start)}
    all_of_them = {**({} if format.registry else _COMMON), **format.options}
    known = {f"{start}{key}": parse for key, parse in all_of_them.items()}
    return {
        key.removeprefix(start): value
        for key, value in options.read_options(own, known, {}, {}).table.items()
    }


def change_schema(name: str, columns: Sequence[ConnectorColumn]) -> str:
    """Return the fields of a record in a format, as Spark's DDL."""
    format = FORMATS[name]
    if format.texts:
        columns = [replace(each, type="STRING") for each in columns]
    fields = stored_schema(columns) if format.registry else schema_of(columns)
    return format.schema.replace("{row}", f"STRUCT<{fields}>")


def change_events(
    name: str,
    given: Mapping[str, str],
    prefix: str,
    columns: Sequence[ConnectorColumn],
    records: str,
) -> Events:
    """Return the events in records with a column ``value``.

    :param name: the format.
    :param given: the options of the table; those of the format begin with ``prefix`` and its name.
    :raises OptionError: if one of them is invalid.
    """
    format, values = FORMATS[name], format_options(name, given, prefix)
    schema = change_schema(name, columns)
    place = "_value"
    if values.get("schema-include"):
        schema, place = f"payload STRUCT<{schema}>", "_value.payload"
    lenient = bool(values.get("ignore-parse-errors"))
    parsed = registry.fields_column("value")
    if not format.registry:
        parsed = _parse(schema, values, lenient=lenient)
    operation = format.operation.replace("_value", place)
    rows = format.rows.replace("_value", place)
    kinds = _literals((*format.deletes, *format.others))
    conditions = ["value IS NOT NULL", *_filters(values, place)]
    if lenient:
        conditions.append(f"{operation} IN ({kinds})")
    inner = f"(SELECT *, {parsed} AS _value FROM {records})"
    chosen = f"{EXPLODED}{rows})" if format.several else rows
    relation = (
        f"(SELECT *, {operation} AS _operation, {chosen} AS _row FROM {inner} "
        f"WHERE {' AND '.join(conditions)})"
    )
    deleted = (
        f"CASE WHEN _operation IN ({_literals(format.deletes)}) THEN true "
        f"WHEN _operation IN ({_literals(format.others)}) THEN false "
        f"ELSE CAST(raise_error(concat({quote_literal(f'{name}: not a change: ')}, "
        "coalesce(_operation, 'NULL'))) AS BOOLEAN) END"
    )
    return Events(relation=relation, deleted=deleted)


def require_key(table: ConnectorTable) -> None:
    """Require that a table has a primary key.

    :raises OptionError: if it has none.
    """
    if not table.primary_key:
        raise OptionError("a table of changes needs PRIMARY KEY (column, ...) NOT ENFORCED")


def changes_query(
    table: ConnectorTable, values: Mapping[str, str], relation: str, *, deleted: str, sequence: str
) -> str:
    """Return the query of the newest row of each key.

    :param values: SQL for each column but the computed ones, which may use them.
    :param deleted: SQL for whether an event deletes the row of its key.
    :param sequence: SQL for what orders the events of a key.
    :raises OptionError: if the table has no primary key, or it has columns that are not read.
    """
    require_key(table)
    names = {name.lower(): name for name in values}
    if missing := [name for name in table.primary_key if name.lower() not in names]:
        raise OptionError(f"the primary key has the column {missing[0]}, which is computed")
    inner = ", ".join(f"{value} AS {quote_identifier(name)}" for name, value in values.items())
    events = f"SELECT {inner}, {deleted} AS {DELETED}, {sequence} AS {SEQUENCE} FROM {relation}"
    columns = [names[name.lower()] for name in table.primary_key]
    key = ", ".join(map(quote_identifier, columns))
    return (
        f"SELECT {listed(table)} {key_mark(columns)}FROM (SELECT _last.* FROM (SELECT "
        f"max_by(struct(*), {SEQUENCE}) AS _last FROM ({_EVENTS}{events}{_END}) GROUP BY {key})) "
        f"WHERE NOT {DELETED}"
    )


def key_mark(key: Sequence[str]) -> str:
    """Return the comment with the key by which the events of a table are applied."""
    return f"/* changes by {', '.join(map(quote_identifier, key))} */ "


def events_query(text: str) -> str:
    """Return the query of all events of a table instead of its newest rows; others as they are."""
    mark = _MARK.search(text)
    start, end = text.find(_EVENTS), text.rfind(_END)
    if mark is None or start < mark.end() or end < start:
        return text
    return f"{text[: mark.end()]}FROM ({text[start + len(_EVENTS) : end]})"


def change_key(text: str) -> tuple[str, ...]:
    """Return the key of the table whose events a query reads; empty for other queries."""
    mark = _MARK.search(text)
    if mark is None or DELETED not in text:
        return ()
    return tuple(part.replace("``", "`") for part in _PART.findall(mark["key"]))


def show_events(text: str) -> str:
    """Return a query whose table of events also has the columns DELETED and SEQUENCE."""
    return _MARK.sub(f", {DELETED}, {SEQUENCE} ", text, count=1)


def _parse(schema: str, values: Mapping[str, Any], *, lenient: bool) -> str:
    given = {"mode": "PERMISSIVE" if lenient else "FAILFAST"}
    given |= json_options(values)
    return f"from_json(CAST(value AS STRING), {quote_literal(schema)}, {map_sql(given)})"


def _filters(values: Mapping[str, Any], place: str) -> list[str]:
    found = []
    for option, column in (("database.include", "database"), ("table.include", "`table`")):
        if option in values:
            pattern = quote_literal(f"^(?:{values[option]})$")
            found.append(f"{place}.{column} RLIKE {pattern}")
    return found


def _literals(values: Sequence[str]) -> str:
    return ", ".join(map(quote_literal, values))
