"""What a server says of itself and of a table, before it is read."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import pymysql
from pymysql.cursors import Cursor

from tidegate_server.engine.binlog.request import Endpoint, Position, ReadRequest
from tidegate_server.engine.binlog.values import READABLE

_SECONDS: Final = 30
_LOCK_SECONDS: Final = 10
_BEGIN: Final = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "log_bin": ("ON", "1"),
    "binlog_format": ("ROW",),
    "binlog_row_image": ("FULL",),
    "binlog_row_metadata": ("FULL",),
}
"""Variables that must have one of these values."""
_OFF: Final = ("binlog_transaction_compression", "log_bin_compress", "binlog_row_value_options")
"""Variables that must be off, where they exist."""
_SYNTAX: Final = 1064


class SourceProblemError(Exception):
    """The table cannot be read; the message is a clause."""

    def __init__(self, reason: str, hint: str = "", *, lost: bool = False) -> None:
        super().__init__(reason)
        self.hint = hint
        self.lost = lost
        """Whether it never can from the position."""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table as it is now."""

    kinds: Mapping[str, str]
    """The types of its columns by their names."""
    unique: tuple[frozenset[str], ...]
    """The columns of each unique key, in lower case."""


def settings(endpoint: Endpoint) -> dict[str, Any]:
    """Return how to connect, in terms of PyMySQL."""
    found: dict[str, Any] = {
        "host": endpoint.host,
        "port": endpoint.port,
        "user": endpoint.user,
        "password": endpoint.password,
        "charset": "utf8mb4",
        "connect_timeout": _SECONDS,
    }
    if endpoint.tls:
        context = ssl.create_default_context()
        if endpoint.tls != "verify":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        found["ssl"] = context
    return found


def check_variables(cursor: Cursor) -> None:
    """Require that the binlog has whole rows with the names of their columns.

    :raises SourceProblemError: if it has not.
    """
    cursor.execute(
        "SHOW GLOBAL VARIABLES WHERE Variable_name LIKE '%bin%log%' OR "
        "Variable_name = 'log_bin' OR Variable_name = 'log_bin_compress'"
    )
    found = {str(name).lower(): str(value).upper() for name, value in cursor.fetchall()}
    for name, values in _NEEDED.items():
        if name not in found:
            hint = "Tidegate reads MySQL 8.0.14 or later, and MariaDB 10.5 or later."
            raise SourceProblemError(f"the server has no variable {name}", hint)
        if found[name] not in values:
            reason = f"{name} is {found[name]} on the server"
            raise SourceProblemError(reason, f"Set {name} = {values[0]} in its configuration.")
    for name in _OFF:
        if found.get(name, "OFF") not in ("OFF", "0", ""):
            raise SourceProblemError(f"{name} is set on the server", f"Switch {name} off.")


def position_now(cursor: Cursor) -> Position:
    """Return where the binlog ends."""
    try:
        cursor.execute("SHOW BINARY LOG STATUS")
    except pymysql.err.ProgrammingError as error:
        if error.args[0] != _SYNTAX:
            raise
        cursor.execute("SHOW MASTER STATUS")
    row = cursor.fetchone()
    if row is None:
        raise SourceProblemError("the server has no binlog", "Set log_bin in its configuration.")
    return Position(str(row[0]), int(row[1]))


def begin_snapshot(connection: Any, request: ReadRequest) -> Position:
    """Begin a transaction that reads the table, and return a position from which it changes.

    A transaction is in the binlog before others see its rows, so the position must be that of the
    snapshot: MariaDB reports it. In MySQL it is taken while the table is locked for writers.

    :raises pymysql.MySQLError: if the table cannot be locked.
    """
    with connection.cursor() as cursor:
        cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_file'")
        if cursor.fetchone() is None:
            return begin_locked(cursor, request.endpoint, request.database, request.table)
        cursor.execute(_BEGIN)
        cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
        found = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
        return Position(found["binlog_snapshot_file"], int(found["binlog_snapshot_position"]))


def begin_locked(cursor: Cursor, endpoint: Endpoint, database: str, table: str) -> Position:
    """Begin the transaction of a cursor while another connection holds a lock against writers."""
    with (
        closing(pymysql.connect(**settings(endpoint))) as other,
        other.cursor() as locking,
    ):
        locking.execute(f"SET SESSION lock_wait_timeout = {_LOCK_SECONDS}")
        locking.execute(f"LOCK TABLES {quoted(database, table)} READ")
        cursor.execute(_BEGIN)
        return position_now(cursor)


def quoted(*parts: str) -> str:
    """Return a name as MySQL quotes it."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


def check_position(cursor: Cursor, start: Position, end: Position) -> None:
    """Require that the binlog still has what happened after a position.

    :raises SourceProblemError: if it was purged or reset.
    """
    cursor.execute("SHOW BINARY LOGS")
    sizes = {str(row[0]): int(row[1]) for row in cursor.fetchall()}
    if start.file not in sizes:
        raise SourceProblemError(f"the server has purged the binlog {start.file}", lost=True)
    if start.offset > sizes[start.file] or start.order > end.order:
        reason = f"the binlog {start.file} has no position {start.offset}: it was reset"
        raise SourceProblemError(reason, lost=True)


def find_table(cursor: Cursor, request: ReadRequest) -> SourceTable:
    """Return the table, after checking that it has the columns and the key that are read.

    :raises SourceProblemError: if it has not.
    """
    place, whole = (request.database, request.table), f"{request.database}.{request.table}"
    cursor.execute(
        "SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS "
        "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
        place,
    )
    kinds = {str(name): str(kind).lower() for name, kind in cursor.fetchall()}
    if not kinds:
        hint = "Or its user may not read it: GRANT SELECT."
        raise SourceProblemError(f"there is no table {whole}", hint)
    cursor.execute(
        "SELECT INDEX_NAME, COLUMN_NAME FROM information_schema.STATISTICS "
        "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0",
        place,
    )
    indexes: dict[str, set[str]] = {}
    for index, column in cursor.fetchall():
        indexes.setdefault(str(index), set()).add(str(column).lower())
    table = SourceTable(kinds, tuple(map(frozenset, indexes.values())))
    _check_columns(table, request, whole)
    return table


def _check_columns(table: SourceTable, request: ReadRequest, whole: str) -> None:
    kinds = {name.lower(): kind for name, kind in table.kinds.items()}
    for each in request.columns:
        kind = kinds.get(each.name.lower())
        if kind is None:
            raise SourceProblemError(missing(each.name, whole))
        if kind not in READABLE:
            reason = f"the column {each.name} of {whole} has the type {kind}, which is not read"
            raise SourceProblemError(reason, "Leave it out of the table's columns.")
    key = {name.lower() for name in request.key}
    if not any(each <= key for each in table.unique):
        named = ", ".join(request.key)
        hint = "Declare its primary key, or that of another unique index."
        raise SourceProblemError(f"no unique key of {whole} is within ({named})", hint)


def missing(column: str, table: str) -> str:
    """Return why rows cannot be read that lack a declared column, as a clause."""
    return f"the table {table} has no column {column} any more"


def columns_sql(request: ReadRequest, table: SourceTable) -> Sequence[str]:
    """Return expressions for the columns, whose values PyMySQL reads without loss."""
    kinds = {name.lower(): kind for name, kind in table.kinds.items()}
    found = []
    for each in request.columns:
        name = quoted(each.name)
        # As a text, a number of single precision has six digits, and bits are bytes.
        zero = {"float": " + 0e0", "bit": " + 0"}.get(kinds[each.name.lower()], "")
        found.append(name if each.binary else f"{name}{zero}")
    return found
