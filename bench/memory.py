"""Watches the memory of gateway and engine while a client fetches a result of many rows."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import impala.dbapi
import psutil
import pyspark
from servers import DRIVER_MEMORY, Server, machine, tidegate_server

import tidegate

ROWS = 2_000_000
BOUNDS_MIB = {"gateway": 100, "engine": 250}
QUERY = (
    "SELECT id, CAST(id % 1000 AS INT) AS i, id / 7.0D AS d, id % 3 = 0 AS b, "
    "CONCAT('row number ', id) AS s, CAST(id % 100000 AS DECIMAL(12,2)) AS dec, "
    "DATE_ADD(DATE '2020-01-01', CAST(id % 1000 AS INT)) AS day, "
    "TIMESTAMP_SECONDS(1600000000 + id) AS ts FROM RANGE({rows})"
)


class Sampler:
    """Samples the resident memory of a server's processes, by role, until it is stopped."""

    def __init__(self, pid: int, interval: float = 0.1) -> None:
        """Watch the process tree of gateway ``pid`` every ``interval`` seconds."""
        self._gateway = psutil.Process(pid)
        self._engine = -1
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.before = self.sample()
        self.peak = dict(self.before)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def growth(self) -> dict[str, float]:
        """Return by how many MiB each role grew at its peak."""
        return {role: self.peak[role] - self.before.get(role, 0.0) for role in self.peak}

    def _watch(self) -> None:
        while not self._stop.wait(self._interval):
            for role, size in self.sample().items():
                self.peak[role] = max(self.peak.get(role, 0.0), size)

    def sample(self) -> dict[str, float]:
        """Return the MiB that each role uses now.

        Short-lived children of the JVM, such as chmod, are left out: between fork and exec such a
        process shows the memory of the JVM itself.
        """
        sizes: dict[str, float] = {}
        for process in (self._gateway, *self._gateway.children(recursive=True)):
            try:
                role, size = self._role(process), process.memory_info().rss / (1 << 20)
            except psutil.NoSuchProcess:
                continue
            if role is not None:
                sizes[role] = sizes.get(role, 0.0) + size
        return sizes

    def _role(self, process: psutil.Process) -> str | None:
        if process.pid == self._gateway.pid:
            return "gateway"
        parent = process.ppid()
        if parent == self._gateway.pid:
            self._engine = process.pid
            return "engine"
        return "jvm" if parent == self._engine else None


def main() -> int:
    """Measure and print; return 1 when a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--client", choices=CLIENTS, default="beeline")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    fetch = CLIENTS[options.client]
    print(machine(), flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="bench-memory-") as directory,
        tidegate_server(Path(directory)) as server,
    ):
        fetch(server, rows=20_000)
        with Sampler(server.pid) as sampler:
            start = time.perf_counter()
            lines = fetch(server, rows=options.rows)
            seconds = time.perf_counter() - start
    if lines < options.rows:
        raise SystemExit(f"{options.client} got {lines} rows, expected {options.rows}")
    growth = sampler.growth()
    print(f"{options.rows:,} x 8 rows through {options.client} in {seconds:.1f} s")
    for role in ("gateway", "engine", "jvm"):
        print(_line(role, sampler, growth[role]))
    if options.json:
        report = {"machine": machine(), "rows": options.rows, "seconds": seconds, "mib": growth}
        options.json.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    return int(any(growth[role] > bound for role, bound in BOUNDS_MIB.items()))


def _line(role: str, sampler: Sampler, growth: float) -> str:
    bound = (
        f"bound {BOUNDS_MIB[role]}" if role in BOUNDS_MIB else f"heap bounded by {DRIVER_MEMORY}"
    )
    return (
        f"  {role:<8} {sampler.before[role]:7.0f} MiB before, {sampler.peak[role]:7.0f} at the "
        f"peak: {growth:+.0f} MiB ({bound})"
    )


def beeline(server: Server, *, rows: int) -> int:
    """Fetch the rows with Spark's beeline and return how many lines it printed."""
    home = Path(pyspark.__file__).parent
    command = [
        str(home / "bin" / "beeline"),
        *("-u", f"jdbc:hive2://127.0.0.1:{server.port}", "-n", "bench"),
        *("--outputformat=csv2", "--incremental=true", "--silent=true", "--showHeader=false"),
        *("-e", f"{QUERY.format(rows=rows)};"),
    ]
    environment = {**os.environ, "SPARK_HOME": str(home)}
    lines = 0
    # A file for the errors: beeline would block on a pipe that is not read.
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        while block := process.stdout.read(1 << 20):
            lines += block.count(b"\n")
        if process.wait():
            errors.seek(0)
            text = errors.read().decode("utf-8", "replace")
            raise SystemExit(f"beeline failed:\n{text[-2000:]}")
    return lines


def impyla(server: Server, *, rows: int) -> int:
    """Fetch the rows with impyla, page by page, and return how many came."""
    connecting = impala.dbapi.connect(
        host="127.0.0.1", port=server.port, auth_mechanism="PLAIN", user="bench"
    )
    with closing(connecting) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(QUERY.format(rows=rows))
        count = 0
        while page := len(cursor.fetchmany(10_000)):
            count += page
        return count


def driver(server: Server, *, rows: int) -> int:
    """Fetch the rows with the driver, page by page, and return how many came."""
    connecting = tidegate.connect(host="127.0.0.1", port=server.port, user="bench")
    with closing(connecting) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(QUERY.format(rows=rows))
        count = 0
        while page := cursor.fetchmany_arrow(50_000).num_rows:
            count += page
        return count


CLIENTS: dict[str, Callable[..., int]] = {"beeline": beeline, "driver": driver, "impyla": impyla}


if __name__ == "__main__":
    sys.exit(main())
