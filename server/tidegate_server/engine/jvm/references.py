"""Lets the JVM forget the objects that Python held.

py4j keeps the methods of a Java object with it and the object with its methods: a cycle, which
only Python's collector of cycles takes apart. That runs when Python's own memory has grown, of
which such an object is next to nothing, while what it stands for in the JVM may be a plan and all
the rows that were sent to its joins.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def released() -> Iterator[None]:
    """Release what the block's calls held of the JVM once they have returned."""
    try:
        yield
    finally:
        gc.collect()


def keep() -> None:
    """Take all that there is by now for lasting, so that to release the rest takes little time."""
    gc.collect()
    gc.freeze()
