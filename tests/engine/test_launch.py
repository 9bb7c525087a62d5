"""Settings reach the JVM by a private file that is gone once it was read."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.support.engine_options import engine_options
from tidegate_server.core.errors import ServerError
from tidegate_server.engine.jvm import launch
from tidegate_server.engine.jvm.session import Directories, spark_settings

_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(st.dictionaries(_text, _text, max_size=4))
def test_every_character_survives_a_properties_file(settings: dict[str, str]) -> None:
    text = launch.as_properties(settings)
    assert text.isascii()
    lines = [line.split("=") for line in text.splitlines()]
    unescaped = {_unescaped(key): _unescaped(value) for key, value in lines}
    assert unescaped == settings


def _unescaped(text: str) -> str:
    units = text.encode("ascii").decode("unicode_escape")
    return units.encode("utf-16", "surrogatepass").decode("utf-16")


@pytest.mark.parametrize(
    ("rights", "mask"),
    [({}, "077"), ({"group_reads": True}, "027"), ({"group_writes": True}, "007")],
)
def test_hadoop_writes_files_with_the_rights_of_the_server(
    tmp_path: Path, rights: dict[str, bool], mask: str
) -> None:
    settings = spark_settings(
        engine_options(data=str(tmp_path), **rights), Directories(tmp_path), ()
    )
    assert settings["spark.hadoop.fs.permissions.umask-mode"] == mask


def test_jars_of_the_user_are_added_to_the_class_path(tmp_path: Path) -> None:
    given = engine_options(
        data=str(tmp_path), settings={"spark.driver.extraClassPath": "/opt/driver.jar"}
    )
    settings = spark_settings(given, Directories(tmp_path), (Path("/cache/delta.jar"),))
    assert settings["spark.driver.extraClassPath"] == "/cache/delta.jar:/opt/driver.jar"


@pytest.mark.parametrize("kind", ["driver", "executor"])
def test_java_options_of_the_user_are_added(tmp_path: Path, kind: str) -> None:
    key = f"spark.{kind}.extraJavaOptions"
    given = engine_options(data=str(tmp_path), settings={key: "-Xss8m"})
    options = spark_settings(given, Directories(tmp_path), ())[key].split()
    assert "-Xss4m" in options[:-1]
    assert options[-1] == "-Xss8m"  # of two values, Java uses the last one


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, "/opt/iceberg.jar:/opt/driver.jar"),
        ("/a.jar", "/a.jar:/opt/iceberg.jar:/opt/driver.jar"),
    ],
)
def test_further_jars_come_after_those_of_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, expected: str
) -> None:
    def start() -> None:
        *jars, classes = os.environ["SPARK_DIST_CLASSPATH"].split(":")
        assert ":".join(jars) == expected
        assert Path(classes).parent == tmp_path
        raise _StartedError

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(launch, "launch_gateway", start)
    monkeypatch.delenv("SPARK_DIST_CLASSPATH", raising=False)
    if given is not None:
        monkeypatch.setenv("SPARK_DIST_CLASSPATH", given)
    with pytest.raises(_StartedError):
        launch.start_jvm(
            {"spark.delta.logStore.file.impl": launch.LOG_STORE},
            tmp_path,
            ["/opt/iceberg.jar", "/opt/driver.jar"],
        )
    assert os.environ.get("SPARK_DIST_CLASSPATH") == given


def test_only_an_engine_among_others_asks_for_a_secret_on_its_ports(tmp_path: Path) -> None:
    places = Directories(tmp_path)
    assert "spark.authenticate" not in spark_settings(
        engine_options(data=str(tmp_path)), places, ()
    )
    among_others = spark_settings(engine_options(data=str(tmp_path), alone=False), places, ())
    assert among_others["spark.authenticate"] == "true"


def test_an_engine_does_not_use_a_directory_of_another_account(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    work = tmp_path / "ann"
    work.mkdir()
    os.chown(work, 12345, -1)
    with pytest.raises(ServerError, match="it belongs to another account"):
        Directories(tmp_path, work).prepare()
    assert list(work.iterdir()) == []


class _StartedError(Exception):
    """Ends a start where the JVM would be started."""


@pytest.mark.parametrize("given", [None, "--name x pyspark-shell"])
def test_the_file_is_private_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    seen: dict[str, Any] = {}

    def start() -> None:
        seen["arguments"] = os.environ["PYSPARK_SUBMIT_ARGS"]
        (file,) = tmp_path.rglob("spark.properties")
        seen["file"], seen["text"] = file, file.read_text()
        seen["modes"] = [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)]
        raise _StartedError

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(launch, "launch_gateway", start)
    if given is None:
        monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    else:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", given)
    before = os.umask(0)
    try:
        with pytest.raises(_StartedError):
            launch.start_jvm({"a.password": "hush"}, tmp_path)
    finally:
        os.umask(before)
    assert seen["modes"] == [0o700, 0o600]
    assert seen["text"] == "a\\u002epassword=hush\n"
    assert "hush" not in seen["arguments"]
    assert seen["arguments"].endswith(given or "pyspark-shell")
    assert os.environ.get("PYSPARK_SUBMIT_ARGS") == given
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_long_answers_of_the_jvm_are_sent_at_once(spark_root: SparkSession) -> None:
    gateway: Any = spark_root.sparkContext._gateway
    listeners = gateway.java_gateway_server.getListeners()
    assert "tidegate.PromptAnswers" in {each.getClass().getName() for each in listeners}
