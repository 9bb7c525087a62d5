"""Partitions follow the cores of the cluster, unless the configuration says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tidegate_server.engine.jvm.cluster_size import (
    ClusterSize,
    broadcast_limit,
    configured_cores,
    sized_settings,
)

PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.mark.parametrize(
    ("settings", "cores"),
    [
        ({"spark.cores.max": "32", "spark.executor.cores": "4"}, 32),
        ({"spark.executor.instances": "5", "spark.executor.cores": "4"}, 20),
        ({"spark.executor.instances": "5"}, 5),
        (
            {
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "10",
                "spark.executor.instances": "1",
                "spark.executor.cores": "2",
            },
            20,
        ),
        ({"spark.dynamicAllocation.enabled": "true", "spark.executor.instances": "1"}, None),
        ({"spark.executor.cores": "4"}, None),
        ({"spark.cores.max": "many"}, None),
        ({}, None),
    ],
)
def test_settings_say_how_many_cores_there_are(
    settings: Mapping[str, str], cores: int | None
) -> None:
    assert configured_cores(settings) == cores


@dataclass
class Cluster:
    """A cluster whose executors come and go."""

    cores: int = 0
    now: float = 0.0
    applied: dict[str, str] = field(default_factory=dict)

    def size(self, **given: str) -> ClusterSize:
        return ClusterSize(
            {key.replace("_", "."): value for key, value in given.items()},
            measure=lambda: self.cores,
            apply=self.applied.update,
            clock=lambda: self.now,
        )


def test_the_size_grows_with_the_executors_and_does_not_shrink() -> None:
    cluster = Cluster()
    size = cluster.size()
    size.look()
    assert cluster.applied == {}
    for cores, partitions in ((4, "8"), (16, "32"), (0, "32"), (8, "32")):
        cluster.cores, cluster.now = cores, cluster.now + 10
        size.look()
        assert cluster.applied[PARTITIONS] == partitions


def test_the_cluster_is_measured_now_and_then() -> None:
    cluster = Cluster(cores=4)
    size = cluster.size()
    size.look()
    cluster.cores = 8
    size.look()
    assert cluster.applied == sized_settings(4)


def test_settings_of_the_configuration_win() -> None:
    cluster = Cluster(cores=4)
    cluster.size(spark_cores_max="6", spark_sql_shuffle_partitions="7").look()
    assert cluster.applied == {
        "spark.databricks.delta.snapshotPartitions": "6",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "12",
    }


@pytest.mark.parametrize(
    ("driver", "executor", "mebibytes"),
    [(1024, 1024, 10), (8192, 4096, 20), (2048, 32768, 10), (65536, 65536, 100)],
)
def test_larger_heaps_hold_larger_broadcasts(driver: int, executor: int, mebibytes: int) -> None:
    assert broadcast_limit(driver, executor) == mebibytes << 20
