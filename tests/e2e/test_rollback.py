"""ROLLBACK of rows and definition, through a death in between: both come back, or neither."""

from __future__ import annotations

import pytest

from tests.support.fixtures.faults import Faults
from tests.support.fixtures.server import Server, StartServer, named_rows
from tests.support.full_run import FULL
from tests.support.killed_gateway import die_at
from tidegate_server.core.faults import Point

POINTS = (Point.BEFORE_COMMIT, Point.BETWEEN_HALVES)
"""Before the rows are back, and after."""
ALTER = "ALTER MATERIALIZED TABLE m"
DAY = "FRESHNESS = INTERVAL '1' DAY"


@pytest.mark.faults
@pytest.mark.skipif(not FULL, reason="part of bin/test --full")
def test_a_death_brings_both_back_or_neither(start_server: StartServer, faults: Faults) -> None:
    server = start_server()
    server.wait_for_engine()
    named_rows(
        server,
        "CREATE TABLE src (k STRING, n INT) USING delta",
        "INSERT INTO src VALUES ('a', 1), ('b', 2)",
        f"CREATE MATERIALIZED TABLE m (loud AS upper(k)) {DAY} AS SELECT k, n FROM src",
        f"{ALTER} REFRESH",
        f"CREATE OR ALTER MATERIALIZED TABLE m {DAY} AS SELECT k, n FROM src WHERE n > 1",
        f"{ALTER} REFRESH",
    )
    first = min(int(str(row["version"])) for row in named_rows(server, "SHOW VERSIONS m"))
    back = f"{ALTER} ROLLBACK TO VERSION {first} BOTH"
    for point in POINTS:
        server = die_at(server, point, back, start_server, faults)
        done = point is Point.BETWEEN_HALVES
        assert _observed(server) == ((["A", "B"], False, True) if done else ([None], True, False))
    named_rows(server, f"{ALTER} RESUME", f"{ALTER} REFRESH")
    [proof] = named_rows(server, "VERIFY MATERIALIZED TABLE m")
    assert proof["equal"] is True
    last = named_rows(server, "SHOW REFRESH HISTORY FOR m LIMIT 1")[0]
    assert (last["action"], last["definition_version"]) == ("FULL", 3)


def _observed(server: Server) -> tuple[list[object], bool, bool]:
    """Return the rows' derived column, whether the table is active, whether it is the first one."""
    rows = named_rows(server, "SELECT * FROM m ORDER BY k")
    [shown] = named_rows(server, "SHOW MATERIALIZED TABLES EXTENDED LIKE 'm'")
    versions = named_rows(server, "SHOW VERSIONS m DEFINITION")
    active = shown["refresh_status"] == "ACTIVATED"
    return [row.get("loud") for row in rows], active, versions[0]["restored_from"] == 1
