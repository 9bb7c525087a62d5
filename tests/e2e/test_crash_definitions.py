"""Whatever dies within a statement that writes to catalog and metastore: the name is in both or in
neither as soon as the next engine is up.

``bin/test`` tries some of the cases, ``bin/test --full tests/e2e/test_crash_definitions.py`` all.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass

import pytest

import tidegate
from tests.e2e.test_crash_matrix import WAIT
from tests.support.fixtures.faults import Faults
from tests.support.fixtures.server import Server, StartServer, named_rows
from tests.support.full_run import FULL
from tests.support.waiting import wait_until
from tidegate_server.core.faults import Point

pytestmark = [pytest.mark.faults, pytest.mark.thorough(4)]

MT = "MATERIALIZED TABLE"
LEASE = 2.0


@dataclass(frozen=True)
class Case:
    """Who dies where; ``before`` and ``after`` are the names that may be there afterwards."""

    statement: str
    point: Point
    victim: str
    outcomes: tuple[frozenset[str], ...]
    plain: bool = False
    """Whether the name may be that of a plain table."""

    def __str__(self) -> str:
        return f"{self.statement.split()[0]}-{self.point.value}-{self.victim}"


def cases() -> list[Case]:
    none, first, second = frozenset[str](), frozenset({"{t}"}), frozenset({"{t}_new"})
    statements = (
        (
            f"CREATE {MT} {{t}}_new FRESHNESS = INTERVAL '1' DAY AS SELECT 'k' AS k",
            (Point.BEFORE_STORAGE, Point.AFTER_STORAGE),
            (first, first | second),
        ),
        (
            f"DROP {MT} {{t}}",
            (Point.BEFORE_REMOVAL, Point.BEFORE_FILES, Point.AFTER_REMOVAL),
            (first, none),
        ),
        (
            f"ALTER {MT} {{t}} RENAME TO {{t}}_new",
            (Point.BEFORE_RENAME, Point.AFTER_RENAME),
            (first, second),
        ),
        (
            f"ALTER {MT} {{t}} CONVERT TO TABLE",
            (Point.BEFORE_RELEASE, Point.AFTER_RELEASE),
            (first,),
        ),
    )
    return [
        Case(statement, point, victim, outcomes, plain="CONVERT" in statement)
        for statement, points, outcomes in statements
        for point in points
        for victim in ("gateway", "engine", "jvm")
    ]


TELLING = {
    (Point.AFTER_STORAGE, "jvm"),
    (Point.BEFORE_FILES, "gateway"),
}


@pytest.mark.timeout(0 if FULL else 1800)
def test_a_name_is_in_both_books_or_in_neither(start_server: StartServer, faults: Faults) -> None:
    server = start_server(f"--set=scheduler.lease={LEASE}")
    chosen = [c for c in cases() if FULL or (c.point, c.victim) in TELLING]
    for number, case in enumerate(chosen):
        server.wait_for_engine()
        table = f"t{number}"
        named_rows(
            server,
            f"CREATE {MT} {table} FRESHNESS = INTERVAL '1' DAY AS SELECT 'k' AS k",
            f"ALTER {MT} {table} REFRESH",
        )
        server = suffer(case, table, server, faults, start_server)
        names = check(case, table, server)
        print(f"{case}: {sorted(names) or 'nothing'} is there")  # noqa: T201


def suffer(case: Case, table: str, server: Server, faults: Faults, start: StartServer) -> Server:
    """Kill the victim in the middle of the statement; return the server that runs afterwards."""
    faults.arm(case.point)

    def ask() -> None:
        with suppress(tidegate.Error):
            named_rows(server, case.statement.format(t=table))

    asking = threading.Thread(target=ask)
    asking.start()
    faults.wait_held(case.point)
    engine = server.wait_for_engine()
    if case.victim == "gateway":
        server.kill()
        faults.release(case.point)
        server = start(f"--set=scheduler.lease={LEASE}")
    else:
        os.kill(engine["pid" if case.victim == "engine" else "jvm_pid"], signal.SIGKILL)
        faults.release(case.point)
        server.wait_for_engine(other_than=engine["pid"])
    asking.join(WAIT)
    assert not asking.is_alive(), "the statement never ended"
    return server


def check(case: Case, table: str, server: Server) -> frozenset[str]:
    """Wait for recovery; every name then is in both books or in neither."""
    allowed = {frozenset(name.format(t=table) for name in names) for names in case.outcomes}
    found: list[frozenset[str]] = []

    def whole() -> bool:
        listed = catalog(server, table)
        stored = metastore(server, table)
        found[:] = [stored]
        return stored in allowed and (listed == stored or (case.plain and listed == frozenset()))

    server.wait_for_engine()
    wait_until(whole, f"{case}: {found}, {catalog(server, table)}")
    [names] = found
    for name in names:
        named_rows(server, f"SELECT * FROM {name}")
    for name in names & catalog(server, table):
        named_rows(server, f"ALTER {MT} {name} REFRESH", f"DROP {MT} {name}")
    home = server.data / "warehouse"
    assert case.plain or not list(home.glob(f"{table}-*")) + list(home.glob(f"{table}_new-*"))
    return names


def catalog(server: Server, table: str) -> frozenset[str]:
    """Return the names that Tidegate lists."""
    rows = named_rows(server, f"SHOW {MT}S LIKE '{table}*'")
    found = {str(next(iter(row.values()))).rpartition(".")[2] for row in rows}
    return frozenset(found & {table, f"{table}_new"})


def metastore(server: Server, table: str) -> frozenset[str]:
    """Return the names that Spark lists."""
    rows = named_rows(server, f"SHOW TABLES LIKE '{table}|{table}_new'")
    return frozenset(str(row["tableName"]) for row in rows)
