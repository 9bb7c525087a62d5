"""The SQLAlchemy engine with what differs between SQLite and PostgreSQL."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.gateway.store.failures import store_error
from tidegate_server.gateway.store.migrations import migrate
from tidegate_server.gateway.store.tables import schema_version

BUSY_SECONDS = 30.0
"""Seconds that a transaction on SQLite waits for a lock."""
_CHECKED_AT_START = 256 << 20
"""Bytes up to which a SQLite file is read as a whole at start, which takes a second at most."""
_PATIENCE = {"connect_timeout": "10", "tcp_user_timeout": "30000"}
"""libpq's bounds on how long a PostgreSQL server may be silent: seconds, and milliseconds."""
_READ_ONLY = "tidegate_read_only"


class StoreState(Protocol):
    """How a store works at the moment."""

    @property
    def trouble(self) -> ServerError | None:
        """Why the store does not work, None if the last that was written to it was.

        Damage stays until the gateway is started again.
        """
        ...

    @property
    def failures(self) -> Mapping[str, int]:
        """How many transactions failed, by the code of the error."""
        ...


class Database:
    """One store; any number of threads may use it.

    On SQLite one server process may use a store, on PostgreSQL several (:attr:`shared`).
    """

    def __init__(self, url: str, *, busy_seconds: float | None = None) -> None:
        """Prepare for the store of a SQLAlchemy URL without touching it.

        ``busy_seconds`` is how long a transaction on SQLite waits for a lock (None: 30 s).
        """
        self.url = make_url(url)
        self.shared = self.url.get_backend_name() != "sqlite"
        self.engine = create_engine(
            self.url,
            pool_size=8,
            max_overflow=32,
            pool_pre_ping=self.shared,
            connect_args=_connect_args(self.url),
        )
        self._lock = threading.Lock()
        self._trouble: ServerError | None = None
        self._failures: Counter[str] = Counter()
        self._file: tuple[int, int] | None = None
        if not self.shared:
            _configure_sqlite(self.engine, BUSY_SECONDS if busy_seconds is None else busy_seconds)

    def open(self) -> None:
        """Create the database if need be and bring its schema up to date.

        :raises ServerError: STORE_VERSION if a newer program wrote it, or why it does not work.
        """
        with self._translate_errors():
            if self.shared:
                _create_if_missing(self.engine)
            elif self.url.database:
                Path(self.url.database).parent.mkdir(parents=True, exist_ok=True)
        with self.begin() as connection:
            if not self.shared:
                _check_pages(connection, self.url)
            migrate(connection)
        self._file = self._identity()

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Yield a connection in a transaction that may write; commits unless the body raises.

        :raises ServerError: STORE_BUSY, STORE_FULL, STORE_UNAVAILABLE or STORE_DAMAGED.
        """
        with self._translate_errors():
            self._require_file()
            with self.engine.begin() as connection:
                yield connection
        self._clear_trouble()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection in a transaction for reading; it never waits for a writer.

        Raises as :meth:`begin`.
        """
        with self._translate_errors():
            self._require_file()
            with self.engine.connect() as connection:
                yield connection.execution_options(**{_READ_ONLY: True})

    def check(self) -> None:
        """Write without changing anything; raises as :meth:`begin`."""
        with self.begin() as connection:
            same = update(schema_version).values(version=schema_version.c.version)
            connection.execute(same)

    @property
    def trouble(self) -> ServerError | None:
        try:
            self._require_file()
        except ServerError as problem:
            return problem
        return self._trouble

    @property
    def failures(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._failures)

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()
        self._file = None

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn what the database says when it cannot serve into an error of the store."""
        try:
            yield
        except IntegrityError:
            raise  # an answer, which the caller asked for
        except SQLAlchemyError as problem:
            failure = store_error(problem)
            if failure is None:
                raise
            with self._lock:
                self._failures[failure.code] += 1
                if not self._is_damaged():
                    self._trouble = failure
            raise failure from problem

    def _clear_trouble(self) -> None:
        if self._trouble is not None:
            with self._lock:
                self._trouble = self._trouble if self._is_damaged() else None

    def _is_damaged(self) -> bool:
        return self._trouble is not None and self._trouble.code == Code.STORE_DAMAGED.name

    def _require_file(self) -> None:
        """Refuse to go on with a file that has no name any more, whose changes would be lost.

        :raises ServerError: STORE_DAMAGED if the file of SQLite was deleted or replaced.
        """
        if self._file is None:
            return
        found = self._identity()
        if found is None:
            raise error(Code.STORE_DAMAGED, reason="its file was deleted or moved away")
        if found != self._file:
            raise error(Code.STORE_DAMAGED, reason="its file was replaced while the gateway ran")

    def _identity(self) -> tuple[int, int] | None:
        """Return device and inode of the file of SQLite, None if there is none."""
        if self.shared or not self.url.database:
            return None
        try:
            found = Path(self.url.database).stat()
        except OSError:
            return None  # its directory may be gone or closed to us as well
        return found.st_dev, found.st_ino


def _connect_args(url: URL) -> dict[str, str]:
    """Bound how long a server may be silent, unless the URL says so itself."""
    if not url.drivername.startswith("postgresql+psycopg"):
        return {}
    return {key: value for key, value in _PATIENCE.items() if key not in url.query}


def _check_pages(connection: Connection, url: URL) -> None:
    """Read a SQLite file of usual size as a whole, so that damage is found at start.

    :raises ServerError: STORE_DAMAGED.
    """
    path = Path(url.database or "")
    if not path.is_file() or path.stat().st_size > _CHECKED_AT_START:
        return
    found = connection.execute(text("PRAGMA quick_check(1)")).scalar_one()
    if found != "ok":
        raise error(Code.STORE_DAMAGED, reason="its file is not consistent")


def _configure_sqlite(engine: Engine, busy_seconds: float) -> None:
    """Take transactions over from the DB-API module, which would begin them too late."""

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {round(busy_seconds * 1000)}")
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
