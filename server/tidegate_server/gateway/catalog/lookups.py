"""Remembers the tables that were looked up, until something is written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

from tidegate_server.core.model.table import MaterializedTable


class Lookups:
    """The results of look-ups since the last write; thread-safe.

    Every statement looks its tables up several times, and the threads that read a SQLite store
    hinder each other.
    """

    def __init__(self, limit: int) -> None:
        """Remember at most ``limit`` look-ups; 0 for none."""
        self._limit = limit
        self._lock = threading.Lock()
        self._found: dict[Hashable, MaterializedTable | None] = {}
        self._writes = 0

    def find(
        self, key: Hashable, read: Callable[[], MaterializedTable | None]
    ) -> MaterializedTable | None:
        """Return the table that is remembered under ``key``, or else what ``read`` returns."""
        with self._lock:
            if key in self._found:
                return self._found[key]
            writes = self._writes
        found = read()
        with self._lock:
            # Otherwise ``read`` may have missed a write.
            if writes == self._writes and self._limit:
                if len(self._found) >= self._limit:
                    self._found.clear()
                self._found[key] = found
        return found

    def forget(self) -> None:
        """Forget everything, after a write."""
        with self._lock:
            self._writes += 1
            self._found.clear()
