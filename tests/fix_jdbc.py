"""Hive's own JDBC drivers of several generations, each driven in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.fix_server import Server
from tidegate_server.engine.jars import cache_dir
from tidegate_server.link.java import find_java

VERSIONS = ("3.1.3", "4.0.1", "4.1.0")
_PROGRAM = Path(__file__).parent / "e2e" / "jdbc_program.py"
_SHIPPED = Path(pyspark.__file__).parent / "jars"
# What the standalone drivers expect their application to bring along.
_BESIDE = (
    "slf4j-api*",
    "hadoop-client-api*",
    "hadoop-client-runtime*",
    "commons-logging*",
    "log4j-1.2-api*",
    "log4j-api*",
    "log4j-core*",
    "log4j-slf4j2-impl*",
)
_IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tidegate" module="tests"/>
  <dependencies>
    <dependency org="org.apache.hive" name="hive-jdbc" rev="{version}" transitive="false">
      <artifact name="hive-jdbc" type="jar" ext="jar" m:classifier="standalone"/>
    </dependency>
  </dependencies>
</ivy-module>
"""

Ask = Callable[..., dict[str, Any]]


@pytest.fixture(params=VERSIONS)
def jdbc(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> Ask:
    """Run steps through one driver: ``ask(steps, url="...")`` returns what each step gave."""
    jars = [_driver(request.param, tmp_path), *(j for p in _BESIDE for j in _SHIPPED.glob(p))]

    def ask(*steps: tuple[str, ...], url: str = "default") -> dict[str, Any]:
        asked = json.dumps(
            {"jars": [str(j) for j in jars], "url": server.url + url, "steps": steps}
        )
        done = subprocess.run(
            [sys.executable, str(_PROGRAM)],
            input=asked,
            capture_output=True,
            text=True,
            timeout=300,
            env={"JAVA_HOME": str(find_java().home)},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answers

    return ask


def _driver(version: str, work: Path) -> Path:
    """Return the standalone jar, fetched by Ivy when the cache lacks it."""
    jar = cache_dir() / f"hive-jdbc-{version}-standalone.jar"
    if jar.exists():
        return jar
    description = work / "ivy.xml"
    description.write_text(_IVY.format(version=version))
    command = [
        str(find_java().home / "bin" / "java"),
        "-cp",
        f"{_SHIPPED}/*",
        "org.apache.ivy.Main",
    ]
    command += ["-cache", str(work / "ivy"), "-ivy", str(description)]
    command += ["-retrieve", str(work / "[artifact]-[revision].[ext]")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    fetched = work / f"hive-jdbc-{version}.jar"
    assert fetched.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    cache_dir().mkdir(parents=True, exist_ok=True)
    return fetched.rename(jar)
