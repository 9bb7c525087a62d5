"""The memory of the JVM: measures it, ends stages that fill it, and a JVM that has none left."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.messages.answers import EngineMemory
from tidegate_server.engine.storage.jvm import compiled_instance, java, java_source

_DIRECT = "direct"


class JvmMemory:
    """Reads the JVM's management beans; each reading takes a few milliseconds."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = java(spark)
        factory = jvm.java.lang.management.ManagementFactory
        self._heap: Any = factory.getMemoryMXBean()
        self._collectors: Any = list(factory.getGarbageCollectorMXBeans())
        self._old: Any = max(
            (pool for pool in factory.getMemoryPoolMXBeans() if pool.getCollectionUsage()),
            key=lambda pool: int(pool.getUsage().getMax()),
        )
        self._runtime: Any = factory.getRuntimeMXBean()
        self._direct: Any = next(
            pool
            for pool in factory.getPlatformMXBeans(_buffer_pool_class(jvm))
            if pool.getName() == _DIRECT
        )
        self._direct_limit = _direct_limit(jvm)

    def measure(self, in_use: int = 0) -> EngineMemory:
        """Return memory use, and the time spent in garbage collection since the JVM started.

        ``in_use`` is passed on.
        """
        heap = self._heap.getHeapMemoryUsage()
        return EngineMemory(
            heap_used=int(heap.getUsed()),
            heap_live=int(self._old.getCollectionUsage().getUsed()),
            heap_limit=int(heap.getMax()),
            direct_used=int(self._direct.getMemoryUsed()),
            direct_limit=self._direct_limit,
            collecting_ms=sum(max(int(c.getCollectionTime()), 0) for c in self._collectors),
            uptime_ms=int(self._runtime.getUptime()),
            in_use=in_use,
        )


def watch_heap(spark: SparkSession) -> None:
    """End stages that fill the heap of this JVM with what Spark does not account for."""
    source = java_source(__package__, "HeapWatch")
    compiled_instance(spark, "tidegate.HeapWatch", source).watch(spark.sparkContext._jsc.sc())


def end_without_memory(spark: SparkSession) -> None:
    """Have the JVM exit if a background thread runs out of memory.

    A caller that depends on the result of such a thread would otherwise wait forever. The gateway
    replaces the engine, and its statements fail at once. Spark's executors do the same.
    """
    jvm: Any = java(spark)
    handler = jvm.org.apache.spark.util.SparkUncaughtExceptionHandler(False)
    jvm.java.lang.Thread.setDefaultUncaughtExceptionHandler(handler)


def _buffer_pool_class(jvm: Any) -> Any:
    return jvm.java.lang.Class.forName("java.lang.management.BufferPoolMXBean")


def _direct_limit(jvm: Any) -> int:
    """Return the limit of direct memory, which defaults to that of the heap."""
    factory = jvm.java.lang.management.ManagementFactory
    kind = jvm.java.lang.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
    bean = factory.getPlatformMXBean(kind)
    found = int(bean.getVMOption("MaxDirectMemorySize").getValue())
    return found or int(jvm.java.lang.Runtime.getRuntime().maxMemory())
