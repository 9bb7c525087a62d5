"""Translates errors of the database into errors of the store."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from tidegate_server.core.errors import Code, ServerError, error

_SQLITE = {
    "SQLITE_BUSY": (Code.STORE_BUSY, "another program holds its lock"),
    "SQLITE_LOCKED": (Code.STORE_BUSY, "another program holds its lock"),
    "SQLITE_FULL": (Code.STORE_FULL, "its disk is full"),
    "SQLITE_CORRUPT": (Code.STORE_DAMAGED, "its file is not consistent"),
    "SQLITE_NOTADB": (Code.STORE_DAMAGED, "its file is not a database"),
    "SQLITE_CANTOPEN": (Code.STORE_UNAVAILABLE, "its file cannot be opened"),
    "SQLITE_READONLY": (Code.STORE_UNAVAILABLE, "its file cannot be written"),
    "SQLITE_PERM": (Code.STORE_UNAVAILABLE, "access to its file is denied"),
    "SQLITE_IOERR": (Code.STORE_UNAVAILABLE, "its file cannot be read or written"),
    "SQLITE_PROTOCOL": (Code.STORE_UNAVAILABLE, "its file system does not support locks"),
}
"""By SQLite's primary result codes."""

_POSTGRESQL = {
    "40001": (Code.STORE_BUSY, "another transaction changes the same rows"),
    "40P01": (Code.STORE_BUSY, "another transaction changes the same rows"),
    "55P03": (Code.STORE_BUSY, "another transaction holds a lock"),
    "53100": (Code.STORE_FULL, "the disk of the database server is full"),
    "53300": (Code.STORE_UNAVAILABLE, "the database server has no connection left"),
    "53": (Code.STORE_UNAVAILABLE, "the database server is out of resources"),
    "25006": (Code.STORE_UNAVAILABLE, "the database server is read-only"),
    "08": (Code.STORE_UNAVAILABLE, "the connection to the database server was lost"),
    "57P": (Code.STORE_UNAVAILABLE, "the database server is stopping or starting"),
    "58": (Code.STORE_UNAVAILABLE, "the database server cannot read or write its files"),
    "42501": (Code.STORE_UNAVAILABLE, "the database server denies access to its tables"),
    "42P01": (Code.STORE_DAMAGED, "its tables are missing"),
    "XX001": (Code.STORE_DAMAGED, "its data is corrupted"),
    "XX002": (Code.STORE_DAMAGED, "an index is corrupted"),
}
"""By SQLSTATE or its prefix; the longest match counts."""


def store_error(problem: SQLAlchemyError) -> ServerError | None:
    """Return the store's error for an error of SQLAlchemy; None for a mistake of the caller.

    The text names neither hosts nor files, since clients see it; ``problem`` contains them.
    """
    if isinstance(problem, PoolTimeoutError):
        return error(Code.STORE_BUSY, reason="all connections to it are in use")
    if not isinstance(problem, DBAPIError):
        return None
    cause = problem.orig
    found = (
        _sqlite_failure(cause) if isinstance(cause, sqlite3.Error) else _postgresql_failure(problem)
    )
    return None if found is None else error(found[0], reason=found[1])


def _sqlite_failure(cause: sqlite3.Error) -> tuple[Code, str] | None:
    # Missing from errors that the Python module raises itself.
    name = str(getattr(cause, "sqlite_errorname", ""))
    primary = "_".join(name.split("_")[:2])
    if primary == "SQLITE_ERROR" and "no such table" in str(cause):
        return Code.STORE_DAMAGED, "its tables are missing"
    return _SQLITE.get(primary)


def _postgresql_failure(problem: DBAPIError) -> tuple[Code, str] | None:
    state = getattr(problem.orig, "sqlstate", None)
    if state:
        known = (key for key in _POSTGRESQL if str(state).startswith(key))
        longest = max(known, key=len, default=None)
        return None if longest is None else _POSTGRESQL[longest]
    # libpq reports no SQLSTATE for errors before a session is open.
    if "FATAL:" in str(problem.orig):
        return Code.STORE_UNAVAILABLE, "the database server rejects the connection"
    named = type(problem.orig).__name__
    if problem.connection_invalidated or named in ("OperationalError", "ConnectionTimeout"):
        return Code.STORE_UNAVAILABLE, "the database server does not answer"
    return None
