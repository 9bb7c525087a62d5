"""Measures the memory of many idle sessions, then runs statements in sessions concurrently."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psutil
from memory import Sampler
from servers import Server, machine, tidegate_server

import tidegate

SESSIONS = 1000
WORKERS = 32
STATEMENTS = 20
BOUND_MIB = 100
"""The most that gateway, engine and live heap of the JVM may grow for the idle sessions."""
LIVE = "jvm live"
WORK = (
    "SELECT {n} + count(*) AS n FROM range(1000) WHERE id % 7 = {n} % 7",
    "SELECT id, id * {n} AS p FROM range(2000)",
    "SHOW MATERIALIZED TABLES",
)


def main() -> int:
    """Measure and print; return 1 when a bound is broken or a statement failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--statements", type=int, default=STATEMENTS, help="of each worker")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    _allow_sockets(2 * options.sessions + 200)
    print(machine(), flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="bench-sessions-") as directory,
        tidegate_server(Path(directory)) as server,
    ):
        grown = idle(server, options.sessions)
        print(f"{options.sessions:,} idle sessions, a connection and a statement each:")
        for role, size in grown.items():
            print(f"  {role:<8} {size:+8.1f} MiB")
        total = sum(size for role, size in grown.items() if role != "jvm")
        print(f"  gateway, engine, jvm live {total:+.1f} MiB (bound {BOUND_MIB})", flush=True)
        rate, errors = busy(server, options.workers, options.statements)
        print(f"{options.workers} sessions at once: {rate:.1f} statements/s, {len(errors)} errors")
        for text in errors[:5]:
            print(f"  {text}")
    if options.json:
        figures = {"idle_mib": grown, "statements_per_second": rate, "errors": len(errors)}
        report = {"machine": machine(), "sessions": options.sessions, **figures}
        options.json.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    return int(total > BOUND_MIB or bool(errors))


def idle(server: Server, sessions: int) -> dict[str, float]:
    """Return by how many MiB each process grew while it held the sessions.

    The memory for the same number of statements in one session is excluded. For the JVM the result
    has the resident memory and, as "jvm live", the heap after a full collection.
    """
    jvm = jvm_of(server)
    with ExitStack() as stack:
        one = stack.enter_context(_connect(server))
        for _ in range(sessions):
            _use(one)
        live = live_mib(jvm)
        sampler = Sampler(server.pid)
        for _ in range(sessions):
            _use(stack.enter_context(_connect(server)))
        time.sleep(2)
        grown_live = live_mib(jvm) - live
        after = sampler.sample()
    grown = {role: after[role] - sampler.before.get(role, 0.0) for role in sorted(after)}
    return {**grown, LIVE: grown_live}


def jvm_of(server: Server) -> psutil.Process:
    """Return the process of an engine's JVM."""
    family = psutil.Process(server.pid).children(recursive=True)
    return next(process for process in family if "java" in process.name())


def live_mib(jvm: psutil.Process) -> float:
    """Collect all garbage of a JVM and return the MiB that its heap holds then."""
    tool = Path(jvm.exe()).with_name("jcmd")
    command = [str(tool), str(jvm.pid), "GC.class_histogram"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    *_, total = output.strip().splitlines()
    return int(total.split()[2]) / (1 << 20)


def busy(server: Server, workers: int, statements: int) -> tuple[float, list[str]]:
    """Return statements per second over all sessions, and the errors."""
    errors: list[str] = []

    def work(worker: int) -> None:
        with _connect(server) as connection, closing(connection.cursor()) as cursor:
            for n in range(statements):
                try:
                    cursor.execute(WORK[n % len(WORK)].format(n=worker))
                    cursor.fetchall()
                except tidegate.Error as error:
                    errors.append(str(error))

    start = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    return workers * statements / (time.perf_counter() - start), errors


def _use(connection: Any) -> None:
    with closing(connection.cursor()) as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchall()


def _connect(server: Server) -> Any:
    return closing(tidegate.connect(host="127.0.0.1", port=server.port, user="bench"))


def _allow_sockets(wanted: int) -> None:
    """Raise this process's limit of open files, which the server inherits, as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(wanted, soft), hard), hard))


if __name__ == "__main__":
    sys.exit(main())
