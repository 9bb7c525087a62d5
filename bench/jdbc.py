"""Hive's JDBC drivers as clients: downloaded once, used by a small Java program."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pyspark

from tidegate_server.engine.jvm.jars import cache_dir
from tidegate_server.gateway.link.java import find_java

SHIPPED = "2.3.10"
"""The version that comes with PySpark."""
_JARS = Path(pyspark.__file__).parent / "jars"
_PROGRAM = Path(__file__).with_name("Fetch.java")
# Libraries that the standalone drivers expect from their application.
_BESIDE = ("slf4j-api*", "hadoop-client-api*", "hadoop-client-runtime*", "commons-logging*")
_LOGGING = ("log4j-1.2-api*", "log4j-api*", "log4j-core*", "log4j-slf4j2-impl*")
_IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tidegate" module="bench"/>
  <dependencies>
    <dependency org="org.apache.hive" name="hive-jdbc" rev="{version}" transitive="false">
      <artifact name="hive-jdbc" type="jar" ext="jar" m:classifier="standalone"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


def class_path(version: str) -> str:
    """Return the class path of a version of the driver; Ivy fetches what the cache lacks."""
    if version == SHIPPED:
        return f"{_JARS}/*"
    beside = (jar for pattern in (*_BESIDE, *_LOGGING) for jar in _JARS.glob(pattern))
    return ":".join(map(str, [standalone(version), *beside]))


def standalone(version: str) -> Path:
    """Return the standalone jar of a version."""
    jar = cache_dir() / f"hive-jdbc-{version}-standalone.jar"
    if jar.exists():
        return jar
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        description = work / "ivy.xml"
        description.write_text(_IVY.format(version=version), "utf-8")
        command = [_java(), "-cp", f"{_JARS}/*", "org.apache.ivy.Main"]
        command += ["-cache", str(work / "ivy"), "-ivy", str(description)]
        command += ["-retrieve", str(work / "[artifact]-[revision].[ext]")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        fetched = work / f"hive-jdbc-{version}.jar"
        if not fetched.exists():
            raise SystemExit(f"Ivy did not fetch {jar.name}:\n{done.stdout[-2000:]}")
        cache_dir().mkdir(parents=True, exist_ok=True)
        jar.write_bytes(fetched.read_bytes())
    return jar


def seconds(port: int, version: str, sql: str, rows: int, runs: int) -> dict[str, list[float]]:
    """Return the times of the runs by "small", which is SELECT 1, and "large", the query.

    The driver's own JVM is cold at first: callers leave the first runs out.
    """
    url = f"jdbc:hive2://127.0.0.1:{port}/default"
    command = [_java(), "-Xmx1g", "-cp", class_path(version), str(_PROGRAM), url, str(runs), sql]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"Hive JDBC {version} failed:\n{done.stderr[-2000:]}")
    found: dict[str, list[float]] = {"small": [], "large": []}
    for line in done.stdout.splitlines():
        what, count, took = line.split()
        if int(count) != (rows if what == "large" else 1):
            raise SystemExit(f"Hive JDBC {version} got {count} rows by {what!r}")
        found[what].append(float(took))
    return found


def _java() -> str:
    """Return the java of a JDK, which runs a program from its source."""
    return str(find_java().home / "bin" / "java")
