"""After every refresh each table equals its query: random tables, queries and changes."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import SparkSession

from tests.fix_spark import Lake
from tests.server.engine.oracle.relations import queries
from tests.server.engine.oracle.replay import Replay, Tally
from tests.server.engine.oracle.streams import Stream, streams
from tests.server.engine.oracle.tables import TABLES, changes

FULL = bool(os.environ.get("TIDEGATE_FULL"))
TABLES_EACH, STEPS, DEPTH = (10, 6, 3) if FULL else (6, 3, 2)
STREAMS = int(os.environ.get("TIDEGATE_ORACLE_STREAMS", "300" if FULL else "1"))


@given(query=queries())
def test_generated_queries_name_only_the_oracles_tables(query: str) -> None:
    filled = query
    for table in TABLES:
        filled = filled.replace(f"{{{table}}}", table)
    assert "{" not in filled.replace("{}", "")


@given(statement=changes("fact"))
def test_generated_changes_touch_their_own_table(statement: str) -> None:
    assert statement.count("{fact}") >= 1
    assert "{other}" not in statement


@given(stream=streams(tables=2, steps=2))
def test_streams_are_of_the_size_asked_for(stream: Stream) -> None:
    assert (len(stream.queries), len(stream.steps)) == (2, 2)
    assert set(stream.layouts) == set(TABLES)
    assert all(stream.steps)


def test_even_a_single_stream_is_worth_its_time() -> None:
    seen: list[Stream] = []

    @settings(max_examples=1, phases=(Phase.generate,), derandomize=True, database=None)
    @given(stream=streams(tables=4, steps=2))
    def look(stream: Stream) -> None:
        seen.append(stream)

    look()
    assert len(set(seen[0].queries)) == 4


@pytest.mark.spark
@pytest.mark.timeout(0 if FULL else 1800)
@settings(
    max_examples=STREAMS,
    deadline=None,
    derandomize=not FULL,
    phases=(Phase.generate, Phase.shrink) if FULL else (Phase.generate,),
    suppress_health_check=list(HealthCheck),
    database=None,
)
@given(stream=streams(tables=TABLES_EACH, steps=STEPS, depth=DEPTH))
def test_every_refresh_equals_its_query(
    spark_root: SparkSession, tally: Tally, stream: Stream
) -> None:
    lake = Lake(spark_root)
    try:
        assert not Replay(lake, tally).run(stream)
    finally:
        lake.close()
