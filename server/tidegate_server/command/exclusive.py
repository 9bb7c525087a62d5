"""Changes of one table's definition happen one after the other within a server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary


class _Lock:
    """A lock that a weak dictionary can hold."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Exclusive:
    """A lock per table id, kept while somebody holds it or waits for it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, _Lock] = WeakValueDictionary()

    @contextmanager
    def hold(self, table_id: str) -> Iterator[None]:
        """Keep others away from a table's definition; waits for who came first."""
        with self._guard:
            mine = self._locks.setdefault(table_id, _Lock())
        with mine.lock:
            yield
