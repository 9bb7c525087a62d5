"""Sessions read tables of files as they are, whichever session changed them.

Spark keeps the files of a table that a session has read in a list of that session's own. Only the
session that changes the table forgets its list.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.model.names import qualify
from tidegate_server.engine.query.resolution import current_place, is_temporary_view
from tidegate_server.engine.statement.targets import TableTarget, Target, is_path
from tidegate_server.engine.storage.entries import entry_of, provider_of
from tidegate_server.engine.storage.jvm import items

logger = logging.getLogger(__name__)

_DELTA = "delta"
_REFRESH = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*REFRESH\b", re.DOTALL | re.IGNORECASE)
_LONGEST_NAME = 3


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


def changes_files(spark: SparkSession, text: str, found: Sequence[Target]) -> bool:
    """Say whether a statement may change what a table of files has.

    REFRESH counts: it says that something else changed them.

    :param found: what the statement changes.
    """
    return any(not _is_delta(spark, target) for target in found) or bool(_REFRESH.match(text))


def _is_delta(spark: SparkSession, target: Target) -> bool:
    """Say whether a target is certainly a Delta table, which has versions instead of a list."""
    if not isinstance(target, TableTarget):
        return False
    if is_path(target.name):
        return target.name[-2].lower() == _DELTA
    if len(target.name) > _LONGEST_NAME or is_temporary_view(spark, target.name):
        return False
    place = current_place(spark)
    entry = entry_of(spark, qualify(target.name, place.catalog, place.schema))
    return entry is not None and provider_of(entry) == _DELTA
