"""Run the oracle for a given time: ``python -m tests.engine.oracle --help``."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tests.engine.oracle.logic import logic_stream
from tests.engine.oracle.memory import MemoryLake
from tests.engine.oracle.replay import Replay
from tests.engine.oracle.smaller import smaller
from tests.engine.oracle.streams import Stream, stream_of
from tests.engine.oracle.tally import Tally
from tests.support.fixtures.spark import IcebergLake, Lake, iceberg_catalog, start_root
from tests.support.object_store import running_object_store
from tests.support.spark_settings import IN_MEMORY, LONG_LIVED, WITHOUT_FORKS
from tests.support.standalone import standalone_cluster
from tidegate_server.engine.jvm.cluster_size import cluster_size

_STREAMS = {"changes": stream_of, "logic": logic_stream}
_KINDS = {"delta": Lake, "iceberg": IcebergLake, "memory": MemoryLake}


def main() -> int:
    """Run streams, print what was compared; the exit code is 1 if anything differs."""
    asked = _arguments()
    memory = Path("/dev/shm")
    home = Path(tempfile.mkdtemp(prefix="tg", dir=memory if memory.is_dir() else None))
    try:
        with _PLACES[asked.place](home, asked.threads) as spark:
            with iceberg_catalog(spark, home / "ice"):
                tally = _smallest(spark, asked) if asked.minimise else _many(spark, asked)
            sys.stdout.write("\n".join(tally.lines()) + "\n")
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return 1 if tally.mismatches else 0


@contextmanager
def _stopping(spark: SparkSession) -> Iterator[SparkSession]:
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _local(home: Path, threads: int) -> Iterator[SparkSession]:
    settings = {**LONG_LIVED, **IN_MEMORY, **WITHOUT_FORKS}
    with _stopping(start_root(home, f"local[{threads}]", "2g", iceberg=True, **settings)) as spark:
        yield spark


@contextmanager
def _standalone(home: Path, threads: int) -> Iterator[SparkSession]:
    settings = {**IN_MEMORY, "spark.driver.host": "127.0.0.1", "spark.executor.memory": "1g"}
    with standalone_cluster(home / "spark") as cluster:
        cluster.add_worker([], cores=threads, memory="2g")
        with _stopping(
            start_root(home / "data", cluster.url, "2g", iceberg=True, **settings)
        ) as spark:
            cluster_size(spark, settings)
            yield spark


@contextmanager
def _object_store(home: Path, threads: int) -> Iterator[SparkSession]:
    with running_object_store(home) as store:
        settings = {**IN_MEMORY, **store.settings}
        master = f"local[{threads}]"
        with _stopping(
            start_root(home / "data", master, "2g", iceberg=True, jars=store.jars, **settings)
        ) as spark:
            yield spark


_PLACES = {"local": _local, "standalone": _standalone, "s3": _object_store}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.engine.oracle")
    parser.add_argument("--seconds", type=float, default=60.0, help="begin no stream after that")
    parser.add_argument("--seed", type=int, default=None, help="number of the first stream")
    parser.add_argument("--threads", type=int, default=2, help="streams at the same time")
    parser.add_argument("--tables", type=int, default=25, help="materialized tables per stream")
    parser.add_argument("--steps", type=int, default=10, help="steps per stream")
    parser.add_argument("--depth", type=int, default=3, help="operators above a table at most")
    parser.add_argument("--streams", choices=_STREAMS, default="changes", help="kind of streams")
    parser.add_argument("--storage", choices=sorted(_KINDS), default="delta", help="of results")
    parser.add_argument("--place", choices=_PLACES, default="local", help="of Spark and its files")
    parser.add_argument("--minimise", action="store_true", help="make the stream SEED smaller")
    return parser.parse_args()


def _many(spark: SparkSession, asked: argparse.Namespace) -> Tally:
    tally = Tally()
    number = asked.seed if asked.seed is not None else random.SystemRandom().randrange(10**9)
    end = time.monotonic() + asked.seconds
    running: dict[Future[list[str]], int] = {}
    with ThreadPoolExecutor(asked.threads) as pool:
        while running or time.monotonic() < end:
            while len(running) < asked.threads and time.monotonic() < end:
                stream = _STREAMS[asked.streams](number, asked.tables, asked.steps, asked.depth)
                running[pool.submit(replay, spark, stream, tally, _KINDS[asked.storage])] = number
                number += 1
            for finished in wait(running, return_when=FIRST_COMPLETED).done:
                _tell(running.pop(finished), finished, tally)
                if isinstance(finished.exception(), ConnectionError):  # Spark is gone
                    end = time.monotonic()
    return tally


def _tell(number: int, finished: Future[list[str]], tally: Tally) -> None:
    problem = finished.exception()
    if problem is not None:
        tally.count_stream([f"stream {number} broke: {problem!r}"])
    reports = [repr(problem)] if problem is not None else finished.result()
    done = f"stream {number}: {len(reports)} mismatches; {tally.comparisons} comparisons so far"
    sys.stdout.write("\n".join((done, *reports)) + "\n")
    sys.stdout.flush()


def _smallest(spark: SparkSession, asked: argparse.Namespace) -> Tally:
    stream = _STREAMS[asked.streams](asked.seed, asked.tables, asked.steps, asked.depth)
    tally, kind = Tally(), _KINDS[asked.storage]
    least = smaller(stream, lambda candidate: bool(replay(spark, candidate, Tally(), kind)))
    replay(spark, least, tally, kind)
    return tally


def replay(spark: SparkSession, stream: Stream, tally: Tally, kind: type[Lake] = Lake) -> list[str]:
    """Run one stream in a new schema, whose kind says how materialized tables are stored."""
    lake = kind(spark)
    try:
        return Replay(lake, tally).run(stream)
    finally:
        lake.close()


if __name__ == "__main__":
    sys.exit(main())
