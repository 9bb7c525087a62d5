"""Shows where the time of a small refresh goes: Spark's jobs, gaps between them, processors."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from choice import CHANGES, QUERIES, Cell, Data, change_rows, make_sources, make_table
from facts import refresh
from servers import DRIVER_MEMORY, SETTINGS, machine, tidegate_server

import tidegate

_TABLE = "measured"
_WARM = 4
"""Refreshes that are not counted, in which the JVM compiles most code."""
_KINDS = {
    "C1": "Java's compilers",
    "C2": "Java's compilers",
    "Sweeper": "Java's compilers",
    "GC": "garbage collection",
    "Executor": "tasks",
    "Thread-": "calls from Python",
}
"""What threads of the JVM do, by the beginning of their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One Spark job."""

    number: int
    began: float
    """Seconds since the refresh began."""
    ended: float
    stages: tuple[tuple[int, float], ...]
    """The number of tasks of each stage that ran, and the seconds they took together."""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=list(QUERIES), default="star")
    parser.add_argument("--change", choices=CHANGES, default="update keys")
    parser.add_argument("--share", type=float, default=0.001, help="of the rows changed (0.001)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the fact table")
    parser.add_argument("--strings", type=int, default=0, help="columns that no query reads (0)")
    parser.add_argument("--kind", choices=("INCREMENTAL", "FULL"), default="INCREMENTAL")
    parser.add_argument("--turns", type=int, default=8, help="counted refreshes (8)")
    parser.add_argument("--driver-memory", default=DRIVER_MEMORY, help="of the engine (2g)")
    options = parser.parse_args()
    data = Data(rows=options.rows, strings=options.strings, rows_per_key=200, layout="plain")
    cell = Cell(data=data, shape=options.shape, change=options.change, share=options.share)
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-phases-") as directory:
        events = Path(directory) / "events"
        events.mkdir()
        SETTINGS.update(_recording(events))
        with tidegate_server(Path(directory), driver_memory=options.driver_memory) as server:
            took, used, began = _measure(server.port, server.pid, cell, options)
        seconds = statistics.median(took)
        print(f"{cell.shape}, {cell.change}, {cell.share:.4%}, {options.kind}: {seconds:.2f} s")
        for kind, processor in sorted(used.items(), key=lambda each: -each[1]):
            print(f"  {processor / len(took):5.2f} s of processors: {kind}")
        _print([job for job in _jobs(events, began) if job.ended > 0], took[-1])
    return 0


def _recording(directory: Path) -> Mapping[str, str]:
    """Return settings with which Spark records its jobs as lines of JSON."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{directory}",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }


def _measure(
    port: int, pid: int, cell: Cell, options: argparse.Namespace
) -> tuple[list[float], Mapping[str, float], float]:
    """Return the seconds of refreshes, those of processors, and when the last one began."""
    took: list[float] = []
    used: dict[str, float] = defaultdict(float)
    with tidegate.connect(host="127.0.0.1", port=port, user="bench") as connection:
        make_sources(connection, cell.data)
        make_table(connection, _TABLE, QUERIES[cell.shape])
        for number in range(_WARM + options.turns):
            change_rows(connection, cell, number)
            before, began = _processor_seconds(pid), time.time()
            seconds = refresh(connection, _TABLE, options.kind).seconds
            if number >= _WARM:
                took.append(seconds)
                for kind, processor in _processor_seconds(pid).items():
                    used[kind] += processor - before[kind]
    return took, used, began


def _processor_seconds(pid: int) -> Mapping[str, float]:
    """Return what the processes of a server have used so far, by what for."""
    found: dict[str, float] = defaultdict(float)
    gateway = psutil.Process(pid)
    for process in (gateway, *gateway.children(recursive=True)):
        if process.name() != "java":
            times = process.cpu_times()
            kind = "gateway" if process.pid == pid else "engine's Python"
            found[kind] += times.user + times.system
            continue
        for thread in process.threads():
            with suppress(FileNotFoundError):  # the thread may have ended
                name = Path(f"/proc/{process.pid}/task/{thread.id}/comm").read_text("utf-8")
                kinds = (kind for start, kind in _KINDS.items() if name.startswith(start))
                kind = next(kinds, "other threads of the JVM")
                found[kind] += thread.user_time + thread.system_time
    return found


def _jobs(events: Path, began: float) -> Iterable[Job]:
    """Yield the jobs that Spark recorded."""
    started: dict[int, Mapping[str, Any]] = {}
    stages: dict[int, tuple[int, float]] = {}
    (log,) = events.iterdir()
    for line in log.read_text("utf-8").splitlines():
        event = json.loads(line)
        match event["Event"]:
            case "SparkListenerJobStart":
                started[event["Job ID"]] = event
            case "SparkListenerStageCompleted":
                stage = event["Stage Info"]
                spent = (a["Value"] for a in stage["Accumulables"] if a["Name"].endswith("RunTime"))
                milliseconds = sum(map(float, spent))
                stages[stage["Stage ID"]] = (stage["Number of Tasks"], milliseconds / 1000)
            case "SparkListenerJobEnd":
                start = started[event["Job ID"]]
                ran = (stages[s] for s in start["Stage IDs"] if s in stages)
                yield Job(
                    number=event["Job ID"],
                    began=start["Submission Time"] / 1000 - began,
                    ended=event["Completion Time"] / 1000 - began,
                    stages=tuple(ran),
                )


def _print(jobs: Iterable[Job], seconds: float) -> None:
    """Print the jobs of one refresh, and how long none of them ran."""
    idle, until = 0.0, 0.0
    print(f"the last refresh, of {seconds:.2f} s:")
    for job in sorted(jobs, key=lambda job: job.began):
        idle += max(job.began - until, 0.0)
        until = max(until, job.ended)
        parts = ", ".join(f"{tasks} x {spent / tasks:.2f} s" for tasks, spent in job.stages)
        print(f"  {job.began:5.2f} to {job.ended:5.2f}  job {job.number}: {parts}")
    idle += max(seconds - until, 0.0)
    print(f"no job ran for {idle:.2f} s ({idle / seconds:.0%})")


if __name__ == "__main__":
    sys.exit(main())
