"""A refresh that is killed half-way leaves the whole version before it."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import closing, suppress

import pytest

import tidegate
from tests.support.fixtures.server import Server, StartServer, last_rows
from tests.support.full_run import FULL

pytestmark = pytest.mark.faults

SLEEP = "reflect('java.lang.Thread', 'sleep', pause)"


def rows(server: Server, *statements: str) -> list[tuple[object, ...]]:
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        return last_rows(cursor, *statements)


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


def prepare(server: Server) -> None:
    """Make a table whose refresh takes as long as its source says."""
    rows(
        server,
        "CREATE TABLE src (k STRING, n INT, pause BIGINT) USING DELTA",
        "INSERT INTO src VALUES ('a', 1, 0)",
        "CREATE MATERIALIZED TABLE mt FRESHNESS = INTERVAL '1' HOUR REFRESH_MODE = FULL AS "
        f"SELECT k, sum(n) AS total FROM src WHERE coalesce({SLEEP}, '') <> 'never' GROUP BY k",
        "ALTER MATERIALIZED TABLE mt REFRESH",
    )
    assert content(server) == {"a": 1}


def begin_slow_refresh(server: Server) -> threading.Thread:
    """Add one to a's total, start a refresh that takes twenty seconds, return once it runs."""
    rows(server, "INSERT INTO src VALUES ('a', 1, 20000)")

    def refresh() -> None:
        with suppress(tidegate.Error):  # its server or its engine is about to be killed
            rows(server, "ALTER MATERIALIZED TABLE mt REFRESH")

    thread = threading.Thread(target=refresh)
    thread.start()
    until_running(server)
    return thread


def content(server: Server) -> dict[object, object]:
    return {row[0]: row[1] for row in rows(server, "SELECT * FROM mt")}


def check_recovered(server: Server, total: int) -> None:
    """The old version is unchanged, the run has ended, and the next refresh equals the query."""
    assert content(server) == {"a": total}
    assert states(server)[0] in ("FAILED", "ABANDONED")
    rows(server, "UPDATE src SET pause = 0", "ALTER MATERIALIZED TABLE mt REFRESH")
    assert content(server) == {"a": total + 1}
    assert states(server)[0] == "SUCCEEDED"


def test_who_is_killed_in_a_refresh_leaves_the_old_version(start_server: StartServer) -> None:
    server = start_server()
    prepare(server)
    asking = begin_slow_refresh(server)
    with server.killed():
        asking.join()
    server = start_server()
    assert rows(server, "SHOW MATERIALIZED TABLES") == [("mt",)]
    server.wait_for_engine()
    check_recovered(server, total=1)
    if not FULL:
        return  # of the deaths of engines, the matrix has one in every run

    asking = begin_slow_refresh(server)
    first = server.wait_for_engine()
    os.kill(first["pid"], signal.SIGKILL)
    asking.join()
    server.wait_for_engine(other_than=first["pid"])
    check_recovered(server, total=2)
