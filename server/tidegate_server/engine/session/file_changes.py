"""Sessions read tables of files as they are, whichever session changed them.

Spark keeps the files of a table that a session has read in a list of that session's own. Only the
session that changes the table forgets its list.
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

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._running = 0

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Count what is done until the block ends, whether it succeeds or not."""
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                self._count += 1

    def state(self) -> int | None:
        """Return a number that differs after each change; None while one is being made."""
        with self._lock:
            return None if self._running else self._count


def forget_files(spark: SparkSession) -> None:
    """Have a session list the files of all tables and temporary views again."""
    session: Any = spark._jsparkSession
    catalog = session.sessionState().catalog()
    catalog.invalidateAllCachedTables()
    for view in items(catalog.listTempViews(catalog.globalTempDatabase(), "*")):
        name = view.identifier()
        try:
            catalog.refreshTable(name)
        except (PySparkException, Py4JJavaError) as failed:
            # Whoever reads the view gets this error.
            logger.debug("the files of view %s cannot be listed: %s", name.table(), failed)
