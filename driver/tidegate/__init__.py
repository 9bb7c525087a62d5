"""PEP 249 driver for Tidegate and other HiveServer2 servers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from ssl import SSLContext
from typing import Any, Final

from tidegate._version import __version__
from tidegate.connection import Connection
from tidegate.cursor import Cursor
from tidegate.dsn import ConnectOptions, is_url, parse_url
from tidegate.errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)
from tidegate.network.channel import TransportFactory
from tidegate.operation import OperationState, OperationStatus
from tidegate.rows import Row as _Row
from tidegate.rows import RowFactory, dict_row, namedtuple_row, tuple_row
from tidegate.types import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
    TypeObject,
)

__all__ = [
    "__version__",
    "apilevel",
    "BINARY",
    "Binary",
    "connect",
    "Connection",
    "Cursor",
    "DatabaseError",
    "DataError",
    "Date",
    "DateFromTicks",
    "DATETIME",
    "dict_row",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "namedtuple_row",
    "NotSupportedError",
    "NUMBER",
    "OperationalError",
    "OperationState",
    "OperationStatus",
    "paramstyle",
    "ProgrammingError",
    "RowFactory",
    "ROWID",
    "STRING",
    "threadsafety",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "tuple_row",
    "TypeObject",
    "Warning",
]

apilevel: Final = "2.0"
threadsafety: Final = 2
"""Threads may share the module and connections."""
paramstyle: Final = "pyformat"
"""``%(name)s``; ``%s`` and ``?`` are understood as well."""


def connect(
    host: str | None = None,
    port: int | None = None,
    user: str | None = None,
    password: str | None = None,
    auth: str | None = None,
    schema: str | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    socket: str | None = None,
    connect_timeout: float | None = None,
    timeout: float | None = None,
    query_timeout: int | None = None,
    retries: int | None = None,
    retry_timeout: float | None = None,
    fetch_size: int | None = None,
    ssl: bool | SSLContext | None = None,
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    verify: bool | None = None,
    http_path: str | None = None,
    token: str | None = None,
    principal: str | None = None,
    transport: str | TransportFactory | None = None,
    # Without the argument, the type is its default; mypy cannot express that.
    row_factory: RowFactory[_Row] = tuple_row,  # type: ignore[assignment]
) -> Connection[_Row]:
    """Open a session on a HiveServer2.

    :param host: name or address; several, each perhaps with ``:port``, are separated by commas and
        tried in this order; or a URL, ``tidegate://…`` or ``jdbc:hive2://…``, whose parts the other
        arguments override. Without host, port and socket the URL in the environment variable
        ``TIDEGATE_URL`` is used, or else ``localhost``.
    :param port: 10000 if left out.
    :param user: the user of the operating system if left out.
    :param auth: ``NONE`` (SASL without authentication, the default), ``PASSWORD``, ``LDAP`` or
        ``CUSTOM`` (SASL PLAIN with the password), ``NOSASL``, ``TOKEN`` (a delegation token),
        or ``KERBEROS``.
    :param schema: the current schema, ``default`` if left out.
    :param settings: settings of the session, as SET would make them; a key beginning with
        ``hivevar:`` is a variable.
    :param socket: path of the Unix socket on which the server listens, instead of host and port.
    :param connect_timeout: seconds in which the session must open, 60 if left out; of several
        hosts each has as many.
    :param timeout: seconds that one reply may take, unlimited if left out. A statement that runs
        long takes many replies, and the server may hold each of them for 5 seconds.
    :param query_timeout: seconds that a statement may run on the server.
    :param retries: attempts to resume the session after the connection was lost during a call, 6 if
        left out; 0 for none.
    :param retry_timeout: seconds that they may take, 30 if left out.
    :param fetch_size: rows per fetch; by default the number that the server suggests, and 50,000
        where a whole Arrow table is fetched.
    :param ssl: whether to encrypt the connection, or the context to do it with.
    :param ca: file of the certificates to trust; the system's if left out.
    :param cert: file of the client certificate, with its key in it or in ``key``.
    :param verify: whether to check the server's certificate, which is the default.
    :param transport: ``binary`` (the default) or ``http``; or a factory of the Thrift transport to
        use.
    :param http_path: path at which the server accepts HTTP calls, ``cliservice`` if left out.
    :param token: bearer token to log in with over HTTP, or delegation token for ``TOKEN``.
    :param principal: the server's Kerberos principal, ``hive/_HOST`` if left out.
    :param row_factory: ``tuple_row``, ``dict_row``, ``namedtuple_row`` or a custom one.
    :raises OperationalError: if the server cannot be reached, refuses or has no such schema.
    :raises InterfaceError: if the URL is malformed.
    """
    if host is None and port is None and socket is None:
        host = os.environ.get("TIDEGATE_URL") or None
    options = parse_url(host) if host is not None and is_url(host) else ConnectOptions()
    given: dict[str, Any] = {
        "host": None if host is None or is_url(host) else host,
        "port": port,
        "socket": socket,
        "user": user,
        "password": password,
        "auth": auth,
        "schema": schema,
        "settings": None if settings is None else {**options.settings, **settings},
        "connect_timeout": connect_timeout,
        "timeout": timeout,
        "query_timeout": query_timeout,
        "retries": retries,
        "retry_timeout": retry_timeout,
        "fetch_size": fetch_size,
        "ssl": ssl,
        "ca": ca,
        "cert": cert,
        "key": key,
        "verify": verify,
        "http_path": http_path,
        "token": token,
        "principal": principal,
        "transport": transport if isinstance(transport, str) else None,
    }
    known = {name: value for name, value in given.items() if value is not None}
    factory = None if isinstance(transport, str) else transport
    return Connection(replace(options, **known), transport=factory, row_factory=row_factory)
