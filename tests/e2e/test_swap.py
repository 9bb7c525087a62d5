"""SWAP WITH for real: readers always find a whole table, and a death in between loses nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial

import pytest

import tidegate
from tests.support.fixtures.faults import Faults
from tests.support.fixtures.server import Server, StartServer
from tests.support.full_run import FULL
from tidegate_server.core.faults import Point

SCHEMA = "swapped"
ALTER = "ALTER MATERIALIZED TABLE"
DAY = "FRESHNESS = INTERVAL '1' DAY"
MOST, LEAST = "bigint(max(n))", "bigint(min(n))"


def rows(server: Server, *statements: str, schema: str = SCHEMA) -> list[tuple[object, ...]]:
    """Run statements in one session; return the last one's rows in a fixed order."""
    with (
        closing(server.connect(schema=schema)) as connection,
        closing(connection.cursor()) as cursor,
    ):
        for statement in statements:
            cursor.execute(statement)
        found = cursor.fetchall() if cursor.description else []
        return sorted((tuple(row) for row in found), key=str)


def prepare(server: Server) -> None:
    """Make blue and green of one source, and one that reads blue, in a new schema."""
    rows(server, f"CREATE SCHEMA {SCHEMA}", schema="default")
    rows(
        server,
        "CREATE TABLE src (k STRING, n INT) USING delta",
        "INSERT INTO src VALUES ('a', 1), ('a', 2), ('b', 3)",
        f"CREATE MATERIALIZED TABLE blue {DAY} AS SELECT k, sum(n) AS n FROM src GROUP BY k",
        f"CREATE MATERIALIZED TABLE green {DAY} AS SELECT k, {MOST} AS n FROM src GROUP BY k",
        f"CREATE MATERIALIZED TABLE reader {DAY} AS SELECT sum(n) AS n FROM blue",
        f"{ALTER} blue REFRESH",
        f"{ALTER} green REFRESH",
        f"{ALTER} reader REFRESH",
    )


BLUE = [("a", 3), ("b", 3)]
GREEN = [("a", 2), ("b", 3)]


@contextmanager
def reading(server: Server, seen: dict[str, list[object]]) -> Iterator[None]:
    """Read both tables meanwhile; what is found or raised is kept."""
    done = threading.Event()

    def read() -> None:
        with (
            closing(server.connect(schema=SCHEMA)) as connection,
            closing(connection.cursor()) as cursor,
        ):
            while not done.is_set():
                for name in ("blue", "green"):
                    try:
                        cursor.execute(f"SELECT * FROM {name}")
                        found = sorted(tuple(row) for row in cursor.fetchall())
                    except tidegate.Error as problem:
                        found = [problem]
                    seen[name].append(found)

    thread = threading.Thread(target=read)
    thread.start()
    yield
    done.set()
    thread.join()


@pytest.mark.spark
@pytest.mark.thorough(4)
def test_tables_exchange_their_names_under_a_reader(server: Server) -> None:
    prepare(server)
    seen: dict[str, list[object]] = {"blue": [], "green": []}
    with reading(server, seen):
        rows(server, f"{ALTER} blue SWAP WITH green")
        rows(server, f"{ALTER} green SWAP WITH blue")
        rows(server, f"{ALTER} blue SWAP WITH green")
    assert all(found in (BLUE, GREEN) for name in seen for found in seen[name])
    assert rows(server, "SELECT * FROM blue") == GREEN
    assert rows(server, "SELECT * FROM green") == BLUE
    _both_go_on(server)
    _a_reader_takes_the_other_table(server)
    _names_are_free_again(server)
    rows(server, f"DROP SCHEMA {SCHEMA}", schema="default")


def _both_go_on(server: Server) -> None:
    """Each is refreshed by its own definition, from its own last version on."""
    rows(server, "INSERT INTO src VALUES ('b', 1)", f"{ALTER} blue REFRESH")
    assert rows(server, "SELECT * FROM blue") == GREEN
    rows(server, f"{ALTER} green REFRESH")
    assert rows(server, "SELECT * FROM green") == [("a", 3), ("b", 4)]
    for name in ("blue", "green"):
        assert rows(server, f"VERIFY MATERIALIZED TABLE {name}")
        history = rows(server, f"SHOW REFRESH HISTORY FOR {name}")
        assert len(history) == 2
    created = rows(server, "SHOW CREATE MATERIALIZED TABLE blue")
    assert "max(n)" in str(created)


def _a_reader_takes_the_other_table(server: Server) -> None:
    rows(server, f"{ALTER} reader REFRESH")
    assert rows(server, "SELECT * FROM reader") == [(5,)]
    with (
        closing(server.connect(schema=SCHEMA)) as connection,
        closing(connection.cursor()) as cursor,
    ):
        cursor.execute("SHOW REFRESH HISTORY FOR reader LIMIT 1")
        names = [column[0] for column in cursor.description or ()]
        [run] = cursor.fetchall()
        assert dict(zip(names, run, strict=True))["action"] == "FULL"


