"""The time zone of a session is that of its tables' queries, schedules and partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

import tidegate
from tests.support.fixtures.server import Server, named_rows
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.thorough(4)]

CREATE = """
CREATE MATERIALIZED TABLE zones.mt PARTITIONED BY (ds)
WITH ('partition.fields.ds.date-formatter' = 'yyyy-MM-dd',
      'materialized-table.schedule.cron' = '0/2 * * * * ?')
FRESHNESS = INTERVAL '1' HOUR REFRESH_MODE = FULL
AS SELECT date_format(at, 'yyyy-MM-dd') AS ds, count(*) AS n FROM zones.ev GROUP BY ALL
"""


@pytest.fixture
def zones(server: Server) -> Iterator[Server]:
    """The server with a table of one event, of this moment."""
    named_rows(
        server,
        "CREATE SCHEMA zones",
        "CREATE TABLE zones.ev (at TIMESTAMP) USING delta",
        "INSERT INTO zones.ev SELECT current_timestamp()",
    )
    yield server
    named_rows(server, "DROP MATERIALIZED TABLE IF EXISTS zones.mt", "DROP SCHEMA zones CASCADE")


def zone_of_another_day() -> str:
    """Return a zone in which it is not the day that it is in UTC."""
    return "Pacific/Kiritimati" if datetime.now(UTC).hour >= 11 else "Etc/GMT+12"


def query(connection: tidegate.Connection, text: str) -> list[tuple[object, ...]]:
    with closing(connection.cursor()) as cursor:
        cursor.execute(text)
        return list(cursor.fetchall()) if cursor.description else []


@pytest.mark.parametrize("statement", ["SET 'table.local-time-zone' = '{}'", "SET TIME ZONE '{}'"])
def test_a_fire_refreshes_the_day_of_the_sessions_zone(zones: Server, statement: str) -> None:
    zone = zone_of_another_day()
    with closing(zones.connect()) as connection:
        query(connection, statement.format(zone))
        key, shown = query(connection, "SET 'table.local-time-zone'")[0]
        assert (key, shown) == ("table.local-time-zone", zone)
        assert query(connection, "SELECT current_timezone()") == [(zone,)]
        days = {f"{datetime.now(ZoneInfo(zone)):%Y-%m-%d}"}
        with closing(connection.cursor()) as cursor:
            cursor.execute(CREATE)
            [note] = [line for line in cursor.fetch_logs() if "is empty until" in line]
        assert f"({zone}), of the partition ds=" in note
    wait_until(lambda: rows(zones), "no fire refreshed the day that it is in the session's zone")
    days.add(f"{datetime.now(ZoneInfo(zone)):%Y-%m-%d}")
    assert {row["ds"] for row in rows(zones)} <= days
    assert [row["n"] for row in rows(zones)] == [1]
    assert refreshed_days(zones) <= days
    described = named_rows(zones, "DESCRIBE EXTENDED zones.mt")
    assert {"timezone": zone}.items() <= {
        str(row["col_name"]): row["data_type"] for row in described
    }.items()


def test_the_sessions_zone_is_reset_by_flinks_name(server: Server) -> None:
    with closing(server.connect()) as connection:
        before = query(connection, "SELECT current_timezone()")
        query(connection, "SET 'table.local-time-zone' = 'Asia/Kolkata'")
        assert query(connection, "SELECT current_timezone()") == [("Asia/Kolkata",)]
        query(connection, "RESET 'table.local-time-zone'")
        assert query(connection, "SELECT current_timezone()") == before
        with pytest.raises(tidegate.Error, match="Nowhere/Bad"):
            query(connection, "SET 'table.local-time-zone' = 'Nowhere/Bad'")


def test_a_connection_brings_its_zone_by_flinks_name(server: Server) -> None:
    options = {"table.local-time-zone": "Asia/Kolkata"}
    with closing(server.connect(settings=options)) as connection:
        assert query(connection, "SELECT current_timezone()") == [("Asia/Kolkata",)]


def rows(server: Server) -> list[dict[str, object]]:
    return named_rows(server, "SELECT * FROM zones.mt")


def refreshed_days(server: Server) -> set[str]:
    """Return the days that scheduled runs refreshed."""
    runs = named_rows(server, "SHOW REFRESH HISTORY FOR zones.mt LIMIT 100")
    return {
        spec["ds"]
        for run in runs
        if (run["trigger"], run["state"]) == ("SCHEDULED", "SUCCEEDED")
        for spec in json.loads(str(run["partitions"]))
    }
