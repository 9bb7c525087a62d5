"""Changes and refreshes large tables for an hour, and prints what the server takes meanwhile."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import psutil
from choice import LARGE_SHAPES, Cell, Data, change_rows, make_sources, make_table
from facts import refresh, require_equal, run
from servers import Server, machine, tidegate_server
from sessions import jvm_of, live_mib
from worst import Other

import tidegate

_SAMPLES = 12
_COLUMNS = 200
_REST_BEFORE_SAMPLE = 2.0
_WIDE = {
    "newest of wide rows": "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k "
    "ORDER BY id DESC) AS place FROM wide) WHERE place = 1",
    "filter of wide rows": f"SELECT * FROM wide WHERE c{_COLUMNS - 4} % 3 = 0",
}
_BOUNDS = {
    "live heap, MiB": 150.0,
    "direct, MiB": 64.0,
    "resident, MiB": 1_000.0,
    "threads": 30.0,
    "open files": 60.0,
    "disk beside tables, MiB": 300.0,
}
"""By how much the median of the last third of the samples may exceed that of the second third. The
first third is the warm-up."""


def main() -> int:
    """Measure and print; return 1 if something grows without end, fails or differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rows", type=int, default=20_000_000, help="of the fact table")
    parser.add_argument("--wide-rows", type=int, default=100_000, help=f"of {_COLUMNS} columns")
    options = parser.parse_args()
    print(machine(), flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="bench-soak-") as directory,
        tidegate_server(Path(directory), driver_memory="auto") as server,
        tidegate.connect(host="127.0.0.1", port=server.port, user="bench") as connection,
    ):
        cells = _make(connection, options.rows, options.wide_rows)
        other = Other(server.port)
        reader = Other(
            server.port, "SELECT * FROM wide LIMIT 20000", tidegate.Cursor.fetch_arrow_table, 1.0
        )
        with other.running(), reader.running():
            samples, problems = _soak(
                connection, server, cells, other, Path(directory), options.minutes
            )
        for table, query in _queries(cells).items():
            refresh(connection, table, "")  # later changes of its source were for other tables
            require_equal(connection, table, query)
        fetched, failed = reader.take()
        problems += [*failed, *other.take()[1]]
        print(f"{len(fetched)} results of {_COLUMNS} columns; all tables equal their queries")
    for problem in problems[:5]:
        print(f"  failed: {problem}")
    return int(bool(problems) | _grows(samples))


def _make(connection: tidegate.Connection, rows: int, wide_rows: int) -> dict[str, Cell]:
    """Create the sources and the materialized tables; return the changes before each refresh."""
    data = Data(rows=rows, strings=0, rows_per_key=200, layout="plain")
    make_sources(connection, data)
    columns = ", ".join(f"c{n} BIGINT" for n in range(_COLUMNS - 2))
    values = ", ".join(f"id * {n + 1} % 1009" for n in range(_COLUMNS - 2))
    run(connection, f"CREATE TABLE wide (id BIGINT, k BIGINT, {columns}) USING delta")
    run(
        connection,
        f"INSERT INTO wide SELECT id, id % {wide_rows // 10}, {values} FROM range({wide_rows})",
    )
    cells = {}
    changes = itertools.cycle((("append", 0.0001), ("update keys", 0.001)))
    for number, (shape, (change, share)) in enumerate(zip(LARGE_SHAPES, changes, strict=False)):
        cells[f"m{number}"] = Cell(data=data, shape=shape, change=change, share=share)
        make_table(connection, f"m{number}", LARGE_SHAPES[shape])
    for number, query in enumerate(_WIDE.values()):
        make_table(connection, f"w{number}", query)
    return cells


def _queries(cells: dict[str, Cell]) -> dict[str, str]:
    wide = {f"w{number}": query for number, query in enumerate(_WIDE.values())}
    return {table: LARGE_SHAPES[cell.shape] for table, cell in cells.items()} | wide


def _soak(
    connection: tidegate.Connection,
    server: Server,
    cells: dict[str, Cell],
    other: Other,
    directory: Path,
    minutes: float,
) -> tuple[list[dict[str, float]], list[str]]:
    """Change and refresh until the time is over; return the samples, and the other's errors."""
    samples: list[dict[str, float]] = []
    problems: list[str] = []
    began, seconds, turn = time.monotonic(), list[float](), 0
    print(f"{'minute':>7} {'refreshes':>10} {'median s':>9} {'SELECT 1 s':>11}", end="")
    print("".join(f"  {name}" for name in _BOUNDS), flush=True)
    while len(samples) < _SAMPLES:
        for table, cell in cells.items():
            change_rows(connection, cell, turn)
            seconds.append(refresh(connection, table, "").seconds)
        run(connection, f"UPDATE wide SET c7 = c7 + 1 WHERE id % 1000 = {turn % 1000}")
        seconds += [refresh(connection, f"w{n}", "").seconds for n in range(len(_WIDE))]
        turn += 1
        passed = (time.monotonic() - began) / 60
        if passed < (len(samples) + 1) * minutes / _SAMPLES:
            continue
        for table in ("fact", "wide"):
            run(connection, f"OPTIMIZE {table}")
        waits, failed = other.take()
        problems += failed
        longest = max(waits, default=math.inf)
        time.sleep(_REST_BEFORE_SAMPLE)
        sample = _sample(server, directory)
        samples.append(sample)
        print(
            f"{passed:7.1f} {len(seconds):10} {statistics.median(seconds):9.2f} {longest:11.2f}"
            + "".join(f"  {value:{len(name)}.0f}" for name, value in sample.items()),
            flush=True,
        )
        seconds.clear()
    return samples, problems


def _sample(server: Server, directory: Path) -> dict[str, float]:
    """Return what the server takes now, in the order of the bounds."""
    live = live_mib(jvm_of(server))
    resident = threads = files = 0
    gateway = psutil.Process(server.pid)
    for process in (gateway, *gateway.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # Hadoop runs commands such as readlink
            resident += process.memory_info().rss
            threads += process.num_threads()
            files += process.num_fds()
    tables = directory / "data" / "warehouse"
    values = (
        live,
        _direct_bytes(server) / (1 << 20),
        resident / (1 << 20),
        threads,
        files,
        (_bytes_below(directory) - _bytes_below(tables)) / (1 << 20),
    )
    return dict(zip(_BOUNDS, values, strict=True))


def _direct_bytes(server: Server) -> float:
    """Return the engine's direct memory, which the gateway asks for every 15 seconds."""
    with urlopen(f"http://127.0.0.1:{server.port + 2}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    [line] = [line for line in lines if line.startswith("tidegate_engine_direct_bytes")]
    return float(line.rpartition(" ")[2])


def _bytes_below(directory: Path) -> int:
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):  # it may have been deleted
                total += (Path(parent) / name).lstat().st_size
    return total


def _grows(samples: list[dict[str, float]]) -> bool:
    """Print what is used more of at the end than in the middle, beyond the bounds."""
    third, found = len(samples) // 3, False
    for name, bound in _BOUNDS.items():
        middle, end = (
            statistics.median(sample[name] for sample in part)
            for part in (samples[third : 2 * third], samples[2 * third :])
        )
        print(f"{name}: {middle:.0f} in the middle, {end:.0f} at the end (bound +{bound:.0f})")
        found |= end - middle > bound
    return found


if __name__ == "__main__":
    sys.exit(main())
