"""HDFS and YARN on this machine, as Hadoop's own mini cluster."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

import pyspark

from tests.support.postgres import free_port
from tests.support.waiting import wait_until
from tidegate_server.engine.jvm.jars import Jar, fetch_jars
from tidegate_server.gateway.link.java import find_java

_SHIPPED: Final = Path(pyspark.__file__).parent / "jars"
_HADOOP: Final = "3.4.2"
"""That of PySpark, which has Hadoop's client."""
_JARS: Final = (
    Jar("org.apache.hadoop", "hadoop-client-minicluster", _HADOOP),
    *(
        Jar("org.apache.hadoop", f"hadoop-mapreduce-client-{name}", _HADOOP)
        for name in ("app", "common", "shuffle")
    ),
    *(Jar("org.bouncycastle", f"bc{name}-jdk18on", "1.78.1") for name in ("prov", "pkix", "util")),
    # Java has these no longer.
    Jar("javax.xml.bind", "jaxb-api", "2.3.1"),
    Jar("com.sun.xml.bind", "jaxb-core", "2.3.0.1"),
    Jar("com.sun.xml.bind", "jaxb-impl", "2.3.1"),
    Jar("com.sun.activation", "javax.activation", "1.2.0"),
    Jar("junit", "junit", "4.13.2"),
    Jar("org.hamcrest", "hamcrest-core", "1.3"),
    Jar("org.mockito", "mockito-core", "4.11.0"),
)
_OPENED: Final = ("java.lang", "java.net", "java.nio", "java.util", "java.util.concurrent")
_PORTS: Final = (
    *(f"yarn.resourcemanager.{name}.address" for name in ("scheduler", "resource-tracker")),
    *(f"yarn.resourcemanager.{name}.address" for name in ("admin", "webapp")),
    *("mapreduce.jobhistory.address", "mapreduce.jobhistory.webapp.address"),
)
_QUEUES: Final = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
}
_NODE: Final = {
    "yarn.nodemanager.vmem-check-enabled": "false",
    # The mini cluster overrides the node manager's own setting with this one.
    "yarn.minicluster.yarn.nodemanager.resource.memory-mb": "12288",
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99",
}
_SECONDS: Final = 240.0


@dataclass(frozen=True, slots=True)
class Yarn:
    """A running cluster."""

    configuration: Path
    """The directory for HADOOP_CONF_DIR."""
    files: str
    """The URI of HDFS."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of Spark for an engine with one small executor."""
        return {
            "spark.sql.warehouse.dir": f"{self.files}/warehouse",
            "spark.yarn.jars": f"local:{_SHIPPED}/*",  # all nodes have them
            "spark.executor.instances": "1",
            "spark.executor.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }


@contextmanager
def running_yarn(folder: Path) -> Iterator[Yarn]:
    """Start a cluster with one node, whose files end with it."""
    java = find_java().home
    queues, site, details = folder / "queues", folder / "site", folder / "details.json"
    for place in (queues, site):
        place.mkdir()
    _write(queues / "capacity-scheduler.xml", _QUEUES)
    addresses = {key: f"127.0.0.1:{free_port()}" for key in _PORTS}
    manager = free_port()
    given = [w for k, v in {**addresses, **_NODE}.items() for w in ("-D", f"{k}={v}")]
    jars = ":".join(map(str, fetch_jars(_JARS, str(java))))
    opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in (*_OPENED, "sun.nio.ch")]
    command = [str(java / "bin" / "java"), "-Xmx700m", "-XX:TieredStopAtLevel=1", *opens]
    command += ["-cp", f"{queues}:{jars}:{_SHIPPED}/*"]
    command += ["org.apache.hadoop.mapreduce.MiniHadoopClusterManager", "-format", *given]
    command += ["-rmport", str(manager), "-writeDetails", str(details)]
    with (folder / "yarn.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)

    def is_up() -> bool:
        assert process.poll() is None, f"the cluster ended: {folder / 'yarn.log'}"
        return details.exists() and details.stat().st_size > 0

    try:
        wait_until(is_up, "the cluster did not come up", _SECONDS)
        files = f"hdfs://localhost:{json.loads(details.read_text())['namenode_port']}"
        _write(site / "core-site.xml", {"fs.defaultFS": files})
        _write(
            site / "yarn-site.xml",
            {"yarn.resourcemanager.address": f"127.0.0.1:{manager}", **addresses},
        )
        yield Yarn(site, files)
    finally:
        process.kill()
        process.wait()


def _write(file: Path, values: Mapping[str, str]) -> None:
    """Write a file of Hadoop's configuration."""
    lines = (
        f"<property><name>{key}</name><value>{escape(value)}</value></property>"
        for key, value in values.items()
    )
    file.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))
