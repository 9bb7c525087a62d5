"""Real servers: the gateway's process with its engine, started as a user starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

import tidegate
from tests.small import SHORT_LIVED
from tidegate_server.gateway.link.java import find_java

ENGINE_SECONDS = 240.0
LISTEN_SECONDS = 30.0
STOP_SECONDS = 60.0
EVENTUALLY_SECONDS = 60.0
QUICK = (
    "--set=engine.master=local[2]",
    "--set=engine.driver_memory=1g",
)
"""Settings that suit a small machine."""
AS_SHIPPED = {"spark.sql.shuffle.partitions": "2"}
"""Settings of Spark's for a server on which queries run as a user's do."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running gateway."""

    process: subprocess.Popen[bytes]
    data: Path
    ready_file: Path
    output: Path

    @property
    def pid(self) -> int:
        """The gateway's process id."""
        return self.process.pid

    @property
    def host(self) -> str:
        """Where it listens."""
        return str(self.told()["host"])

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.told()["port"])

    @property
    def url(self) -> str:
        """The JDBC URL."""
        return f"jdbc:hive2://{self.host}:{self.port}/"

    @property
    def engine_pid(self) -> int:
        """The process id of the engine that is up; waits for one."""
        return int(self.wait_for_engine()["pid"])

    def told(self) -> dict[str, Any]:
        """Return what the gateway's ready file says."""
        told: dict[str, Any] = json.loads(self.ready_file.read_text())
        return told

    def connect(self, **options: Any) -> tidegate.Connection:
        """Open a connection of the driver."""
        return tidegate.connect(host=self.host, port=self.port, **options)

    def wait_for_engine(self, other_than: int | None = None) -> dict[str, Any]:
        """Wait until an engine is up and return what it says of itself."""
        engine: dict[str, Any] = self._wait(
            ENGINE_SECONDS,
            "the engine",
            lambda: (found := self.told()["engine"]) and found["pid"] != other_than and found,
        )
        return engine

    def wait_for_port(self) -> None:
        """Wait until the gateway listens."""
        self._wait(LISTEN_SECONDS, "the gateway", self.ready_file.exists)

    def processes(self) -> list[psutil.Process]:
        """Return the gateway and everything that descends from it."""
        gateway = psutil.Process(self.pid)
        return [gateway, *gateway.children(recursive=True)]

    def stop(self) -> int:
        """Ask the gateway to stop and return its exit code."""
        self.process.terminate()
        return self.process.wait(STOP_SECONDS)

    def logs(self, lines: int = 40) -> str:
        """Return the ends of everything that was written down."""
        files = [self.output, *sorted((self.data / "logs").glob("*.log"))]
        parts = []
        for file in files:
            text = file.read_text("utf-8", "replace").splitlines()[-lines:]
            parts.append("\n".join((f"---- {file.name}", *text)))
        return "\n".join(parts)

    def _wait(self, seconds: float, what: str, look: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := look()):
            code = self.process.poll()
            if code is not None:
                pytest.fail(f"the gateway ended with exit code {code}\n{self.logs()}")
            if time.monotonic() > deadline:
                pytest.fail(f"{what} did not come up within {seconds:g} s\n{self.logs()}")
            time.sleep(0.05)
        return found


@contextmanager
def running_server(
    folder: Path,
    *arguments: str,
    python: str = sys.executable,
    settings: Mapping[str, str] = SHORT_LIVED,
) -> Iterator[Server]:
    """Start a gateway on a free port with its data in ``folder``; ends whatever is left of it."""
    folder.mkdir(parents=True, exist_ok=True)
    ready_file = folder / "ready.json"
    ready_file.unlink(missing_ok=True)
    command = [python, "-m", "tidegate_server", "--data", str(folder / "data")]
    command += ["--port", "0", "--ready-file", str(ready_file), *QUICK]
    command += [f"--set=engine.settings.{key}={value}" for key, value in settings.items()]
    command += arguments
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TIDEGATE_SERVER")}
    output = folder / "output.log"
    with output.open("ab") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, env=environment)
    server = Server(process, folder / "data", ready_file, output)
    try:
        server.wait_for_port()
        yield server
    finally:
        if process.poll() is None:
            server.process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                for left in server.processes():
                    left.kill()
                process.wait()


def running_tasks(server: Server) -> int:
    """Count the threads that run a task of Spark, by a dump of the engine's Java threads."""
    engine = server.wait_for_engine()
    output: Path = server.data / "logs" / "engine-out.log"
    start = output.stat().st_size
    os.kill(engine["jvm_pid"], signal.SIGQUIT)

    def dump() -> bytes:
        with output.open("rb") as file:
            file.seek(start)
            return file.read()

    eventually(lambda: b"JNI global ref" in dump(), "a dump of the threads")
    return dump().count(b"Executor$TaskRunner.run(")


def eventually(look: Callable[[], bool], what: str) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + EVENTUALLY_SECONDS
    while not look():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not come")
        time.sleep(0.1)


Rows = list[tuple[Any, ...]]
Run = Callable[..., Rows]


def last_rows(cursor: tidegate.Cursor, *statements: str) -> Rows:
    """Execute statements and return the rows of the last one."""
    rows: Rows = []
    for statement in statements:
        cursor.execute(statement)
        rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
    return rows


def sorted_rows(cursor: tidegate.Cursor, *statements: str) -> Rows:
    """Execute statements and return the rows of the last one in a fixed order."""
    return sorted(last_rows(cursor, *statements), key=repr)


def named_rows(server: Server, *statements: str) -> list[dict[str, object]]:
    """Execute statements in one session and return the rows of the last one by column."""
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        rows = last_rows(cursor, *statements)
        names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in rows]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of the whole test session, its engine up."""
    with running_server(tmp_path_factory.mktemp("server"), settings=AS_SHIPPED) as server:
        server.wait_for_engine()
        yield server


StartServer = Callable[..., Server]


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Starts servers of a test's own, all on the same data unless told otherwise."""
    with ExitStack() as stack:

        def start(*arguments: str, folder: str = "server") -> Server:
            return stack.enter_context(running_server(tmp_path / folder, *arguments))

        yield start


_SPARK_HOME = Path(pyspark.__file__).parent


@dataclass(frozen=True, slots=True)
class Beeline:
    """Runs PySpark's own beeline."""

    home: Path
    url: str

    def command(self, *options: str) -> list[str]:
        """Return the command that connects to the server."""
        return [str(_SPARK_HOME / "bin" / "beeline"), *options, "-u", self.url]

    def environment(self) -> dict[str, str]:
        """Return what it needs to know of the machine."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(_SPARK_HOME),
        }

    def run(
        self, *statements: str, options: Sequence[str] = (), user: str = "tester"
    ) -> subprocess.CompletedProcess[str]:
        """Run statements in one session and return what beeline printed."""
        command = self.command("--outputformat=csv2", *options, "-n", user)
        for statement in statements:
            command += ["-e", statement if statement.startswith("!") else f"{statement};"]
        return subprocess.run(
            command,
            env=self.environment(),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def rows(self, *statements: str) -> list[list[str]]:
        """Run statements and return the cells of all results, each with its header."""
        done = self.run(*statements, options=("--silent=true",))
        assert done.returncode == 0, done.stderr + done.stdout
        return [line.split(",") for line in done.stdout.splitlines() if line]


@pytest.fixture
def beeline(server: Server, tmp_path: Path) -> Beeline:
    """Beeline on the session's server."""
    return Beeline(tmp_path, server.url)
