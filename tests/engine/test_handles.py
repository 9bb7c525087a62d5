"""What a refresh leaves behind of the JVM's objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from py4j.finalizer import ThreadSafeFinalizer

from tests.support.fixtures.spark import Lake
from tests.support.materialized import Materialized
from tests.support.waiting import wait_until
from tidegate_server.core.model.runs import Strategy

pytestmark = pytest.mark.spark

_FEW = 100


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Python's own collections, which come when they come, are put off."""
    gc.disable()
    yield
    gc.enable()


def test_refreshes_do_not_hold_java_objects(lake: Lake, without_collector: None) -> None:
    lake.sql(
        "CREATE TABLE t (k STRING, n INT) USING delta",
        "INSERT INTO t VALUES ('a', 1), ('b', 2)",
    )
    mt = Materialized(lake, "SELECT k, count(*) AS c, sum(n) AS s FROM t GROUP BY k")
    for number in range(2):
        lake.sql(f"INSERT INTO t VALUES ('a', {number})")
        mt.refresh()
    gc.collect()
    held = len(ThreadSafeFinalizer.finalizers)
    lake.sql("INSERT INTO t VALUES ('a', 2)")
    outcome = mt.refresh()
    assert outcome.plan.strategy is Strategy.INCREMENTAL
    wait_until(lambda: len(ThreadSafeFinalizer.finalizers) - held < _FEW, "objects are held")
