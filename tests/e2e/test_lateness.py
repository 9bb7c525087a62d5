"""Late data open a partition again, as long as its lateness lasts: on the schedule of a server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.support.fixtures.server import Server, named_rows
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.thorough(4)]

CREATE = """
CREATE MATERIALIZED TABLE late.mt PARTITIONED BY (sec)
WITH ('partition.fields.sec.date-formatter' = 'yyyyMMddHHmmss',
      'partition.fields.sec.lateness' = 'PT20S')
FRESHNESS = INTERVAL '2' SECOND REFRESH_MODE = FULL
AS SELECT sec, count(*) AS n FROM late.ev GROUP BY sec
"""


@pytest.fixture
def late(server: Server) -> Iterator[Server]:
    """The server with a table whose partitions are seconds."""
    named_rows(server, "CREATE SCHEMA late", "CREATE TABLE late.ev (sec STRING) USING delta")
    named_rows(server, CREATE)
    yield server
    named_rows(server, "DROP MATERIALIZED TABLE IF EXISTS late.mt", "DROP SCHEMA late CASCADE")


def test_late_data_open_a_partition_until_its_lateness_is_over(late: Server) -> None:
    wait_until(lambda: refreshed_partitions(late), "nothing was refreshed")
    name = refreshed_partitions(late)[-1]
    time.sleep(1)  # it is over
    arrive(late, name)
    wait_until(lambda: stored_count(late, name) == 1, "the partition was not opened again")
    wait_until(lambda: status(late, name) == "CLOSED", "the partition was never closed")

    arrive(late, name)
    seen = scheduled_runs(late)[0]["refresh_id"]
    others = 3  # the first of them may have begun before
    wait_until(
        lambda: [run["refresh_id"] for run in scheduled_runs(late)].index(seen) >= others,
        "it stopped",
    )
    assert stored_count(late, name) == 1
    named_rows(late, f"ALTER MATERIALIZED TABLE late.mt REFRESH PARTITION (sec = '{name}')")
    assert stored_count(late, name) == 2


def scheduled_runs(server: Server) -> list[dict[str, object]]:
    """Return the scheduled runs that succeeded, newest first."""
    runs = named_rows(server, "SHOW REFRESH HISTORY FOR late.mt LIMIT 100")
    return [r for r in runs if (r["trigger"], r["state"]) == ("SCHEDULED", "SUCCEEDED")]


def refreshed_partitions(server: Server) -> list[str]:
    """Return the partitions of the scheduled runs."""
    specs = [spec for run in scheduled_runs(server) for spec in json.loads(str(run["partitions"]))]
    return sorted(spec["sec"] for spec in specs)


def arrive(server: Server, second: str) -> None:
    named_rows(server, f"INSERT INTO late.ev VALUES ('{second}')")


def stored_count(server: Server, second: str) -> object:
    rows = named_rows(server, f"SELECT n FROM late.mt WHERE sec = '{second}'")
    return rows[0]["n"] if rows else 0


def status(server: Server, second: str) -> object:
    """Return the state of a partition, None if it has no record."""
    partition = f'{{"sec":"{second}"}}'
    rows = named_rows(
        server,
        "SELECT status FROM information_schema.materialized_table_partitions "
        f"WHERE table_schema = 'late' AND `partition` = '{partition}'",
    )
    return rows[0]["status"] if rows else None
