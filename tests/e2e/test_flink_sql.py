"""Flink's SQL over the wire, by users with few rights."""

from __future__ import annotations

import pytest

import tidegate
from tests.support.fixtures.server import Server, run_as

pytestmark = pytest.mark.faults  # another server

DIALECT = "SET 'sql.dialect' = 'flink'"
WINDOWS = (
    "SELECT window_start, k, AVG(n) AS average, MAX(n) / 2 AS half FROM TABLE(TUMBLE(TABLE "
    "flora.events, DESCRIPTOR(ts), INTERVAL '10' MINUTES)) GROUP BY window_start, window_end, k"
)


def _error(server: Server, user: str, *statements: str) -> tidegate.Error:
    with pytest.raises(tidegate.Error) as caught:
        run_as(server, user, *statements)
    return caught.value


def test_flinks_sql_is_refreshed_queried_and_judged_as_what_runs(guarded_server: Server) -> None:
    rows = run_as(
        guarded_server,
        "flora",
        "CREATE SCHEMA flora",
        DIALECT,
        "CREATE TABLE flora.events (k STRING, n INT, ts TIMESTAMP(3), raw BYTES) USING delta",
        r"INSERT INTO flora.events VALUES ('a\b', 1, TIMESTAMP '2024-01-01 08:01:00', NULL)",
        "CREATE MATERIALIZED TABLE flora.windows FRESHNESS = INTERVAL '1' DAY "
        f"REFRESH_MODE = INCREMENTAL AS {WINDOWS}",
        r"INSERT INTO flora.events VALUES ('a\b', 4, TIMESTAMP '2024-01-01 08:02:00', NULL)",
        "ALTER MATERIALIZED TABLE flora.windows REFRESH",
        "SELECT CAST(window_start AS STRING), k, average, half FROM flora.windows",
    )
    assert rows == [("2024-01-01 08:00:00", "a\\b", 2, 2)]
    [(created,)] = run_as(guarded_server, "flora", "SHOW CREATE MATERIALIZED TABLE flora.windows")
    assert "flink_avg" in created
    assert "TUMBLE" not in created
    [verified] = run_as(guarded_server, "flora", "VERIFY MATERIALIZED TABLE flora.windows")
    assert True in verified

    denied = _error(guarded_server, "ben", DIALECT, f"{WINDOWS}, n / 2")
    assert denied.sqlstate == "42501"
    wrong = _error(
        guarded_server, "flora", DIALECT, "SELECT AVG(n),\n  n / 2, missing FROM flora.events"
    )
    assert "line 2, column 10" in str(wrong)
    advised = _error(guarded_server, "flora", WINDOWS)
    assert "SET 'sql.dialect' = 'flink'" in advised.hint
    run_as(
        guarded_server,
        "flora",
        "DROP MATERIALIZED TABLE flora.windows",
        "DROP TABLE flora.events",
        "DROP SCHEMA flora",
    )
