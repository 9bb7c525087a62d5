"""Starting, stopping, and dying: nothing is lost and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

import tidegate
from tests.support.fixtures.server import Server, StartServer, last_rows, running_server
from tests.support.full_run import FULL

pytestmark = pytest.mark.faults

RETRIABLE = "08006"
ENDLESS = "SELECT count(*) FROM range(1000000000) a JOIN range(1000000) b"


def fetch(server: Server, *statements: str) -> list[tuple[object, ...]]:
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        return last_rows(cursor, *statements)


def survivors(processes: list[psutil.Process], seconds: float = 30.0) -> list[psutil.Process]:
    """Wait until the processes are gone and return those that are not."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return alive


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def run_beside(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidegate_server", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose engine is killed."""
    with running_server(tmp_path_factory.mktemp("mortal")) as server:
        yield server


def test_a_server_answers_from_its_start_until_ctrl_c(start_server: StartServer) -> None:
    server = start_server()
    assert fetch(server, "SHOW MATERIALIZED TABLES") == []
    assert server.ready_info()["engine"] is None, "an answer without Spark waits for no engine"
    assert fetch(server, "SELECT 1 AS one") == [(1,)]
    everything = server.processes()
    assert any("java" in process.name() for process in everything)
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute_async(ENDLESS)  # nor does its end wait for a statement
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0
        assert survivors(everything) == []


def test_ctrl_c_stops_a_server_whose_engine_is_still_starting(start_server: StartServer) -> None:
    server = start_server()
    wait_until(lambda: any("java" in process.name() for process in server.processes()))
    everything = server.processes()
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(60) == 0
    assert survivors(everything) == []


def test_sessions_outlive_a_killed_engine(mortal: Server) -> None:
    first = mortal.wait_for_engine()
    jvm = psutil.Process(first["jvm_pid"])
    with (
        closing(mortal.connect()) as connection,
        closing(connection.cursor()) as cursor,
        closing(mortal.connect()) as other,
        closing(other.cursor()) as busy,
    ):
        cursor.execute("CREATE SCHEMA kept")
        cursor.execute("USE kept")
        cursor.execute("SET spark.sql.shuffle.partitions=7")
        busy.execute("SELECT 1")
        busy.execute_async(ENDLESS)
        time.sleep(1)
        os.kill(first["pid"], signal.SIGKILL)

        with pytest.raises(tidegate.OperationalError) as caught:
            busy.fetchall()
        assert caught.value.sqlstate == RETRIABLE
        # Lists are answered while there is no engine.
        assert fetch(mortal, "SHOW MATERIALIZED TABLES") == []
        assert mortal.ready_info()["engine"]["pid"] == first["pid"], "another engine is up already"

        busy.execute("SELECT 2")
        assert tuple(busy.fetchone() or ()) == (2,)
        cursor.execute("SELECT current_schema(), 1")
        assert [tuple(row) for row in cursor.fetchall()] == [("kept", 1)]
        cursor.execute("SET spark.sql.shuffle.partitions")
        assert "7" in [str(cell) for cell in tuple(cursor.fetchone() or ())]
    mortal.wait_for_engine(other_than=first["pid"])
    assert survivors([jvm]) == []


@pytest.mark.skipif(not FULL, reason="for the long run; test_crash_definitions kills a JVM, too")
def test_a_killed_jvm_is_replaced(mortal: Server) -> None:
    first = mortal.wait_for_engine()
    os.kill(first["jvm_pid"], signal.SIGKILL)
    mortal.wait_for_engine(other_than=first["pid"])
    assert fetch(mortal, "SELECT 1 AS one") == [(1,)]


def test_a_second_gateway_on_the_same_data_is_refused(mortal: Server) -> None:
    done = run_beside("--data", str(mortal.data), "--port", "0")
    assert done.returncode == 2
    assert f"process id {mortal.pid}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_second_gateway_on_the_same_port_is_refused(mortal: Server, tmp_path: Path) -> None:
    done = run_beside("--data", str(tmp_path / "other"), "--port", str(mortal.port))
    assert done.returncode == 2
    assert done.stderr == (
        f"tidegate-server: Another program listens on 127.0.0.1:{mortal.port}: "
        "stop it or choose another --port.\n"
    )


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    command = [sys.executable, "-m", "tidegate_server", "--data", str(file / "data"), "--port=0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert str(file / "data") in done.stderr
    assert len(done.stderr.splitlines()) == 1
