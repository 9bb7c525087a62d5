"""Which settings of engines on Kubernetes are rejected when the server starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import EngineSection, EngineTargetSection
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.app import Gateway
from tidegate_server.gateway.link.kubernetes import check_kubernetes_settings

MASTER = "k8s://https://head:6443"
IMAGE = {"spark.kubernetes.container.image": "tidegate:1"}


@pytest.mark.parametrize(
    ("settings", "reason", "hint"),
    [
        ({}, "image of the executors is not set", "spark.kubernetes.container.image"),
        (
            {**IMAGE, "spark.driver.host": "127.0.0.1"},
            "another machine for each pod",
            "Leave out spark.driver.host",
        ),
        ({**IMAGE, "spark.driver.host": "localhost"}, "another machine for each pod", "reach"),
        ({**IMAGE, "spark.driver.host": "[::1]"}, "another machine for each pod", "reach"),
        (
            {**IMAGE, "spark.kubernetes.executor.podNamePrefix": "mine"},
            "are the engine's own",
            "cluster_id",
        ),
        (
            {**IMAGE, "spark.kubernetes.executor.label.tidegate/engine": "mine"},
            "are the engine's own",
            "cluster_id",
        ),
        (
            {**IMAGE, "spark.kubernetes.driver.label.tidegate/engine": "mine"},
            "are the engine's own",
            "cluster_id",
        ),
        (
            {**IMAGE, "spark.kubernetes.driver.podTemplateFile": "/nowhere/pod.yaml"},
            "/nowhere/pod.yaml cannot be read",
            "driver.podTemplateFile",
        ),
        (
            {**IMAGE, "spark.kubernetes.executor.podTemplateFile": "/nowhere/pod.yaml"},
            "/nowhere/pod.yaml cannot be read",
            "podTemplateFile",
        ),
    ],
)
def test_settings_that_fail_late_are_rejected(
    settings: dict[str, str], reason: str, hint: str
) -> None:
    with pytest.raises(ServerError) as caught:
        check_kubernetes_settings(MASTER, settings)
    assert caught.value.code == "CLUSTER_CONFIGURATION"
    assert MASTER in caught.value.message
    assert reason in caught.value.message
    assert hint in caught.value.hint
    check_kubernetes_settings("spark://head:7077", settings)


@pytest.mark.parametrize(
    "settings",
    [
        IMAGE,
        {"spark.kubernetes.executor.container.image": "tidegate:1"},
        {**IMAGE, "spark.driver.host": "10.1.2.3"},
        {**IMAGE, "spark.driver.host": "gateway.lake.svc"},
        {**IMAGE, "spark.kubernetes.executor.podTemplateFile": "s3a://bucket/pod.yaml"},
    ],
)
def test_other_settings_are_spark_s(settings: dict[str, str]) -> None:
    check_kubernetes_settings(MASTER, settings)


def test_pods_on_the_network_of_this_machine_reach_its_loopback(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    key = "spark.kubernetes.executor.podTemplateFile"
    settings = {**IMAGE, "spark.driver.host": "127.0.0.1", key: str(file)}
    file.write_text("spec: {hostNetwork: true}")
    check_kubernetes_settings(MASTER, settings)
    file.write_text("spec: {}")
    with pytest.raises(ServerError, match="another machine"):
        check_kubernetes_settings(MASTER, settings)
    for content, reason in (("[1]", "is no Pod"), ("{", "cannot be read")):
        file.write_text(content)
        with pytest.raises(ServerError, match=reason):
            check_kubernetes_settings(MASTER, settings)


def test_a_gateway_does_not_start_with_what_is_rejected(tmp_path: Path) -> None:
    own = EngineSection(
        settings={
            "spark.sql.warehouse.dir": "hdfs://head:8020/warehouse",
            "spark.hadoop.hive.metastore.uris": "thrift://head:9083",
        }
    )
    config = Config(
        data=tmp_path / "data",
        engine=own,
        engines={"pods": EngineTargetSection(master=MASTER)},
    )
    with pytest.raises(ServerError, match="image of the executors is not set"):
        Gateway(config, java_home=tmp_path)
    assert not (tmp_path / "data").exists()
