"""Replaces Spark's locks of cached blocks, which lock removed ones (``BlockLocks.java``)."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import compiled_instance, java_source


def install_block_locks(spark: SparkSession) -> None:
    """Replace the locks of the blocks of this JVM; no job must run meanwhile.

    Executors of a cluster keep Spark's own: there, a task that fails is tried again.
    """
    source = java_source(__package__, "BlockLocks")
    compiled_instance(spark, "tidegate.BlockLocks", source).install()
