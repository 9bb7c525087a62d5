"""A refresh that is killed half-way leaves the whole version before it."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import closing, suppress

import psutil
import pytest

import tidegate
from tests.fix_server import Server, StartServer

pytestmark = pytest.mark.faults

SLEEP = "reflect('java.lang.Thread', 'sleep', pause)"


def rows(server: Server, *statements: str) -> list[tuple[object, ...]]:
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        for statement in statements:
            cursor.execute(statement)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


def states(server: Server) -> list[str]:
    """Return the states of the table's runs, newest first; answered without an engine."""
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SHOW REFRESH HISTORY FOR mt")
        names = [column[0] for column in cursor.description or ()]
        return [str(dict(zip(names, row, strict=True))["state"]) for row in cursor.fetchall()]


def until_running(server: Server) -> None:
    deadline = time.monotonic() + 60
    while states(server)[0] != "RUNNING":
        assert time.monotonic() < deadline, "the refresh did not begin"
        time.sleep(0.1)
    time.sleep(2)  # into the Spark job: its rows sleep for twenty seconds


def begin_slow_refresh(server: Server) -> threading.Thread:
    """Start a refresh whose query takes twenty seconds, and return once it runs."""
    rows(
        server,
        "CREATE TABLE src (k STRING, n INT, pause BIGINT) USING DELTA",
        "INSERT INTO src VALUES ('a', 1, 0)",
        "CREATE MATERIALIZED TABLE mt FRESHNESS = INTERVAL '1' HOUR REFRESH_MODE = FULL AS "
        f"SELECT k, sum(n) AS total FROM src WHERE coalesce({SLEEP}, '') <> 'never' GROUP BY k",
        "ALTER MATERIALIZED TABLE mt REFRESH",
        "INSERT INTO src VALUES ('a', 1, 20000), ('b', 5, 0)",
    )
    assert rows(server, "SELECT * FROM mt") == [("a", 1)]

    def refresh() -> None:
        with suppress(tidegate.Error):  # its server or its engine is about to be killed
            rows(server, "ALTER MATERIALIZED TABLE mt REFRESH")

    thread = threading.Thread(target=refresh)
    thread.start()
    until_running(server)
    return thread


def check_recovered(server: Server) -> None:
    """The old version stands, the run is settled, and the next refresh equals the query."""
    assert rows(server, "SELECT * FROM mt") == [("a", 1)]
    assert states(server)[0] in ("FAILED", "ABANDONED")
    rows(server, "UPDATE src SET pause = 0", "ALTER MATERIALIZED TABLE mt REFRESH")
    assert rows(server, "SELECT * FROM mt ORDER BY k") == [("a", 2), ("b", 5)]
    assert states(server)[0] == "SUCCEEDED"


def test_a_gateway_killed_in_a_refresh_leaves_the_old_version(start_server: StartServer) -> None:
    server = start_server()
    asking = begin_slow_refresh(server)
    everything = server.processes()
    server.process.kill()
    asking.join()
    assert psutil.wait_procs(everything, timeout=30)[1] == []

    again = start_server()
    again.wait_for_engine()
    check_recovered(again)


def test_an_engine_killed_in_a_refresh_leaves_the_old_version(start_server: StartServer) -> None:
    server = start_server()
    asking = begin_slow_refresh(server)
    first = server.wait_for_engine()
    os.kill(first["pid"], signal.SIGKILL)
    asking.join()
    server.wait_for_engine(other_than=first["pid"])
    check_recovered(server)
