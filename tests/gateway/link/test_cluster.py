"""Which warehouses a cluster may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.test_app import build
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import EngineSection
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.app import Gateway
from tidegate_server.gateway.link.cluster import (
    check_cluster_storage,
    check_hadoop_configuration,
    check_log_store,
    check_submitted_settings,
    section_settings,
)

DATA = Path("/srv/tidegate")
SPARK = "spark://head:7077"
PODS = "k8s://https://head:6443"


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


S3 = {"spark.sql.warehouse.dir": "s3a://bucket/warehouse"}


@pytest.mark.parametrize(
    "settings",
    [
        S3,
        {"spark.sql.warehouse.dir": "/warehouse", "spark.hadoop.fs.defaultFS": "s3a://bucket"},
        {**S3, "spark.delta.logStore.s3.impl": "io.delta.storage.S3DynamoDBLogStore"},
        {**S3, "spark.delta.logStore.s3a.impl": "io.delta.storage.S3SingleDriverLogStore"},
    ],
)
def test_several_engines_do_not_share_s3_by_the_store_for_one(settings: dict[str, str]) -> None:
    with pytest.raises(ServerError) as caught:
        check_log_store(settings)
    assert caught.value.code == "LOG_STORE_UNSAFE"
    assert "spark.delta.logStore.s3a.impl" in caught.value.hint


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"spark.sql.warehouse.dir": "hdfs://head:8020/warehouse"},
        {"spark.sql.warehouse.dir": "abfss://files@account.dfs.core.windows.net/warehouse"},
        {**S3, "spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"},
        {**S3, "spark.delta.logStore.class": "com.example.OwnLogStore"},
    ],
)
def test_several_engines_share_other_storage(settings: dict[str, str]) -> None:
    check_log_store(settings)


def test_a_gateway_with_several_engines_on_s3_is_not_built(tmp_path: Path) -> None:
    url = "spark.hadoop.javax.jdo.option.ConnectionURL"
    settings = {**S3, url: "jdbc:postgresql://head/hive"}
    engines = {"night": {"master": SPARK}}
    Gateway(Config(data=tmp_path, engine=EngineSection(settings=settings)), java_home=tmp_path)
    several = Config(
        data=tmp_path,
        engine=EngineSection(settings=settings),
        engines=engines,  # type: ignore[arg-type]
    )
    with pytest.raises(ServerError, match="LOG_STORE_UNSAFE"):
        Gateway(several, java_home=tmp_path)


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({}, "HADOOP_CONF_DIR is not set"),
        ({"HADOOP_CONF_DIR": ""}, "HADOOP_CONF_DIR is not set"),
        ({"YARN_CONF_DIR": "/nowhere"}, "YARN_CONF_DIR = /nowhere has no yarn-site.xml"),
    ],
)
def test_yarn_needs_its_configuration(environment: dict[str, str], reason: str) -> None:
    with pytest.raises(ServerError, match=reason) as caught:
        check_hadoop_configuration("yarn", environment)
    assert caught.value.code == "CLUSTER_CONFIGURATION"
    check_hadoop_configuration(SPARK, environment)


def test_yarn_finds_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "yarn-site.xml").touch()
    places = {"HADOOP_CONF_DIR": "/nowhere", "YARN_CONF_DIR": str(tmp_path)}
    check_hadoop_configuration("yarn", places)


def test_the_server_s_own_settings_are_not_those_of_a_driver_in_the_cluster() -> None:
    inherited = {"spark.driver.host": "10.0.0.1", "spark.executor.cores": "2"}
    own = {"spark.executor.cores": "4"}
    assert section_settings(inherited, own, in_cluster=True) == own
    assert section_settings(inherited, own, in_cluster=False) == {**inherited, **own}


@pytest.mark.parametrize(
    ("master", "key", "hint"),
    [
        ("yarn", "spark.driver.host", "Remove it"),
        (PODS, "spark.kubernetes.driver.pod.name", "Remove it"),
        ("yarn", "spark.yarn.appMasterEnv.S3_SECRET_KEY", "from a file"),
        (PODS, "spark.kubernetes.driverEnv.S3_SECRET_KEY", "spark.kubernetes.driver.secretKeyRef"),
        (PODS, "spark.kubernetes.authenticate.oauthToken", "authenticate.oauthTokenFile"),
    ],
)
def test_settings_without_effect_on_a_driver_in_the_cluster_are_refused(
    master: str, key: str, hint: str
) -> None:
    with pytest.raises(ServerError) as caught:
        check_submitted_settings(master, {key: "value"})
    assert caught.value.code == "CLUSTER_CONFIGURATION"
    assert key in caught.value.message
    assert hint in caught.value.hint
    check_submitted_settings(master, {"spark.kubernetes.driverEnv.TZ": "UTC"})
