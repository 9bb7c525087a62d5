"""The memory of the JVM: how full heap and direct memory are, and what ends a JVM that has none."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.messages.answers import EngineMemory
from tidegate_server.engine.storage.jvm import java

_DIRECT = "direct"


class JvmMemory:
    """Reads the JVM's own beans; each look takes some milliseconds."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = java(spark)
        factory = jvm.java.lang.management.ManagementFactory
        self._heap: Any = factory.getMemoryMXBean()
        self._collectors: Any = list(factory.getGarbageCollectorMXBeans())
        self._runtime: Any = factory.getRuntimeMXBean()
        self._direct: Any = next(
            pool for pool in factory.getPlatformMXBeans(_class(jvm)) if pool.getName() == _DIRECT
        )
        self._direct_limit = _direct_limit(jvm)

    def look(self, in_use: int = 0) -> EngineMemory:
        """Return how full the memory is, and how long collections took since the JVM's start.

        ``in_use`` is passed on.
        """
        heap = self._heap.getHeapMemoryUsage()
        return EngineMemory(
            heap_used=int(heap.getUsed()),
            heap_limit=int(heap.getMax()),
            direct_used=int(self._direct.getMemoryUsed()),
            direct_limit=self._direct_limit,
            collecting_ms=sum(max(int(c.getCollectionTime()), 0) for c in self._collectors),
            uptime_ms=int(self._runtime.getUptime()),
            in_use=in_use,
        )


def end_without_memory(spark: SparkSession) -> None:
    """Have the JVM end when a thread runs out of memory and no caller waits for that thread.

    Whoever waits for what such a thread was to deliver would wait for ever. The gateway replaces
    the engine, and its statements fail at once. Spark's executors do the same.
    """
    jvm: Any = java(spark)
    handler = jvm.org.apache.spark.util.SparkUncaughtExceptionHandler(False)
    jvm.java.lang.Thread.setDefaultUncaughtExceptionHandler(handler)


def _class(jvm: Any) -> Any:
    return jvm.java.lang.Class.forName("java.lang.management.BufferPoolMXBean")


def _direct_limit(jvm: Any) -> int:
    """Return the bound of direct memory: what was set, or else as much as the heap may take."""
    factory = jvm.java.lang.management.ManagementFactory
    kind = jvm.java.lang.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
    bean = factory.getPlatformMXBean(kind)
    found = int(bean.getVMOption("MaxDirectMemorySize").getValue())
    return found or int(jvm.java.lang.Runtime.getRuntime().maxMemory())
