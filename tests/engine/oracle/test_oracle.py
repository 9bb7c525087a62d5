"""After every refresh each table equals its query: random tables, queries and changes."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.engine.oracle.__main__ import replay
from tests.engine.oracle.changes import Change, changes
from tests.engine.oracle.logic import logic_stream
from tests.engine.oracle.memory import MemoryLake
from tests.engine.oracle.queries import queries
from tests.engine.oracle.relations import Relation
from tests.engine.oracle.smaller import smaller
from tests.engine.oracle.streams import Stream, stream_of, streams
from tests.engine.oracle.tables import TABLES, VIEWS
from tests.engine.oracle.tally import Tally
from tests.support.fixtures.spark import IcebergLake, Lake
from tests.support.full_run import FULL

TABLES_EACH, STEPS, DEPTH = (25, 6, 3) if FULL else (3, 1, 2)
STREAMS = int(os.environ.get("TIDEGATE_ORACLE_STREAMS", "200" if FULL else "1"))
# A build machine judges every change by the same streams.
FIRST = 1 if os.environ.get("CI") else random.SystemRandom().randrange(10**9)

# A stream is large, and what is looked at holds for each of them.
FEW = settings(max_examples=5, suppress_health_check=list(HealthCheck))


@settings(suppress_health_check=list(HealthCheck))
@given(query=queries())
def test_generated_queries_name_only_the_oracles_tables(query: Relation) -> None:
    filled = query.sql
    for table in (*TABLES, *VIEWS):
        filled = filled.replace(f"{{{table}}}", table)
    assert "{" not in filled


@given(change=changes("fact"))
def test_generated_changes_touch_their_own_table(change: Change) -> None:
    for statement in change:
        assert "{fact}" in statement or "{fact_copy}" in statement
        assert "{other}" not in statement


@FEW
@given(stream=streams(tables=5, steps=2))
def test_streams_are_of_the_size_asked_for(stream: Stream) -> None:
    assert (len(stream.queries), len(stream.steps)) == (5, 2)
    assert set(stream.layouts) == set(TABLES)
    assert all(stream.steps)
    assert any("{mt" in query for query in stream.queries)


def test_a_number_names_one_stream_and_another_number_another() -> None:
    assert stream_of(7, 5, 2, 2) == stream_of(7, 5, 2, 2)
    assert stream_of(7, 5, 2, 2) != stream_of(8, 5, 2, 2)


@FEW
@given(stream=streams(tables=5, steps=3), data=st.data())
def test_a_stream_that_fails_is_made_small(stream: Stream, data: st.DataObject) -> None:
    query = data.draw(st.sampled_from([q for q in stream.queries if "{mt" not in q]))
    step = data.draw(st.sampled_from(stream.steps))
    culprit = data.draw(st.sampled_from(step))

    def fails(candidate: Stream) -> bool:
        return query in candidate.queries and any(culprit in s for s in candidate.steps)

    least = smaller(stream, fails)
    assert (least.queries, least.steps, least.start) == ((query,), ((culprit,),), ())


@pytest.mark.spark
@pytest.mark.timeout(0 if FULL else 1800)
@pytest.mark.parametrize("kind", [Lake, IcebergLake, MemoryLake])
def test_every_refresh_equals_its_query(
    spark_root: SparkSession, ice: None, tally: Tally, kind: type[Lake]
) -> None:
    made = [stream_of(FIRST + n, TABLES_EACH, STEPS, DEPTH) for n in range(STREAMS)]
    if not FULL:  # nor is there time to compile
        made = [replace(stream, compiled=False) for stream in made]
    check(made, spark_root, tally, kind)


@pytest.mark.spark
@pytest.mark.timeout(0 if FULL else 600)
def test_queries_over_rows_that_come_in_pieces(spark_root: SparkSession, tally: Tally) -> None:
    made = [logic_stream(FIRST + n, 2 * TABLES_EACH, STEPS, DEPTH) for n in range(STREAMS)]
    check(made, spark_root, tally, MemoryLake)


def check(made: list[Stream], spark: SparkSession, tally: Tally, kind: type[Lake]) -> None:
    """Run streams, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda stream: replay(spark, stream, tally, kind), made))
    mismatches = [report for reports in found for report in reports]
    assert not mismatches, f"streams from {FIRST} on:\n" + "\n".join(mismatches)
