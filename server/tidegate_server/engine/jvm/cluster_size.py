"""Sizes partitions and broadcasts by the cores and the memory of the cluster's executors."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import count_executors

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 10.0
_EXECUTOR_SECONDS = 15.0
"""How long the start of an engine waits for an executor."""
_POLL_SECONDS = 0.2
_BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
_HEAP_A_BROADCAST = 200
"""The heap is at least so many times as large as a table that is sent to all executors."""


def configured_cores(settings: Mapping[str, str]) -> int | None:
    """Return how many cores an application may have by its settings; None if they do not say.

    :param settings: those of the engine.
    """
    total = _number(settings.get("spark.cores.max"))
    if total is not None:
        return total
    dynamic = settings.get("spark.dynamicAllocation.enabled", "").strip().lower() == "true"
    executors = "spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances"
    number = _number(settings.get(executors))
    each = _number(settings.get("spark.executor.cores", "1"))
    return None if number is None or each is None else number * each


def broadcast_limit(*mebibytes: int) -> int:
    """Return up to which size, in bytes, a table is sent to all executors for a join.

    Spark compares it with an estimate of compressed columns. As a hash table, the same rows take
    some ten times as much memory, and there may be several such tables at a time. Spark's default
    is 10 MiB, whatever the heap.

    :param mebibytes: the heap sizes of the driver and of an executor; each holds a copy.
    """
    return min(max(min(mebibytes) // _HEAP_A_BROADCAST, 10), 100) << 20


def sized_settings(cores: int) -> dict[str, str]:
    """Return Spark's settings for a cluster of so many cores.

    Twice as many partitions as cores keep these busy until the end; adaptive execution joins small
    ones. With Spark's and Delta's defaults, small refreshes would run hundreds of empty tasks.
    """
    partitions = str(2 * cores)
    return {
        "spark.sql.shuffle.partitions": partitions,
        "spark.databricks.delta.snapshotPartitions": str(min(cores, 50)),
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": partitions,
    }


class ClusterSize:
    """Keeps the settings of new sessions at the size of the cluster.

    Without a configured number, the size is the most cores that the executors have had: with
    dynamic allocation they come and go.
    """

    def __init__(
        self,
        given: Mapping[str, str],
        *,
        measure: Callable[[], int],
        apply: Callable[[Mapping[str, str]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``given`` are the engine's settings, which win; ``measure`` returns the cores of the
        executors, 0 without any; ``apply`` sets what new sessions get."""
        self._given = given
        self._measure = measure
        self._apply = apply
        self._clock = clock
        self._lock = threading.Lock()
        self._cores = 0
        self._next_look = clock()
        configured = configured_cores(given)
        self._fixed = configured is not None
        if configured is not None:
            self._resize(configured)

    def look(self) -> None:
        """Measure the cluster again, unless that was done a moment ago."""
        with self._lock:
            if self._fixed or self._clock() < self._next_look:
                return
            self._next_look = self._clock() + _LOOK_SECONDS
            cores = self._measure()
            if cores > self._cores:
                self._resize(cores)

    def _resize(self, cores: int) -> None:
        self._cores = cores
        settings = {k: v for k, v in sized_settings(cores).items() if k not in self._given}
        logger.info("the cluster has %d cores: %s", cores, settings)
        self._apply(settings)


def executor_cores(spark: SparkSession) -> int:
    """Return the cores of the executors of a cluster; 0 if there is none, or no cluster."""
    context: Any = spark.sparkContext._jsc.sc()
    if context.isLocal() or not count_executors(context):
        return 0
    return int(context.defaultParallelism())


def has_executor(spark: SparkSession, seconds: float = _EXECUTOR_SECONDS) -> bool:
    """Wait for a first executor; return whether there is one.

    On a cluster without room for another application there is none, perhaps for hours.
    """
    context: Any = spark.sparkContext._jsc.sc()
    if context.isLocal():
        return True
    deadline = time.monotonic() + seconds
    while not count_executors(context):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def cluster_size(spark: SparkSession, given: Mapping[str, str]) -> ClusterSize | None:
    """Return what keeps new sessions at the size of the cluster; None without a cluster.

    :param given: the settings of the engine.
    """
    if spark.sparkContext._jsc.sc().isLocal():
        return None
    session: Any = spark._jsparkSession
    shared = session.sharedState().conf()

    def apply(settings: Mapping[str, str]) -> None:
        for key, value in settings.items():
            shared.set(key, value)

    conf = spark.sparkContext._jsc.sc().getConf()
    heaps = (
        conf.getSizeAsMb(key, "1g") for key in ("spark.driver.memory", "spark.executor.memory")
    )
    if _BROADCAST not in given:
        apply({_BROADCAST: str(broadcast_limit(*map(int, heaps)))})
    return ClusterSize(given, measure=lambda: executor_cores(spark), apply=apply)


def _number(text: str | None) -> int | None:
    word = (text or "").strip()
    return int(word) if word.isascii() and word.isdigit() and int(word) > 0 else None
