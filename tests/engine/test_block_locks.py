"""Blocks that are cached, which a task reads while another removes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fixtures.spark import Lake
from tidegate_server.engine.storage.jvm import compiled_instance

pytestmark = pytest.mark.spark

_SOURCE = Path(__file__).with_name("BlockRace.java")


def test_a_block_that_is_removed_is_not_locked(lake: Lake) -> None:
    """With Spark's own locks, a reader fails at once: "Block rdd_2147483647_0 does not exist"."""
    race = compiled_instance(lake.session, "tidegate.BlockRace", _SOURCE.read_text("utf-8"))
    assert race.run(1_000_000) > 0


def test_a_frame_is_cached_and_removed(lake: Lake) -> None:
    context = lake.session.sparkContext._jsc.sc()
    before = context.getPersistentRDDs().size()
    frame = lake.session.range(0, 100_000, 1, 4).selectExpr("id % 7 AS k", "id AS n").persist()
    for _ in range(2):
        assert frame.groupBy("k").count().count() == 7
    stored = list(context.getRDDStorageInfo())
    assert [rdd.numCachedPartitions() for rdd in stored if rdd.numPartitions() == 4] == [4]
    frame.unpersist(blocking=True)
    assert context.getPersistentRDDs().size() == before
