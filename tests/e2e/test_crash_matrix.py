"""Whatever dies or hangs at any point of a refresh: no version lost, doubled or mixed.

``bin/test`` tries the rows of the matrix that say most, ``bin/test --full -k crash_matrix -s`` all
of them, on a standalone cluster and over S3, too; each prints its line of the result table.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

import tidegate
from tests.support.fixtures.faults import Faults
from tests.support.fixtures.server import Server, StartServer, named_rows
from tests.support.full_run import FULL
from tests.support.object_store import running_object_store
from tests.support.standalone import standalone_cluster
from tests.support.waiting import wait_until
from tidegate_server.core.faults import Point

pytestmark = pytest.mark.faults

LEASE = 2.0
LONGER_THAN_LEASE = 3 * LEASE
SETTINGS = (f"--set=scheduler.lease={LEASE}", "--set=engine.iceberg=true")
WAIT = 240.0
LANDED = {Point.AFTER_COMMIT, Point.BEFORE_STORE, Point.AFTER_STORE}
"""Where the refresh's version is there already."""
REFRESH = tuple(Point)[:7]
"""Where a refresh comes by."""
STANDALONE = """
[engine]
master = "{master}"
shared_warehouse = true

[engine.settings]
"spark.sql.warehouse.dir" = "{warehouse}"
"spark.executor.memory" = "600m"
"spark.driver.host" = "127.0.0.1"
"""
ENDED = {"SUCCEEDED", "FAILED", "CANCELLED", "ABANDONED"}


@dataclass(frozen=True)
class Case:
    """Who suffers what, where, in which kind of refresh."""

    point: Point
    victim: str
    fate: signal.Signals
    mode: str
    schema: str = "spark_catalog.default"
    """Where the table is: a schema of Delta tables, or of Iceberg tables."""

    def __str__(self) -> str:
        said = f"{self.mode}-{self.point.value}-{self.victim}-{self.fate.name}"
        return f"{said}-iceberg" if self.schema == ICEBERG else said


ICEBERG = "lake.db"
ALL = [
    Case(point, victim, fate, mode, schema)
    for schema in ("spark_catalog.default", ICEBERG)
    for mode in ("INCREMENTAL", "FULL")
    for point in Point
    if point in REFRESH
    for victim in ("gateway", "engine")
    for fate in (signal.SIGKILL, signal.SIGSTOP)
]
TELLING = [
    Case(Point.BEFORE_COMMIT, "gateway", signal.SIGSTOP, "INCREMENTAL"),
    Case(Point.AFTER_COMMIT, "engine", signal.SIGKILL, "INCREMENTAL", ICEBERG),
]


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """Yield the configuration of an engine on a standalone cluster."""
    warehouse = folder / "shared" / "warehouse"
    warehouse.mkdir(parents=True)
    with standalone_cluster(folder / "spark") as cluster:
        cluster.add_worker([], cores=2, memory="2g")
        yield STANDALONE.format(master=cluster.url, warehouse=warehouse)


@contextmanager
def object_store(folder: Path) -> Iterator[str]:
    """Yield the configuration of an engine with a warehouse in S3."""
    with running_object_store(folder) as store:
        yield store.configuration()


@pytest.mark.timeout(0)
@pytest.mark.skipif(not FULL, reason="kills and freezes processes 28 times each")
@pytest.mark.parametrize("place", [standalone, object_store])
def test_crash_matrix_elsewhere(
    place: Callable[[Path], AbstractContextManager[str]],
    start_server: StartServer,
    faults: Faults,
    tmp_path: Path,
) -> None:
    config = tmp_path / "tidegate.toml"
    with place(tmp_path) as text:
        config.write_text(text)
        config.chmod(0o600)
        start = partial(start_server, *SETTINGS, "--config", str(config))
        go_through([case for case in ALL if case.schema != ICEBERG], start(), faults, start)


@pytest.mark.timeout(0 if FULL else 1800)
def test_crash_matrix(start_server: StartServer, faults: Faults, tmp_path: Path) -> None:
    start = partial(start_server, *SETTINGS)
    server = start()
    server.wait_for_engine()
    place = f"'catalog-type' = 'hadoop', 'warehouse' = '{tmp_path / 'lake'}'"
    named_rows(
        server,
        f"CREATE CATALOG lake WITH ('type' = 'iceberg', {place})",
        f"CREATE SCHEMA {ICEBERG}",
    )
    go_through(ALL if FULL else TELLING, server, faults, start)


