"""Scala from Python: objects, and the session that Delta's classes take to be theirs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession


def scala_object(jvm: Any, owner: str, name: str = "") -> Any:
    """Return the Scala object ``owner``, or the object ``name`` inside it."""
    *package, last = owner.split(".")
    place = jvm
    for part in package:
        place = getattr(place, part)
    return getattr(getattr(place, f"{last}${name}$" if name else f"{last}$"), "MODULE$")


@contextmanager
def acting(session: SparkSession) -> Iterator[None]:
    """Make a session this thread's active one until the block ends."""
    jvm: Any = session._jvm
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    previous = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if previous.isDefined():
            sessions.setActiveSession(previous.get())
        else:
            sessions.clearActiveSession()
