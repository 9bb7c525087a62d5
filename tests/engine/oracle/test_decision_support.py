"""TPC-H's and TPC-DS's queries as materialized tables under a stream of changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.oracle.decision_support import Benchmark
from tests.engine.oracle.replay import Replay
from tests.engine.oracle.streams import Stream
from tests.engine.oracle.tally import Tally
from tests.support.fixtures.spark import Lake
from tests.support.full_run import FULL

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(0),
    pytest.mark.skipif(not FULL, reason="for the long run"),
]


def run(benchmark: Benchmark, lake: Lake, folder: Path, *, steps: int) -> Replay:
    """Replay a benchmark's stream and print the table of queries."""
    benchmark.create(lake, folder)
    queries = benchmark.queries()
    chosen = sorted(queries)
    stream = Stream(
        layouts={},
        start=(),
        queries=tuple(queries[number] for number in chosen),
        steps=benchmark.steps(steps),
    )
    replay = Replay(lake, tally := Tally(), auto=False)
    mismatches = replay.run(stream)
    for place, number in enumerate(chosen):
        subject = replay.subjects.get(place)
        told = f"{', '.join(subject.reasons[1:])}; {subject.rows} rows" if subject else "refused"
        print(f"{benchmark.name} {number}: {told}")  # noqa: T201
    print(*tally.lines(), sep="\n")  # noqa: T201
    assert mismatches == []
    return replay


def test_tpch_under_changes(lake: Lake, tmp_path: Path) -> None:
    replay = run(Benchmark("tpch", 0.01), lake, tmp_path, steps=7)
    assert set(replay.subjects) == set(range(22))


def test_tpcds_under_changes(lake: Lake, tmp_path: Path) -> None:
    run(Benchmark("tpcds", 0.01), lake, tmp_path, steps=3)
