"""The SQLAlchemy engine, and the differences between SQLite and PostgreSQL."""

from __future__ import annotations

import contextlib
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
from tidegate_server.core.permissions import create_private, restrict
from tidegate_server.gateway.store.failures import store_error
from tidegate_server.gateway.store.migrations import migrate
from tidegate_server.gateway.store.tables import schema_version

BUSY_SECONDS = 30.0
"""Seconds that a transaction on SQLite waits for a lock."""
_CHECKED_AT_START = 256 << 20
"""Largest SQLite file, in bytes, that is checked at start; that takes a second at most."""
_PATIENCE = {"connect_timeout": "10", "tcp_user_timeout": "30000"}
"""libpq's timeouts for an unresponsive PostgreSQL server, in seconds and in milliseconds."""
_READ_ONLY = "tidegate_read_only"


class StoreState(Protocol):
    """The current health of a store."""

    @property
    def trouble(self) -> ServerError | None:
        """Why the store does not work; None if the last write succeeded.

        Damage is reported until the gateway is restarted.
        """
        ...

    @property
    def failures(self) -> Mapping[str, int]:
        """The number of failed transactions by error code."""
        ...


class Database:
    """One store; thread-safe.

    A SQLite store belongs to one server process; several may share one on PostgreSQL
    (:attr:`shared`).
    """

    def __init__(self, url: str, *, busy_seconds: float | None = None) -> None:
        """Prepare to use the store of a SQLAlchemy URL, without opening it.

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
        """Create the database if needed, and migrate its schema.

        :raises ServerError: STORE_VERSION if a newer version wrote it, or why it does not work.
        """
        with self._translate_errors():
            if self.shared:
                _create_if_missing(self.engine)
            elif self.url.database:
                _restrict_files(Path(self.url.database))
        with self.begin() as connection:
            if not self.shared:
                _check_pages(connection, self.url)
            migrate(connection)
        self._file = self._identity()

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Yield a connection in a write transaction, which commits unless the body raises.

        :raises ServerError: STORE_BUSY, STORE_FULL, STORE_UNAVAILABLE or STORE_DAMAGED.
        """
        with self._translate_errors():
            self.require_file()
            with self.engine.begin() as connection:
                yield connection
        self._clear_trouble()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection in a read transaction, which never waits for a writer.

        Raises as :meth:`begin`.
        """
        with self._translate_errors():
            self.require_file()
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
            self.require_file()
        except ServerError as problem:
            return problem
        return self._trouble

    @property
    def failures(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._failures)

    def require_file(self) -> None:
        """Require that the SQLite file still exists, since changes to a deleted one would be lost.

        :raises ServerError: STORE_DAMAGED if the file of SQLite was deleted or replaced.
        """
        if self._file is None:
            return
        found = self._identity()
        if found is None:
            raise error(Code.STORE_DAMAGED, reason="its file was deleted or moved away")
        if found != self._file:
            raise error(Code.STORE_DAMAGED, reason="its file was replaced while the gateway ran")

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()
        self._file = None

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn errors of the database into errors of the store."""
        try:
            yield
        except IntegrityError:
            raise  # the caller handles conflicts itself
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

    def _identity(self) -> tuple[int, int] | None:
        """Return device and inode of the SQLite file; None if there is none."""
        if self.shared or not self.url.database:
            return None
        try:
            found = Path(self.url.database).stat()
        except OSError:
            return None  # its directory may be missing or inaccessible
        return found.st_dev, found.st_ino


def _restrict_files(path: Path) -> None:
    """Create the file of SQLite for its owner only; SQLite gives its other files the same rights.

    Where that fails, opening the database fails with a better explanation.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        create_private(path)
        for suffix in ("", "-wal", "-shm", "-journal"):
            restrict(path.with_name(path.name + suffix))


def _connect_args(url: URL) -> dict[str, str]:
    """Return the default timeouts that the URL does not set itself."""
    if not url.drivername.startswith("postgresql+psycopg"):
        return {}
    return {key: value for key, value in _PATIENCE.items() if key not in url.query}


def _check_pages(connection: Connection, url: URL) -> None:
    """Check a SQLite file of usual size completely, so that damage is found at start.

    :raises ServerError: STORE_DAMAGED.
    """
    path = Path(url.database or "")
    if not path.is_file() or path.stat().st_size > _CHECKED_AT_START:
        return
    found = connection.execute(text("PRAGMA quick_check(1)")).scalar_one()
    if found != "ok":
        raise error(Code.STORE_DAMAGED, reason="its file is not consistent")


def _configure_sqlite(engine: Engine, busy_seconds: float) -> None:
    """Configure connections, and control transactions, which the DB-API module begins too late."""

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
        # SQLite does not apply busy_timeout when a read transaction turns into a write transaction,
        # so the write lock is taken at the beginning.
        reading = connection.get_execution_options().get(_READ_ONLY, False)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _create_if_missing(engine: Engine) -> None:
    from sqlalchemy_utils import create_database, database_exists

    if not database_exists(engine.url):
        create_database(engine.url)
