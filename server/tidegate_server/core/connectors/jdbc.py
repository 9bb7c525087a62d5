"""The connector jdbc: a table in another database, which a connection leads to.

https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/jdbc/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate_server.core.connectors import options
from tidegate_server.core.connectors.columns import ConnectorTable, select
from tidegate_server.core.connectors.options import OptionError
from tidegate_server.core.connectors.sinks import Sink, Unwritable, marked
from tidegate_server.core.model.names import DEFAULT_CATALOG, quote_identifier, quote_pairs
from tidegate_server.core.model.types import TypeKind, parse_type

_CONNECTION = (
    "create a connection, which keeps the password secret, and write 'connection' = 'name': "
    "CREATE CONNECTION name TYPE postgresql OPTIONS (url '...', user '...', "
    "password secret('...'))"
)
_LOOKUP = "a join reads the table, and remembers nothing of it"
_PARTITIONS: Mapping[str, str] = {
    "scan.partition.column": "partitionColumn",
    "scan.partition.num": "numPartitions",
    "scan.partition.lower-bound": "lowerBound",
    "scan.partition.upper-bound": "upperBound",
}
"""Spark's names of the options that divide a table; they belong together."""
_FETCH_SIZE = "scan.fetch-size"
_BATCH_SIZE = "sink.buffer-flush.max-rows"


def _amount(value: str) -> int:
    if not value.strip().isdecimal():
        raise ValueError("a whole number")
    return int(value)


_OPTIONS: Mapping[str, options.Parse] = {
    "connector": options.text,
    "connection": options.text,
    "table-name": options.text,
    **dict.fromkeys(("url", "username", "password", "driver"), options.refused(_CONNECTION)),
    _FETCH_SIZE: _amount,
    "scan.partition.column": options.text,
    "scan.partition.num": options.count,
    "scan.partition.lower-bound": options.whole,
    "scan.partition.upper-bound": options.whole,
    "scan.auto-commit": options.refused("it follows from scan.fetch-size"),
    _BATCH_SIZE: options.count,
    "sink.buffer-flush.interval": options.refused("an INSERT writes its rows at once"),
    "sink.max-retries": options.refused("an INSERT is one transaction, which fails as a whole"),
    "sink.parallelism": options.refused("an INSERT is one transaction"),
    "connection.max-retry-timeout": options.refused("each statement makes a connection of its own"),
    "compatible-mode": options.refused("the URL of the connection says which database it is"),
    "filter.handling.policy": options.refused("the database filters wherever it can"),
    **dict.fromkeys(
        (
            *("lookup.cache", "lookup.max-retries", "lookup.cache.max-rows", "lookup.cache.ttl"),
            *("lookup.partial-cache.expire-after-access", "lookup.partial-cache.max-rows"),
            *("lookup.partial-cache.expire-after-write", "lookup.partial-cache.cache-missing-key"),
        ),
        options.refused(_LOOKUP),
    ),
}
_NOT_WRITTEN = (
    *(TypeKind.ARRAY, TypeKind.MAP, TypeKind.STRUCT, TypeKind.VARIANT, TypeKind.VOID),
    *(TypeKind.INTERVAL, TypeKind.INTERVAL_DAY_TIME, TypeKind.INTERVAL_YEAR_MONTH),
)
"""Types that databases lack, or that each of them has in its own way."""


def jdbc_view(table: ConnectorTable) -> str:
    """Return the query over the columns of a table, marked with how rows are written into it.

    :raises OptionError: for invalid options and columns.
    """
    if table.partition_keys:
        raise OptionError("PARTITIONED BY is for the connector filesystem")
    for each in table.columns:
        if each.metadata is not None:
            raise OptionError(f"the column {each.name} has METADATA, and its rows have none")
    if not table.fields:
        raise OptionError("it has no columns")
    given = _read(table)
    connection, path = _path(given)
    name = ".".join(map(quote_identifier, (connection, *path)))
    values = {
        each.name: f"CAST({quote_identifier(each.name)} AS {each.type})" for each in table.fields
    }
    query = select(table, values, f"{name}{_reading(given)}")
    return marked(query, "jdbc", _sink(table, given, connection, path))


def _read(table: ConnectorTable) -> Mapping[str, Any]:
    for name in table.options:
        if name.startswith("properties."):
            raise OptionError(f"{name} cannot be set: properties are options of the connection")
    given = options.read_options(table.options, _OPTIONS, {}, {}).table
    if "connection" not in given:
        raise OptionError(f"connection is missing: {_CONNECTION}")
    if "table-name" not in given:
        raise OptionError("table-name is missing")
    missing = [name for name in _PARTITIONS if name not in given]
    if missing and len(missing) < len(_PARTITIONS):
        raise OptionError(f"{missing[0]} is missing: scan.partition.* belong together")
    return given


def _path(given: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return the connection, and the name of the table in the database."""
    connection = given["connection"].strip().lower()
    if not connection or connection == DEFAULT_CATALOG:
        raise OptionError(f"connection must be that to another database, not '{connection}'")
    path = tuple(each.strip() for each in given["table-name"].split("."))
    if not all(path) or len(path) > 2:
        wanted = "the name of a table, or schema.table"
        raise OptionError(f"table-name must be {wanted}, not '{given['table-name']}'")
    return connection, path


def _reading(given: Mapping[str, Any]) -> str:
    """Return the clause of a relation with Spark's options for reading it."""
    found = {spark: str(given[name]) for name, spark in _PARTITIONS.items() if name in given}
    if _FETCH_SIZE in given:
        found["fetchsize"] = str(given[_FETCH_SIZE])
    return f" WITH ({quote_pairs(found)})" if found else ""


def _sink(
    table: ConnectorTable, given: Mapping[str, Any], connection: str, path: tuple[str, ...]
) -> Sink | Unwritable:
    for each in table.fields:
        if parse_type(each.type).kind in _NOT_WRITTEN:
            return Unwritable(reason=f"values of the type of its column {each.name} are only read")
    names = {each.name.lower(): each.name for each in table.fields}
    for name in table.primary_key:
        if name.lower() not in names:
            raise OptionError(f"the primary key has the column {name}, which is computed")
    return Sink(
        columns=table.fields,
        expressions=tuple(quote_identifier(each.name) for each in table.fields),
        connection=connection,
        table=path,
        key=tuple(names[name.lower()] for name in table.primary_key),
        batch=given.get(_BATCH_SIZE, 0),
    )
