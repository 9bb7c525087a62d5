"""Lets the JVM free objects that Python no longer uses.

In py4j a Java object and its methods refer to each other: a cycle, which only Python's garbage
collector can free. The collector runs when Python's own memory grows. Such an object takes hardly
any of that, yet in the JVM it may keep a plan alive with all rows broadcast to its joins.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


class _Collector:
    """Collects garbage on a thread of its own.

    Each Java object takes a round trip to the JVM: together, a tenth of a small refresh.
    """

    def __init__(self) -> None:
        self._wanted = threading.Event()
        threading.Thread(target=self._run, name="java-references", daemon=True).start()

    def collect(self) -> None:
        """Begin a collection, if need be after the current one."""
        self._wanted.set()

    def _run(self) -> None:
        while self._wanted.wait():
            self._wanted.clear()
            gc.collect()


@cache
def _collector() -> _Collector:
    return _Collector()


@contextmanager
def release_references() -> Iterator[None]:
    """Release the Java objects that the block no longer uses, soon after it has ended."""
    try:
        yield
    finally:
        _collector().collect()


def freeze_references() -> None:
    """Exempt all existing objects from collection, so that later collections are fast."""
    gc.collect()
    gc.freeze()
