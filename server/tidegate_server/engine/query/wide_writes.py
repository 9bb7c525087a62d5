"""Bounds what is kept in memory while many columns are written (``WideWrites.java``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import compiled_instance, java_source, texts


def install_wide_writes(spark: SparkSession) -> None:
    """Look at the plans of all sessions that are created from now on."""
    session: Any = spark._jsparkSession
    session.extensions().injectCheckRule(_wide_writes(spark))


@contextmanager
def adapted_writes(spark: SparkSession) -> Iterator[None]:
    """Adapt settings of the session to what its commands write, until the block ends.

    Of several statements that run at once in a session, the first one adapts them.
    """
    writes, session = _wide_writes(spark), spark._jsparkSession
    begun = writes.begin(session)
    try:
        yield
    finally:
        if begun:
            writes.end(session)


def write_settings(spark: SparkSession, columns: int) -> Mapping[str, str]:
    """Return the settings with which a table of so many columns is written."""
    return texts(spark, _wide_writes(spark).settings(columns))


def _wide_writes(spark: SparkSession) -> Any:
    return compiled_instance(spark, "tidegate.WideWrites", java_source(__package__, "WideWrites"))
