"""A standalone cluster of Spark whose workers do not see the gateway's files."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
import pytest

from tests.support.postgres import free_port
from tests.support.waiting import wait_until
from tidegate_server.gateway.link.java import find_java

_SPARK = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"


@dataclass(slots=True)
class StandaloneCluster:
    """A master and its workers."""

    port: int
    folder: Path
    master: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The master as Spark names it."""
        return f"spark://127.0.0.1:{self.port}"

    def add_worker(self, hidden: Sequence[Path], *, cores: int = 1, memory: str = "1g") -> None:
        """Start a worker that sees empty directories in the place of some of this machine's."""
        number = len(self.workers)
        words = [*_java(), f"{_DEPLOY}.worker.Worker", self.url, "--host", "127.0.0.1"]
        words += ["--cores", str(cores), "--memory", memory, "--webui-port", str(free_port())]
        words += ["--work-dir", str(self.folder / f"worker{number}")]
        mounts = "".join(f"mount -t tmpfs none {shlex.quote(str(path))} && " for path in hidden)
        self.workers.append(
            _start(
                ["unshare", "--mount", "sh", "-c", f"{mounts}exec {shlex.join(words)}"],
                self.folder / f"worker{number}.log",
            )
        )
        log = self.folder / f"worker{number}.log"
        wait_until(
            lambda: "Successfully registered with master" in log.read_text(),
            "the worker did not register",
        )

    def executors(self, number: int = 0) -> list[int]:
        """Return the process ids of the executors of a worker."""
        worker = self.workers[number].pid
        listed = subprocess.run(
            ["pgrep", "-P", str(worker)], capture_output=True, text=True, check=False
        )
        return [int(line) for line in listed.stdout.split()]


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[StandaloneCluster]:
    """Run a master without workers until the block ends, with all workers that are added."""
    if os.geteuid() != 0:
        pytest.skip("workers with file systems of their own need the rights to mount")
    folder.mkdir(parents=True, exist_ok=True)
    port, log = free_port(), folder / "master.log"
    words = [*_java(), f"{_DEPLOY}.master.Master", "--host", "127.0.0.1"]
    words += ["--port", str(port), "--webui-port", str(free_port())]
    cluster = StandaloneCluster(port, folder, _start(words, log))
    try:
        wait_until(lambda: "I have been elected leader" in log.read_text(), "no master")
        yield cluster
    finally:
        for process in (*cluster.workers, cluster.master):
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and those that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _java() -> list[str]:
    return [str(find_java().home / "bin" / "java"), "-Xmx256m", "-cp", f"{_SPARK}/jars/*"]


def _start(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                **os.environ,
                "SPARK_HOME": str(_SPARK),
                "JAVA_HOME": str(find_java().home),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_SCALA_VERSION": "2.13",  # as Spark's scripts set it
            },
        )
