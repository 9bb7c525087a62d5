"""The SQLAlchemy engine with what differs between SQLite and PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url

from tidegate_server.store.migrations import migrate

_BUSY_TIMEOUT_MS = 30_000
_READ_ONLY = "tidegate_read_only"


class Database:
    """One store; any number of threads may use it.

    On SQLite one server process may use a store, on PostgreSQL several (:attr:`shared`).
    """

    def __init__(self, url: str) -> None:
        """Prepare for the store of a SQLAlchemy URL without touching it."""
        self.url = make_url(url)
        self.shared = self.url.get_backend_name() != "sqlite"
        self.engine = create_engine(
            self.url, pool_size=8, max_overflow=32, pool_pre_ping=self.shared
        )
        if not self.shared:
            _speak_sqlite(self.engine)

    def open(self) -> None:
        """Create the database if need be and bring its schema up to date.

        :raises ServerError: STORE_VERSION if a newer program wrote it.
        """
        if self.shared:
            _create_if_missing(self.engine)
        elif self.url.database:
            Path(self.url.database).parent.mkdir(parents=True, exist_ok=True)
        with self.begin() as connection:
            migrate(connection)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Yield a connection in a transaction that may write; commits unless the body raises."""
        with self.engine.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection in a transaction for reading; it never waits for a writer."""
        with self.engine.connect() as connection:
            yield connection.execution_options(**{_READ_ONLY: True})

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def _speak_sqlite(engine: Engine) -> None:
    """Take transactions over from the DB-API module, which would begin them too late."""

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first and writes later cannot wait for another writer in
        # between; taking the write lock at the beginning lets busy_timeout do its work.
        reading = connection.get_execution_options().get(_READ_ONLY, False)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _create_if_missing(engine: Engine) -> None:
    from sqlalchemy_utils import create_database, database_exists

    if not database_exists(engine.url):
        create_database(engine.url)
