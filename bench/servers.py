"""Starts the measured servers, each in its own directory, with the same settings."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import impala.dbapi
import psutil
import pyspark

import tidegate

DRIVER_MEMORY = "2g"
SETTINGS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server and its name in the output."""

    name: str
    port: int
    pid: int
    started_in: float
    """Seconds from its start to the first answered query."""


def machine() -> str:
    """Return a description of the machine and the versions."""
    memory = psutil.virtual_memory().total / (1 << 30)
    return (
        f"{os.cpu_count()} CPUs, {memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, Spark {pyspark.__version__}, "
        f"tidegate {tidegate.__version__}"
    )


@contextlib.contextmanager
def spark_thrift_server(directory: Path) -> Iterator[Server]:
    """Run the Thrift server that ships with Spark, with its own warehouse."""
    port = free_port()
    home = Path(pyspark.__file__).parent
    settings = {
        **SETTINGS,
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={directory / 'metastore'};create=true"
        ),
    }
    command = [
        str(home / "bin" / "spark-submit"),
        "--class",
        "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2",
        "--master",
        "local[*]",
        "--driver-memory",
        DRIVER_MEMORY,
        "--driver-java-options",
        f"-Dderby.system.home={directory}",
        *(part for key, value in settings.items() for part in ("--conf", f"{key}={value}")),
        "spark-internal",
        "--hiveconf",
        f"hive.server2.thrift.port={port}",
        "--hiveconf",
        "hive.server2.thrift.bind.host=127.0.0.1",
    ]
    environment = {**os.environ, "SPARK_HOME": str(home)}
    with _running("spark", command, directory, port, environment) as server:
        yield server


@contextlib.contextmanager
def tidegate_server(
    directory: Path,
    *,
    sections: str = "",
    flight_port: int = -1,
    wait_for_engine: bool = True,
    master: str = "local[*]",
    driver_memory: str = DRIVER_MEMORY,
) -> Iterator[Server]:
    """Run a gateway with its engine on the data in a directory.

    :param sections: further sections of its configuration.
    :param flight_port: the port of Flight SQL; -1 for none.
    :param master: Spark's master for the engine.
    :param driver_memory: the heap of the engine's JVM.
    """
    port = free_port()
    file = directory / "tidegate.toml"
    settings = "\n".join(f'"{key}" = "{value}"' for key, value in SETTINGS.items())
    file.write_text(
        f"data = '{directory / 'data'}'\n"
        f"[server]\nport = {port}\nflight_port = {flight_port}\n"
        f"[engine]\nmaster = '{master}'\ndriver_memory = '{driver_memory}'\n"
        f"[engine.settings]\n{settings}\n{sections}\n",
        "utf-8",
    )
    command = [sys.executable, "-m", "tidegate_server", "--config", str(file)]
    environment = dict(os.environ)
    with _running("tidegate", command, directory, port, environment, wait_for_engine) as server:
        yield server


@contextlib.contextmanager
def _running(
    name: str,
    command: list[str],
    directory: Path,
    port: int,
    environment: dict[str, str],
    answering: bool = True,
) -> Iterator[Server]:
    """Run a server until it listens, or has answered a query, and end it with its children."""
    log = directory / "server.log"
    start = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait_for_port(process, port, log)
        if answering:
            _wait_for_answer(port)
        yield Server(name=name, port=port, pid=process.pid, started_in=time.perf_counter() - start)
    finally:
        _end(process)


def _wait_for_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            break
        time.sleep(0.05)
    else:
        raise SystemExit(f"no server on port {port} after 180 s:\n{_tail(log)}")
    if process.poll() is not None:
        raise SystemExit(f"the server ended at its start:\n{_tail(log)}")


def _wait_for_answer(port: int) -> None:
    connection = impala.dbapi.connect(
        host="127.0.0.1", port=port, auth_mechanism="PLAIN", user="bench"
    )
    cursor = connection.cursor()
    cursor.execute("SELECT 1")
    cursor.fetchall()
    cursor.close()
    connection.close()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-30:])


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        parent = psutil.Process(process.pid)
        family = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    process.terminate()
    _, alive = psutil.wait_procs(family, timeout=20)
    for survivor in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            survivor.kill()
    process.wait(20)


def free_port() -> int:
    """Return a port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
