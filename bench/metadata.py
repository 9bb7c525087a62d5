"""Times metadata calls over many tables: cached, after a change, and right after a restart."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from servers import Server, machine, tidegate_server

import tidegate

TABLES = 10_000
BOUND = 1.0
"""Seconds that a listing of all tables may take."""
_SCHEMA = "bench_metadata"


def main() -> int:
    """Measure and print; return 1 when listing the tables takes longer than the bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-metadata-") as directory:
        fill(Path(directory) / "data", options.tables)
        with tidegate_server(Path(directory)) as server:
            figures = measure(server, options.tables, options.runs)
        with tidegate_server(Path(directory), wait_for_engine=False) as server:
            label = "GetTables right after a restart, no engine yet"
            figures[label] = median_seconds(server, lambda c: list_tables(c, options.tables), 1)
    print(f"{options.tables:,} tables")
    for what, seconds in figures.items():
        print(f"  {what:<48} {seconds * 1000:9.1f} ms")
    if options.json:
        report = {"machine": machine(), "tables": options.tables, "seconds": figures}
        options.json.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    return int(figures["GetTables"] > BOUND)


def fill(data: Path, tables: int) -> None:
    """Register the tables before the server starts."""
    start = time.perf_counter()
    script = Path(__file__).with_name("tables.py")
    command = [sys.executable, str(script), str(data), _SCHEMA, str(tables)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    print(f"registered in {time.perf_counter() - start:.0f} s", flush=True)


def measure(server: Server, tables: int, runs: int) -> dict[str, float]:
    """Return seconds by measurement."""
    found = {"GetTables, not cached": median_seconds(server, lambda c: list_tables(c, tables), 1)}
    found["GetTables"] = median_seconds(server, lambda c: list_tables(c, tables), runs)
    found["GetSchemas"] = median_seconds(server, lambda c: c.schemas().fetchall(), runs)

    def list_after_change(cursor: Any) -> None:
        cursor.execute(f"CREATE TABLE {_SCHEMA}.another (id INT) USING parquet")
        start = time.perf_counter()
        list_tables(cursor, tables + 1)
        durations.append(time.perf_counter() - start)
        cursor.execute(f"DROP TABLE {_SCHEMA}.another")

    durations: list[float] = []
    median_seconds(server, list_after_change, runs)
    found["GetTables after CREATE TABLE"] = statistics.median(durations)
    one = f"t{tables // 2}"
    found["GetColumns of one table"] = median_seconds(server, lambda c: columns(c, one, 3), runs)
    found["GetColumns of all, not cached"] = median_seconds(server, lambda c: columns(c, "%", 3), 1)
    found["GetColumns of all"] = median_seconds(server, lambda c: columns(c, "%", 3 * tables), runs)
    return found


def median_seconds(server: Server, work: Callable[[Any], object], runs: int) -> float:
    """Return the median of the seconds that ``work`` takes on an open session."""
    seconds = []
    with open_connection(server) as connection, closing(connection.cursor()) as cursor:
        for _ in range(runs):
            start = time.perf_counter()
            work(cursor)
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def list_tables(cursor: Any, tables: int) -> None:
    """List all tables of the schema; there must be ``tables`` of them."""
    rows = cursor.tables(_SCHEMA).fetchall()
    if len(rows) != tables:
        raise SystemExit(f"{len(rows)} tables were listed, not {tables}")


def columns(cursor: Any, table: str, least: int) -> None:
    """List columns by a pattern of tables; there must be at least ``least``."""
    rows = cursor.columns(_SCHEMA, table).fetchall()
    if len(rows) < least:
        raise SystemExit(f"{len(rows)} columns were listed, not {least}")


def open_connection(server: Server) -> Any:
    """Open a connection of the driver, closed at the end of the block."""
    return closing(tidegate.connect(host="127.0.0.1", port=server.port, user="bench"))


if __name__ == "__main__":
    sys.exit(main())
