"""What a cluster sees of an engine that is submitted to it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tidegate_server.core.messages.requests import EngineOptions
from tidegate_server.engine.submission import app_name, submission_settings, submit_command

LOG_FILE = Path("/tmp/made/tidegate-log4j2.properties")
JARS = ("/cache/delta-spark.jar", "/opt/postgresql.jar")


def options(**others: Any) -> EngineOptions:
    return EngineOptions(
        socket="",
        data="/data",
        installation="0815",
        master="yarn",
        driver_memory="8g",
        java_home="",
        direct_bytes=1 << 20,
        spool_quota=1 << 20,
        **others,
    )


def submitted(**settings: str) -> dict[str, str]:
    return submission_settings(options(settings=settings), JARS, "invitation", LOG_FILE)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.hadoop.fs.s3a.secret.key", "hush"),
        ("spark.hadoop.javax.jdo.option.ConnectionPassword", "hush"),
        ("spark.hadoop.javax.jdo.option.ConnectionURL", "jdbc:postgresql://h/d?password=hush"),
    ],
)
def test_no_secret_is_submitted(key: str, value: str) -> None:
    assert "hush" not in str(submitted(**{key: value}))


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
    assert arguments[:4] == ["--master", "yarn", "--deploy-mode", "cluster"]
    assert Path(arguments[-1]).name == "agent.py"
