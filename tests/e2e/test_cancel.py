"""In whatever phase a statement is canceled, Spark soon does nothing more for it."""

from __future__ import annotations

import gzip
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import tidegate
from tests.e2e.test_interrupt import COUNTING, WRITING
from tests.support.fixtures.faults import Faults
from tests.support.fixtures.server import (
    AS_SHIPPED,
    Server,
    last_rows,
    named_rows,
    running_server,
    running_tasks,
    task_threads,
)
from tests.support.waiting import wait_until
from tidegate_server.core.faults import VARIABLE, Point

pytestmark = pytest.mark.spark

ENDLESS = "SELECT count(*) AS n FROM range(0, 100000000, 1, 1) a CROSS JOIN range(100000000) b"
FILE = "{file}"
AT_WORK = {
    "looking for the columns of a file": f"SELECT * FROM json.`{FILE}`",
    "looking at a definition": f"CREATE MATERIALIZED TABLE never AS SELECT * FROM json.`{FILE}`",
    "counting": COUNTING,
    "collecting a result": WRITING,
    "writing a table": "CREATE TABLE never USING delta AS SELECT id FROM range(100000000000)",
    "refreshing": "ALTER MATERIALIZED TABLE endless REFRESH",
    "taking rows of range one by one": "SELECT collect_set(id % 3) FROM range(100000000000)",
    "writing what a join makes of few rows": "CREATE TABLE never USING delta AS "
    "SELECT a.id, b.id AS other FROM few a JOIN few b ON a.id < b.id + 1000000",
    "writing what explode makes of few rows": "CREATE TABLE never USING delta AS "
    "SELECT id, explode(sequence(1, 1000000)) AS x FROM few",
    "computing what takes long for each row": "SELECT sum(size(filter(sequence(1, 500000), "
    "x -> x % 7 = id % 7))) FROM few",
}
"""Phases in which Spark's tasks run, each with a statement that stays long in it."""


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Faults:
    return Faults(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def slow_server(tmp_path_factory: pytest.TempPathFactory, faults: Faults) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(faults.folder))
        with running_server(tmp_path_factory.mktemp("cancel"), settings=AS_SHIPPED) as server:
            server.wait_for_engine()
            with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
                last_rows(cursor, "CREATE TABLE few USING delta AS SELECT id FROM range(100000)")
            wait_until(lambda: is_quiet(server), "the engine did not come to rest after its start")
            yield server


def is_quiet(server: Server) -> bool:
    """Tell whether no task ran for a while: between two there are pauses."""
    for _ in range(5):
        if running_tasks(server):
            return False
        time.sleep(0.3)
    return True


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows that Spark must all read to know the columns."""
    path: Path = tmp_path_factory.mktemp("rows") / "rows.json.gz"
    part = gzip.compress(b'{"a": 1, "b": "some text", "c": [1, 2, 3]}\n' * 20_000)
    path.write_bytes(part * 800)
    return path


@pytest.fixture
def cursor(slow_server: Server) -> Iterator[tidegate.Cursor]:
    with closing(slow_server.connect()) as connection, closing(connection.cursor()) as cursor:
        yield cursor


def assert_canceled(cursor: tidegate.Cursor, server: Server) -> None:
    """Assert that tasks end soon: within two seconds, or some more if the machine is busy.

    All statements at work would run for longer than that.
    """
    with pytest.raises(tidegate.Error, match="canceled by user"):
        cursor.wait()
    deadline = time.monotonic() + 10.0
    while (tasks := task_threads(server)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert tasks == []
    assert last_rows(cursor, "SELECT 1") == [(1,)]
    assert task_threads(server) == []


@pytest.mark.parametrize("phase", AT_WORK)
def test_no_task_is_left(
    phase: str, slow_server: Server, cursor: tidegate.Cursor, file: Path
) -> None:
    if phase == "refreshing":
        last_rows(cursor, f"CREATE MATERIALIZED TABLE endless REFRESH_MODE = FULL AS {ENDLESS}")
    cursor.execute_async(AT_WORK[phase].replace(FILE, str(file)))
    wait_until(lambda: running_tasks(slow_server) > 0, "no task ran")
    cursor.cancel()
    assert_canceled(cursor, slow_server)
    assert last_rows(cursor, "SHOW TABLES LIKE 'never'") == []


@pytest.mark.parametrize(
    ("point", "state", "versions"),
    [
        (Point.AFTER_LEASE, "CANCELLED", 0),
        (Point.AFTER_VERSIONS, "CANCELLED", 0),
        (Point.BEFORE_COMMIT, "CANCELLED", 0),
        (Point.AFTER_COMMIT, "SUCCEEDED", 1),
    ],
)
def test_a_refresh_is_committed_or_not(
    point: Point,
    state: str,
    versions: int,
    slow_server: Server,
    cursor: tidegate.Cursor,
    faults: Faults,
) -> None:
    table = f"mt_{point.name.lower()}"
    last_rows(
        cursor,
        "CREATE TABLE IF NOT EXISTS src USING delta AS SELECT id FROM range(3)",
        f"CREATE MATERIALIZED TABLE {table} REFRESH_MODE = FULL AS SELECT * FROM src",
        f"ALTER MATERIALIZED TABLE {table} REFRESH",
        "INSERT INTO src VALUES (7)",
    )
    before = len(last_rows(cursor, f"DESCRIBE HISTORY {table}"))
    faults.arm(point)
    cursor.execute_async(f"ALTER MATERIALIZED TABLE {table} REFRESH")
    faults.wait_held(point)
    cursor.cancel()
    # Outside of tests the server is never stopped for longer than a cancel takes to arrive.
    time.sleep(1.0)
    faults.release(point)
    assert_canceled(cursor, slow_server)
    history = f"SHOW REFRESH HISTORY FOR {table}"
    wait_until(
        lambda: named_rows(slow_server, history)[0]["state"] == state, f"no run that {state}"
    )
    assert len(last_rows(cursor, f"DESCRIBE HISTORY {table}")) == before + versions


def test_what_has_ended_is_read_on_after_a_cancel(
    slow_server: Server, cursor: tidegate.Cursor
) -> None:
    cursor.execute("SELECT id, repeat('x', 100) AS text FROM range(1000000)")
    read = len(cursor.fetchmany(10))
    cursor.cancel()
    assert running_tasks(slow_server) == 0
    assert read + len(cursor.fetchmany(50_000)) == 50_010
    cursor.close()
    spool = slow_server.data / "spool"
    wait_until(lambda: not list(spool.iterdir()), "the spool was not emptied")


def test_what_waits_for_an_engine_never_begins(
    slow_server: Server, cursor: tidegate.Cursor
) -> None:
    engine = slow_server.engine_pid
    os.kill(engine, signal.SIGKILL)
    time.sleep(1.0)  # the gateway notices at once; another engine takes much longer
    cursor.execute_async("CREATE TABLE never USING delta AS SELECT 1 AS a")
    time.sleep(0.5)
    cursor.cancel()
    assert slow_server.ready_info()["engine"]["pid"] == engine, "another engine is up already"
    with pytest.raises(tidegate.Error, match="canceled by user"):
        cursor.wait()
    slow_server.wait_for_engine(other_than=engine)
    time.sleep(3.0)
    assert last_rows(cursor, "SHOW TABLES LIKE 'never'") == []