def go_through(
    cases: Sequence[Case], server: Server, faults: Faults, start: Callable[[], Server]
) -> None:
    """Let each case happen to a table of its own."""
    for number, case in enumerate(cases):
        server.wait_for_engine()
        table = f"{case.schema}.mt{number}"
        prepare(server, table, f"src{number}", case.mode)
        before = committed_epochs(server, table)
        faults.arm(case.point)
        with refreshing(server, table):
            server = suffer(case, server, faults, start)
        state = final_state(server, table)
        after = committed_epochs(server, table)
        check(case, server, table, before, after)
        print(f"{case}: run {state}, versions {before} -> {after}, all verified")  # noqa: T201


def prepare(server: Server, table: str, source: str, mode: str) -> None:
    """Make a table that has been refreshed twice, and a change that it has not seen."""
    named_rows(
        server,
        f"CREATE TABLE {source} (k STRING, n INT) USING DELTA",
        f"INSERT INTO {source} VALUES ('a', 1), ('b', 2), (NULL, 3)",
        f"CREATE MATERIALIZED TABLE {table} FRESHNESS = INTERVAL '1' HOUR"
        f" REFRESH_MODE = {mode} AS SELECT k, sum(n) AS n FROM {source} GROUP BY k",
        f"ALTER MATERIALIZED TABLE {table} REFRESH",
        f"INSERT INTO {source} VALUES ('a', 10)",
        f"ALTER MATERIALIZED TABLE {table} REFRESH",
        f"DELETE FROM {source} WHERE k = 'b'",
        f"INSERT INTO {source} VALUES ('c', 5)",
    )


@contextmanager
def refreshing(server: Server, table: str) -> Iterator[None]:
    """Ask for a refresh meanwhile; who asks may learn that the server is gone."""

    def ask() -> None:
        with suppress(tidegate.Error):
            named_rows(server, f"ALTER MATERIALIZED TABLE {table} REFRESH")

    asking = threading.Thread(target=ask)
    asking.start()
    yield
    asking.join(WAIT)
    assert not asking.is_alive(), "the refresh never ended"


def suffer(case: Case, server: Server, faults: Faults, start: Callable[[], Server]) -> Server:
    """Let it happen; return the server that runs afterwards."""
    victim = server.pid if case.victim == "gateway" else server.engine_pid
    engine = server.engine_pid
    faults.wait_held(case.point)
    if case.fate is signal.SIGSTOP:
        os.kill(victim, signal.SIGSTOP)
        faults.release(case.point)
        time.sleep(LONGER_THAN_LEASE)
        os.kill(victim, signal.SIGCONT)
        return server
    if case.victim == "engine":
        os.kill(victim, signal.SIGKILL)
        faults.release(case.point)
        server.wait_for_engine(other_than=engine)
        return server
    with server.killed():
        faults.release(case.point)
    return start()


def final_state(server: Server, table: str) -> str:
    """Wait for the end of the run, recorded by itself or by recovery; return its state."""
    server.wait_for_engine()

    def newest() -> str:
        return str(named_rows(server, f"SHOW REFRESH HISTORY FOR {table}")[0]["state"])

    wait_until(lambda: newest() in ENDED, "the run was never settled")
    return newest()


def committed_epochs(server: Server, table: str) -> list[int]:
    """Return the epochs of a table's commits, oldest first, as its own log has them."""
    if table.startswith(ICEBERG):
        summary = "summary['tidegate.refresh'] AS refresh"
        rows = named_rows(server, f"SELECT {summary} FROM {table}.snapshots ORDER BY committed_at")
        return [int(json.loads(str(row["refresh"]))["epoch"]) for row in rows]
    history = named_rows(server, f"DESCRIBE HISTORY {table}")
    texts = [str(row["userMetadata"]) for row in sorted(history, key=lambda row: row["version"])]
    return [int(json.loads(text)["epoch"]) for text in texts if text.startswith("{")]


def check(case: Case, server: Server, table: str, before: list[int], after: list[int]) -> None:
    """At most one version came, none went, each is its query's, and the next refresh goes on."""
    assert after[: len(before)] == before, case
    assert len(after) - len(before) in (0, 1), case
    if case.point in LANDED or case.fate is signal.SIGSTOP:
        assert len(after) == len(before) + 1, case
    assert after == sorted(set(after)), case
    named_rows(server, f"ALTER MATERIALIZED TABLE {table} REFRESH")
    assert len(committed_epochs(server, table)) == len(before) + 1, case
    found = {(r["k"], r["n"]) for r in named_rows(server, f"SELECT * FROM {table}")}
    assert found == {("a", 11), (None, 3), ("c", 5)}, case
    for version in versions(server, table):
        answer = named_rows(server, f"VERIFY MATERIALIZED TABLE {table} VERSION {version}")[0]
        assert answer["equal"], (case, answer)


def versions(server: Server, table: str) -> list[object]:
    """Return the numbers of a table's versions."""
    return [row["version"] for row in named_rows(server, f"SHOW VERSIONS {table}")]
