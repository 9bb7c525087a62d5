"""Updates a large table with a change feed, with and without sorting the rows by file."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from facts import make_sources, run
from servers import machine, tidegate_server

import tidegate

_OPEN_FILES = "spark.sql.maxConcurrentOutputFileWriters"
_SORTED, _UNSORTED = "sorted by file", "two files open"
_WAYS: Mapping[str, str] = {
    _SORTED: f"SET {_OPEN_FILES} = 0",
    _UNSORTED: f"RESET {_OPEN_FILES}",
}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000, help="of the table (20,000,000)")
    parser.add_argument("--runs", type=int, default=3, help="counted updates of each kind (3)")
    parser.add_argument("--driver-memory", default="4g", help="of the engine (4g)")
    options = parser.parse_args()
    print(f"{machine()}, {options.driver_memory}, {options.rows:,} rows", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="bench-update-") as directory,
        tidegate_server(Path(directory), driver_memory=options.driver_memory) as server,
        tidegate.connect(host="127.0.0.1", port=server.port, user="bench") as connection,
    ):
        keys = make_sources(connection, options.rows)
        turns = [
            {way: _update(connection, keys, setting) for way, setting in _WAYS.items()}
            for _ in range(1 + options.runs)
        ]
    medians = {way: statistics.median(turn[way] for turn in turns[1:]) for way in _WAYS}
    for way, seconds in medians.items():
        print(f"UPDATE, {way:<15} {seconds:6.2f} s")
    print(f"ratio {medians[_SORTED] / medians[_UNSORTED]:.2f}")
    return 0


def _update(connection: tidegate.Connection, keys: int, setting: str) -> float:
    """Update every thousandth key, whose rows are in all files; return the seconds."""
    run(connection, setting)
    start = time.perf_counter()
    run(connection, f"UPDATE facts SET amount = amount + 1 WHERE k < {keys // 1_000}")
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
