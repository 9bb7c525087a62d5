"""What a cluster sees of an engine that is submitted to it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_options import engine_options
from tidegate_server.core.messages.requests import EngineOptions
from tidegate_server.engine.submission import (
    app_name,
    removal_command,
    submission_settings,
    submit_command,
)

PODS = "k8s://https://head:6443"
LOG_FILE = Path("/tmp/made/tidegate-log4j2.properties")
JARS = ("/cache/delta-spark.jar", "/opt/postgresql.jar")


def options(master: str = "yarn", **others: Any) -> EngineOptions:
    return engine_options(installation="0815", master=master, driver_memory="8g", **others)


def submitted(master: str = "yarn", **settings: str) -> dict[str, str]:
    given = options(master, settings=settings, name="nightly/a", cluster="a")
    return submission_settings(given, JARS, "invitation", LOG_FILE)


@pytest.mark.parametrize("master", ["yarn", PODS])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.hadoop.fs.s3a.secret.key", "hush"),
        ("spark.hadoop.javax.jdo.option.ConnectionPassword", "hush"),
        ("spark.hadoop.javax.jdo.option.ConnectionURL", "jdbc:postgresql://h/d?password=hush"),
    ],
)
def test_no_secret_is_submitted(master: str, key: str, value: str) -> None:
    assert "hush" not in str(submitted(master, **{key: value}))


@pytest.mark.parametrize("master", ["yarn", PODS])
def test_only_the_engine_s_own_executors_connect_to_it(master: str) -> None:
    assert submitted(master)["spark.authenticate"] == "true"
    assert submitted(master, **{"spark.authenticate": "false"})["spark.authenticate"] == "false"
    assert "spark.authenticate" not in submitted(
        master, **{"spark.shuffle.service.enabled": "true"}
    )


def test_jars_are_copied_and_in_the_class_path_of_the_driver() -> None:
    settings = submitted(
        **{"spark.jars": "hdfs:/mine.jar", "spark.driver.extraClassPath": "/etc/hadoop"}
    )
    assert settings["spark.jars"] == "/cache/delta-spark.jar,/opt/postgresql.jar,hdfs:/mine.jar"
    assert settings["spark.driver.extraClassPath"] == "delta-spark.jar:postgresql.jar:/etc/hadoop"


def test_the_agent_gets_its_invitation_and_is_attempted_once() -> None:
    settings = submitted()
    assert settings["spark.yarn.appMasterEnv.TIDEGATE_INVITATION"] == "invitation"
    assert settings["spark.yarn.maxAppAttempts"] == "1"
    assert settings["spark.yarn.tags"] == "tidegate,0815"
    assert settings["spark.yarn.dist.files"] == str(LOG_FILE)
    java = settings["spark.driver.extraJavaOptions"].split()
    assert f"-Dlog4j2.configurationFile={LOG_FILE.name}" in java


def test_settings_of_the_configuration_are_kept() -> None:
    settings = submitted(
        **{
            "spark.pyspark.python": "/opt/python",
            "spark.yarn.queue": "etl",
            "spark.yarn.am.waitTime": "10s",
            "spark.driver.extraJavaOptions": "-Dmine=1",
        }
    )
    assert settings["spark.pyspark.python"] == "/opt/python"
    assert settings["spark.yarn.queue"] == "etl"
    assert settings["spark.yarn.am.waitTime"] == "10s"
    assert settings["spark.driver.extraJavaOptions"].endswith(" -Dmine=1")
    assert submitted()["spark.pyspark.python"] == sys.executable


def test_applications_are_named_after_their_engine() -> None:
    assert app_name(options(name="nightly/tidegate-1a2b")) == "tidegate-nightly-tidegate-1a2b"


def test_the_agent_is_the_program_of_spark_submit() -> None:
    program, *arguments = submit_command("yarn", Path("/tmp/spark.properties"))
    assert program.endswith("/bin/spark-submit")
    assert arguments[:2] == ["--master", "yarn"]
    assert arguments[-3:-1] == ["--deploy-mode", "cluster"]
    assert Path(arguments[-1]).name == "agent.py"


def test_the_files_of_a_pod_are_those_of_its_image() -> None:
    settings = submitted(PODS, **{"spark.jars": "s3a://b/mine.jar"})
    assert settings["spark.jars"] == (
        "local:///cache/delta-spark.jar,local:///opt/postgresql.jar,s3a://b/mine.jar"
    )
    assert settings["spark.driver.extraClassPath"] == ":".join(JARS)
    java = settings["spark.driver.extraJavaOptions"].split()
    assert f"-Dlog4j2.configurationFile=/opt/spark/conf/{LOG_FILE.name}" in java
    command = submit_command(PODS, Path("/tmp/spark.properties"))
    assert command[-1].startswith("local:///")


def test_a_pod_is_found_by_its_name_and_its_labels() -> None:
    settings = submitted(PODS)
    pod = settings["spark.kubernetes.driver.pod.name"]
    assert pod.startswith("a-")
    assert pod.endswith("-driver")
    assert settings["spark.kubernetes.driverEnv.TIDEGATE_POD"] == pod
    assert settings["spark.kubernetes.driverEnv.TIDEGATE_INVITATION"] == "invitation"
    for part in ("driver", "executor"):
        assert settings[f"spark.kubernetes.{part}.label.tidegate/engine"] == "nightly.a"
        assert settings[f"spark.kubernetes.{part}.label.tidegate/installation"] == "0815"
    given = options(
        PODS, name="nightly/a", cluster="a", settings={"spark.kubernetes.namespace": "l"}
    )
    *_, kill, pods = removal_command(given, Path("/tmp/spark.properties"))
    assert kill == "--kill"
    namespace, _, prefix = pods.removesuffix("*").partition(":")
    assert namespace == "l"
    assert pod.startswith(prefix)
    other = submission_settings(options(PODS, name="nightly/b", cluster="a"), JARS, "", LOG_FILE)
    assert not other["spark.kubernetes.driver.pod.name"].startswith(prefix)


def test_long_names_of_clusters_leave_room_in_the_name_of_the_pod() -> None:
    given = options(PODS, name="x", cluster="Nightly_" + "x" * 60)
    pod = submission_settings(given, JARS, "", LOG_FILE)["spark.kubernetes.driver.pod.name"]
    assert len(pod) <= 63
    assert pod.startswith("nightly-xxx")


def test_the_same_account_submits_unless_another_is_set() -> None:
    prefix = "spark.kubernetes.authenticate"
    settings = submitted(PODS, **{f"{prefix}.oauthTokenFile": "/t", f"{prefix}.caCertFile": "/ca"})
    assert settings[f"{prefix}.submission.oauthTokenFile"] == "/t"
    assert settings[f"{prefix}.submission.caCertFile"] == "/ca"
    given = {f"{prefix}.oauthTokenFile": "/t", f"{prefix}.submission.oauthTokenFile": "/other"}
    assert submitted(PODS, **given)[f"{prefix}.submission.oauthTokenFile"] == "/other"


def test_names_of_secrets_are_no_secrets() -> None:
    key = "spark.kubernetes.driver.secretKeyRef.S3_SECRET_KEY"
    assert submitted(PODS, **{key: "keys:secret"})[key] == "keys:secret"
