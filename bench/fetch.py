"""Compares ways to fetch one result: as Arrow and as rows, and Spark's own toArrow()."""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as flight_sql
import impala.dbapi
import pyhive.hive
from peers import WIDE
from pyspark.sql import SparkSession
from servers import DRIVER_MEMORY, SETTINGS, free_port, machine, tidegate_server

import tidegate

Fetch = Callable[[str], int]
"""Runs a query, fetches its result and returns its number of rows."""
Seconds = tuple[float, float]
"""Wall time, and processor time of this process."""

TO_ARROW = "toArrow()"
ARROW = "tidegate, Arrow"
FLIGHT = "ADBC, Arrow"


def main() -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="repetitions after two of warm-up (5)")
    parser.add_argument("--rows", type=int, nargs="*", default=[200_000, 2_000_000])
    parser.add_argument("--others", action="store_true", help="measure PyHive and impyla, too")
    options = parser.parse_args()
    print(machine(), flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="bench-fetch-") as directory,
        clients(Path(directory), others=options.others) as fetches,
    ):
        for rows in options.rows:
            report(rows, measure(fetches, rows, options.runs))
    return 0


@contextlib.contextmanager
def clients(directory: Path, *, others: bool) -> Iterator[dict[str, Fetch]]:
    """Start both Sparks, one of them in this process, and yield the ways to fetch."""
    flight = free_port()
    with (
        tidegate_server(directory, flight_port=flight) as server,
        contextlib.ExitStack() as stack,
    ):
        spark = _spark(directory)
        stack.callback(spark.stop)
        ours = stack.enter_context(tidegate.connect("127.0.0.1", server.port, user="bench"))
        cursor = ours.cursor()
        theirs: Any = stack.enter_context(
            flight_sql.connect(
                f"grpc://127.0.0.1:{flight}", db_kwargs={"username": "bench"}, autocommit=True
            )
        )
        adbc_cursor = stack.enter_context(theirs.cursor())
        fetches: dict[str, Fetch] = {
            TO_ARROW: lambda sql: spark.sql(sql).toArrow().num_rows,
            ARROW: lambda sql: cursor.execute(sql).fetch_arrow_table().num_rows,
            FLIGHT: lambda sql: _arrow(adbc_cursor, sql),
            "tidegate, rows": lambda sql: _rows(cursor, sql),
        }
        if others:
            hive: Any = stack.enter_context(
                contextlib.closing(pyhive.hive.connect("127.0.0.1", server.port, "bench"))
            )
            impyla: Any = stack.enter_context(
                contextlib.closing(
                    impala.dbapi.connect(
                        "127.0.0.1", server.port, auth_mechanism="PLAIN", user="bench"
                    )
                )
            )
            fetches["PyHive, rows"] = lambda sql: _rows(hive.cursor(), sql)
            fetches["impyla, rows"] = lambda sql: _rows(impyla.cursor(), sql)
        yield fetches


def _spark(directory: Path) -> SparkSession:
    builder: Any = SparkSession.builder.master("local[*]")
    builder = builder.config("spark.driver.memory", DRIVER_MEMORY)
    builder = builder.config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session


def _arrow(cursor: Any, sql: str) -> int:
    cursor.execute(sql)
    return int(cursor.fetch_arrow_table().num_rows)


def _rows(cursor: Any, sql: str) -> int:
    cursor.execute(sql)
    return len(cursor.fetchall())


def measure(fetches: dict[str, Fetch], rows: int, runs: int) -> dict[str, list[Seconds]]:
    """Return what each run of each way took.

    The ways take turns, so that what else the machine does concerns all of them.
    """
    found: dict[str, list[Seconds]] = {name: [] for name in fetches}
    for run in range(runs + 2):
        for name, fetch in fetches.items():
            wall, used = time.perf_counter(), time.process_time()
            count = fetch(WIDE.format(rows=rows))
            took = time.perf_counter() - wall, time.process_time() - used
            if count != rows:
                raise SystemExit(f"{name} fetched {count} rows, not {rows}")
            if run >= 2:
                found[name].append(took)
    return found


def report(rows: int, found: dict[str, list[Seconds]]) -> None:
    """Print the medians; the ratio is that to toArrow(), of the runs side by side."""
    base = [wall for wall, _ in found[TO_ARROW]]
    print(f"\n{rows:,} x 8{'s':>16}{'best':>8}{'M rows/s':>10}{'CPU s':>8}{'ratio':>8}")
    for name, runs in found.items():
        walls = [wall for wall, _ in runs]
        median = statistics.median(walls)
        used = statistics.median(used for _, used in runs)
        ratio = statistics.median(wall / other for wall, other in zip(walls, base, strict=True))
        print(
            f"{name:<18}{median:>8.2f}{min(walls):>8.2f}{rows / median / 1e6:>10.2f}"
            f"{used:>8.2f}{ratio:>8.2f}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
