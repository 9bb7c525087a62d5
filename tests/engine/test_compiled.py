"""Classes that the engine compiles while it runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import compiled_instance

pytestmark = pytest.mark.spark

_THREADS = 4
_SOURCE = "package tidegate; public class Answer { public int answer() { return 42; } }"


def test_threads_that_need_a_class_at_once_share_it(spark_root: SparkSession) -> None:
    barrier = Barrier(_THREADS)

    def compile_at_once(_: int) -> Any:
        barrier.wait(60)
        instance = compiled_instance(spark_root, "tidegate.Answer", _SOURCE)
        return instance, instance.answer()

    with ThreadPoolExecutor(_THREADS) as threads:
        found = list(threads.map(compile_at_once, range(_THREADS)))
    assert len({id(instance) for instance, _ in found}) == 1
    assert [answer for _, answer in found] == [42] * _THREADS