def _names_are_free_again(server: Server) -> None:
    """Drop, create, rename: every table keeps its rows, none takes another's files along."""
    warehouse = server.data / "warehouse" / f"{SCHEMA}.db"
    before = sum(1 for _ in warehouse.rglob("_delta_log"))
    rows(server, "DROP MATERIALIZED TABLE green")
    assert sum(1 for _ in warehouse.rglob("_delta_log")) == before - 1
    assert rows(server, "SELECT * FROM blue") == GREEN
    # Where green's data usually lie, blue's do.
    rows(
        server,
        f"CREATE MATERIALIZED TABLE green {DAY} AS SELECT k, {LEAST} AS n FROM src GROUP BY k",
        f"{ALTER} green REFRESH",
        f"{ALTER} blue SWAP WITH green",
    )
    assert rows(server, "SELECT * FROM blue") == [("a", 1), ("b", 1)]
    assert rows(server, "SELECT * FROM green") == GREEN
    rows(server, f"{ALTER} blue RENAME TO cyan", f"{ALTER} green RENAME TO teal")
    assert rows(server, "SELECT * FROM cyan") == [("a", 1), ("b", 1)]
    assert rows(server, "SELECT * FROM teal") == GREEN
    rows(server, f"{ALTER} cyan ADD loud AS upper(k)")
    assert rows(server, "SELECT loud FROM cyan") == [("A",), ("B",)]
    rows(server, f"{ALTER} teal CONVERT TO TABLE", "DROP TABLE teal")
    rows(server, "DROP MATERIALIZED TABLE reader", "DROP MATERIALIZED TABLE cyan", "DROP TABLE src")
    assert list(warehouse.rglob("_delta_log")) == []


@pytest.mark.spark
def test_tables_of_two_schemas_exchange_their_names(server: Server) -> None:
    run = partial(rows, server, schema="default")
    make = f"MATERIALIZED TABLE {{}} {DAY} AS SELECT"
    run(
        "CREATE SCHEMA near",
        "CREATE SCHEMA far",
        f"CREATE {make.format('near.t')} 'n' AS k",
        f"CREATE {make.format('far.t')} 'f' AS k",
        f"{ALTER} near.t REFRESH",
        f"{ALTER} far.t REFRESH",
        f"{ALTER} near.t SWAP WITH far.t",
    )
    assert run("SELECT * FROM near.t UNION ALL SELECT k || '!' FROM far.t") == [("f",), ("n!",)]
    run(f"{ALTER} near.t REFRESH", "DROP MATERIALIZED TABLE far.t")
    # What near.t shows lies in the directory of far, which stays for it.
    run("DROP SCHEMA far CASCADE")
    assert run("SELECT * FROM near.t") == [("f",)]
    run("DROP MATERIALIZED TABLE near.t", "DROP SCHEMA near CASCADE")


@pytest.mark.faults
@pytest.mark.skipif(not FULL, reason="part of bin/test --full")
@pytest.mark.parametrize("victim", ["engine", "jvm", "gateway"])
def test_a_death_between_the_names_is_taken_back(
    start_server: StartServer, faults: Faults, victim: str
) -> None:
    server = start_server()
    server.wait_for_engine()
    prepare(server)
    faults.arm(Point.BETWEEN_PLACES)

    def ask() -> None:
        with suppress(tidegate.Error):
            rows(server, f"{ALTER} blue SWAP WITH green")

    asking = threading.Thread(target=ask)
    asking.start()
    while not faults.holds(Point.BETWEEN_PLACES):
        assert asking.is_alive()
        time.sleep(0.1)
    # Both names have whole tables, here the same one.
    assert rows(server, "SELECT * FROM blue") == BLUE
    assert rows(server, "SELECT * FROM green") == BLUE
    if victim == "gateway":
        with server.killed():
            faults.release(Point.BETWEEN_PLACES)
            asking.join()
        server = start_server()
        server.wait_for_engine()
    else:
        engine = server.wait_for_engine()
        os.kill(engine["pid" if victim == "engine" else "jvm_pid"], signal.SIGKILL)
        faults.release(Point.BETWEEN_PLACES)
        asking.join()
        server.wait_for_engine(other_than=engine["pid"])
    assert rows(server, "SELECT * FROM blue") == BLUE
    assert rows(server, "SELECT * FROM green") == GREEN
    rows(server, f"{ALTER} blue REFRESH", f"{ALTER} green REFRESH")
    rows(server, f"{ALTER} blue SWAP WITH green")
    assert rows(server, "SELECT * FROM blue") == GREEN
    assert rows(server, "SELECT * FROM green") == BLUE
