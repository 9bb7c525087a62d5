"""Makes sessions see changes that other sessions made to tables of files.

Spark caches the file listing of a table in each session that reads it. Only the session that
changes the table drops its listing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import items

logger = logging.getLogger(__name__)


class FileChanges:
    """Counts the statements that changed tables of files."""

    def __init__(self, *, alone: bool = True) -> None:
        """``alone`` says whether no other engine changes them: its changes are not known."""
        self._alone = alone
        self._lock = threading.Lock()
        self._count = 0
        self._running = 0

    @contextmanager
    def count_change(self) -> Iterator[None]:
        """Count the block as one change, whether it succeeds or fails."""
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                self._count += 1

    def state(self) -> int | None:
        """Return a number that differs after each change; None while one may be being made."""
        with self._lock:
            return self._count if self._alone and not self._running else None


def forget_files(spark: SparkSession) -> None:
    """Have a session list the files of all tables and temporary views again."""
    session: Any = spark._jsparkSession
    catalog = session.sessionState().catalog()
    catalog.invalidateAllCachedTables()
    for view in items(catalog.listTempViews(catalog.globalTempDatabase(), "*")):
        name = view.identifier()
        try:
            catalog.refreshTable(name)
        except (PySparkException, Py4JJavaError) as error:
            # A statement that reads the view reports this error.
            logger.debug("cannot list the files of view %s: %s", name.table(), error)
