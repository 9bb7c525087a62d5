"""The connector mysql-cdc: a table of MySQL or MariaDB, with its changes.

https://nightlies.apache.org/flink/flink-cdc-docs-stable/docs/connectors/flink-sources/mysql-cdc/
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate_server.core.connectors import options
from tidegate_server.core.connectors.changes import DELETED, SEQUENCE, key_mark, require_key
from tidegate_server.core.connectors.columns import ConnectorTable, listed
from tidegate_server.core.connectors.options import OptionError
from tidegate_server.core.connectors.readers import call_of
from tidegate_server.core.connectors.sinks import Unwritable, marked
from tidegate_server.core.model.names import DEFAULT_CATALOG, quote_identifier

FUNCTION = "read_mysql"
"""What follows STREAM in the query of a materialized table over such a table."""
_CONNECTION = (
    "create a connection, which keeps the password secret, and write 'connection' = 'name': "
    "CREATE CONNECTION name TYPE mysql OPTIONS (url 'jdbc:mysql://...', user '...', "
    "password secret('...'))"
)
_ONE_QUERY = "the first refresh reads the table by one query"
_SERVERS = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")
_MOST = 2**32 - 1


def _servers(value: str) -> tuple[int, int]:
    """Return the first and the last number of a range."""
    found = _SERVERS.fullmatch(value)
    if found is None:
        raise ValueError("a number, or two as in '5400-5408'")
    first, last = int(found[1]), int(found[2] or found[1])
    if not 0 < first <= last <= _MOST:
        raise ValueError(f"numbers from 1 to {_MOST}, the smaller one first")
    return first, last


_OPTIONS: Mapping[str, options.Parse] = {
    "connector": options.text,
    "connection": options.text,
    "database-name": options.text,
    "table-name": options.text,
    "server-id": _servers,
    "scan.startup.mode": options.one_of("initial", "latest-offset"),
    **dict.fromkeys(("hostname", "port", "username", "password"), options.refused(_CONNECTION)),
    "server-time-zone": options.refused(
        "a TIMESTAMP of MySQL is a moment, and a DATETIME a time without a zone"
    ),
    **dict.fromkeys(
        (
            *("scan.incremental.snapshot.enabled", "scan.incremental.snapshot.chunk.size"),
            *("scan.incremental.snapshot.chunk.key-column", "scan.snapshot.fetch.size"),
            *(
                "scan.incremental.snapshot.backfill.skip",
                "scan.incremental.close-idle-reader.enabled",
            ),
            *("chunk-key.even-distribution.factor.upper-bound", "chunk-meta.group.size"),
            "chunk-key.even-distribution.factor.lower-bound",
        ),
        options.refused(_ONE_QUERY),
    ),
    **dict.fromkeys(
        (
            *("scan.startup.specific-offset.file", "scan.startup.specific-offset.pos"),
            *("scan.startup.specific-offset.gtid-set", "scan.startup.timestamp-millis"),
            *("scan.startup.specific-offset.skip-events", "scan.startup.specific-offset.skip-rows"),
        ),
        options.refused("it begins with all rows of the table, or with none"),
    ),
    **dict.fromkeys(
        ("connect.timeout", "connect.max-retries", "connection.pool.size", "heartbeat.interval"),
        options.refused("each refresh makes a connection of its own"),
    ),
    "scan.newly-added-table.enabled": options.refused("it is one table"),
    "scan.read-changelog-as-append-only.enabled": options.refused("changes are applied by the key"),
    "use.legacy.json.format": options.refused("JSON is as the server writes it"),
}


def mysql_view(table: ConnectorTable) -> str:
    """Return the query of the rows that a table has now, marked with how its changes are read.

    :raises OptionError: for invalid options and columns.
    """
    if table.partition_keys:
        raise OptionError("PARTITIONED BY is for the connector filesystem")
    for each in table.columns:
        if each.metadata is not None:
            raise OptionError(f"the column {each.name} has METADATA, and its rows have none")
    require_key(table)
    given = _read(table)
    connection, database = given["connection"].strip().lower(), given["database-name"].strip()
    if not connection or connection == DEFAULT_CATALOG:
        raise OptionError(f"connection must be that to a server of MySQL, not '{connection}'")
    by_name = {each.name.lower(): each.name for each in table.fields}
    if missing := [name for name in table.primary_key if name.lower() not in by_name]:
        raise OptionError(f"the primary key has the column {missing[0]}, which is computed")
    key = tuple(by_name[name.lower()] for name in table.primary_key)
    source = {
        "connection": connection,
        "database": database,
        "table": given["table-name"].strip(),
        "columns": json.dumps([[each.name, each.type] for each in table.fields]),
        "key": json.dumps(key),
    }
    if given.get("scan.startup.mode") == "latest-offset":
        source["startup"] = "latest"
    if "server-id" in given:
        source["servers"] = "{}-{}".format(*given["server-id"])
    names = [quote_identifier(each.name) for each in table.fields]
    values = (
        f"CAST({name} AS {each.type}) AS {name}"
        for name, each in zip(names, table.fields, strict=True)
    )
    place = ".".join(map(quote_identifier, (connection, source["database"], source["table"])))
    columns = ", ".join((*names, DELETED, SEQUENCE))
    return marked(
        f"SELECT {listed(table)} {key_mark(key)}FROM (SELECT {', '.join(values)} FROM {place})",
        "mysql-cdc",
        Unwritable(reason="its rows are those of the server: change them there"),
        stream=f"SELECT {columns} FROM STREAM {call_of(FUNCTION, source)}",
    )


def _read(table: ConnectorTable) -> Mapping[str, Any]:
    for name in table.options:
        if name.startswith(("debezium.", "jdbc.properties.")):
            raise OptionError(f"{name} cannot be set: the table is read without Debezium and JDBC")
    given = options.read_options(table.options, _OPTIONS, {}, {}).table
    if "connection" not in given:
        raise OptionError(f"connection is missing: {_CONNECTION}")
    for name in ("database-name", "table-name"):
        if not given.get(name, "").strip():
            raise OptionError(f"{name} is missing")
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class MySqlSource:
    """What the parameters of a call say."""

    connection: str
    database: str
    table: str
    columns: tuple[tuple[str, str], ...]
    """Names and types."""
    key: tuple[str, ...]
    initial: bool
    """Whether a materialized table begins with the rows of the table."""
    servers: tuple[int, int] | None
    """The numbers by which a reader may identify itself; None for any."""


def source_of(parameters: Mapping[str, str]) -> MySqlSource:
    """Return what the parameters of a call say; raises ValueError if they are not the server's."""
    columns, key = json.loads(parameters["columns"]), json.loads(parameters["key"])
    if not all(isinstance(each, list) for each in (columns, key, *columns)):
        raise ValueError("columns and key are lists")
    return MySqlSource(
        connection=parameters["connection"],
        database=parameters["database"],
        table=parameters["table"],
        columns=tuple((str(name), str(kind)) for name, kind in columns),
        key=tuple(map(str, key)),
        initial=parameters.get("startup") != "latest",
        servers=_servers(parameters["servers"]) if "servers" in parameters else None,
    )


def events_query(text: str, stream: str) -> str | None:
    """Return the query of all events of a table, from that of its rows; None for another query.

    :param stream: the query that reads the events, which the mark of the view has.
    """
    mark = text.find(" /* changes by ")
    head = text.find(" */ FROM ", mark)
    if mark < 0 or head < 0:
        return None
    return f"{text[: head + len(' */ ')]}FROM ({stream})"
