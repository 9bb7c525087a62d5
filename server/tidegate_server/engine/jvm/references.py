"""Lets the JVM free objects that Python no longer uses.

In py4j a Java object and its methods refer to each other: a cycle, which only Python's garbage
collector can free. The collector runs when Python's own memory grows. Such an object takes hardly
any of that, yet in the JVM it may keep a plan alive with all rows broadcast to its joins.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def release_references() -> Iterator[None]:
    """Release the Java objects that the block no longer uses when it ends."""
    try:
        yield
    finally:
        gc.collect()


def freeze_references() -> None:
    """Exempt all existing objects from collection, so that later collections are fast."""
    gc.collect()
    gc.freeze()
