"""Which warehouses a cluster may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.test_app import build
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import EngineSection
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.app import Gateway
from tidegate_server.gateway.link.cluster import check_cluster_storage

DATA = Path("/srv/tidegate")
SPARK = "spark://head:7077"


@pytest.mark.parametrize("master", [SPARK, "yarn", "k8s://https://head:6443"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"spark.sql.warehouse.dir": "/srv/warehouse"},
        {"spark.sql.warehouse.dir": "file:///srv/warehouse"},
    ],
)
def test_a_directory_of_this_machine_is_refused(master: str, settings: dict[str, str]) -> None:
    with pytest.raises(ServerError) as caught:
        check_cluster_storage(master, settings, DATA, EngineSection())
    assert caught.value.code == "CLUSTER_STORAGE"
    assert master in caught.value.message
    assert "spark.sql.warehouse.dir" in caught.value.hint
    assert "engine.shared_data" in caught.value.hint


@pytest.mark.parametrize(
    ("master", "settings", "shared"),
    [
        ("local[*]", {}, False),
        ("local-cluster[2,1,1024]", {}, False),
        (SPARK, {}, True),
        (SPARK, {"spark.sql.warehouse.dir": "s3a://bucket/warehouse"}, False),
        (
            SPARK,
            {
                "spark.sql.warehouse.dir": "/warehouse",
                "spark.hadoop.fs.defaultFS": "hdfs://head:8020",
            },
            False,
        ),
    ],
)
def test_storage_that_executors_reach_is_taken(
    master: str, settings: dict[str, str], shared: bool
) -> None:
    check_cluster_storage(master, settings, DATA, EngineSection(shared_data=shared))


def test_a_gateway_does_not_start_with_what_is_refused(tmp_path: Path) -> None:
    config = Config(data=tmp_path / "data", engine=EngineSection(master=SPARK))
    with pytest.raises(ServerError, match="executors on other machines"):
        Gateway(config, java_home=tmp_path)
    assert not (tmp_path / "data").exists()
    build(tmp_path / "data", "mute")
