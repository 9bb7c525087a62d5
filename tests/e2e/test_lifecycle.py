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

pytestmark = pytest.mark.faults

RETRIABLE = "08006"


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
    """A server whose engine is killed again and again."""
    with running_server(tmp_path_factory.mktemp("mortal")) as server:
        yield server


def test_a_server_answers_from_its_start_until_ctrl_c(start_server: StartServer) -> None:
    server = start_server()
    assert fetch(server, "SHOW MATERIALIZED TABLES") == []
    assert server.ready_info()["engine"] is None, "an answer without Spark waits for no engine"
    assert fetch(server, "SELECT 1 AS one") == [(1,)]
    everything = server.processes()
    assert any("java" in process.name() for process in everything)
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


def test_ctrl_c_does_not_wait_for_a_long_statement(start_server: StartServer) -> None:
    server = start_server()
    server.wait_for_engine()
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SELECT 1")
        cursor.execute_async("SELECT count(*) FROM range(1000000000) a JOIN range(1000000) b")
        everything = server.processes()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0
        assert survivors(everything) == []


def test_nothing_survives_a_killed_gateway_and_its_tables_are_there_again(
    start_server: StartServer,
) -> None:
    server = start_server()
    fetch(
        server,
        "CREATE TABLE src (id INT) USING DELTA",
        "INSERT INTO src VALUES (1), (2)",
        "CREATE MATERIALIZED TABLE mt FRESHNESS = INTERVAL '1' HOUR REFRESH_MODE = FULL "
        "AS SELECT count(*) AS n FROM src",
        "ALTER MATERIALIZED TABLE mt REFRESH",
    )
    everything = server.processes()
    server.process.kill()
    assert survivors(everything) == []

    again = start_server()
    assert any("mt" in row for row in fetch(again, "SHOW MATERIALIZED TABLES"))
    assert fetch(again, "SELECT n FROM mt") == [(2,)]


def test_a_killed_engine_is_replaced_and_sessions_go_on(mortal: Server) -> None:
    mortal.wait_for_engine()
    with closing(mortal.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("CREATE SCHEMA kept")
        cursor.execute("USE kept")
        cursor.execute("SET spark.sql.shuffle.partitions=7")
        first = mortal.engine_pid
        os.kill(first, signal.SIGKILL)
        mortal.wait_for_engine(other_than=first)

        cursor.execute("SELECT current_schema(), 1")
        assert [tuple(row) for row in cursor.fetchall()] == [("kept", 1)]
        cursor.execute("SET spark.sql.shuffle.partitions")
        assert "7" in [str(cell) for cell in tuple(cursor.fetchone() or ())]


def test_a_statement_fails_retriably_when_its_engine_is_killed(mortal: Server) -> None:
    mortal.wait_for_engine()
    with closing(mortal.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SELECT 1")
        first = mortal.wait_for_engine()
        cursor.execute_async("SELECT count(*) FROM range(1000000000) a JOIN range(1000000) b")
        time.sleep(1)
        os.kill(first["pid"], signal.SIGKILL)
        with pytest.raises(tidegate.OperationalError) as caught:
            cursor.fetchall()
        assert caught.value.sqlstate == RETRIABLE
        cursor.execute("SELECT 2")
        assert tuple(cursor.fetchone() or ()) == (2,)
    mortal.wait_for_engine(other_than=first["pid"])
    assert (
        survivors([psutil.Process(first["jvm_pid"])] if psutil.pid_exists(first["jvm_pid"]) else [])
        == []
    )


def test_a_killed_jvm_is_replaced(mortal: Server) -> None:
    first = mortal.wait_for_engine()
    os.kill(first["jvm_pid"], signal.SIGKILL)
    mortal.wait_for_engine(other_than=first["pid"])
    assert fetch(mortal, "SELECT 1 AS one") == [(1,)]


def test_metadata_and_lists_are_answered_while_the_engine_is_dead(mortal: Server) -> None:
    first = mortal.engine_pid
    os.kill(first, signal.SIGKILL)
    assert fetch(mortal, "SHOW MATERIALIZED TABLES") == []
    mortal.wait_for_engine(other_than=first)


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
