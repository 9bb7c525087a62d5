"""Memory: reading takes little, and statements that fill it end before the engine has none."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow.flight as flight
import pytest

from tests.engine.conftest import EngineProcess, Session
from tests.support.spark_settings import BRIEF, COMPILED, IN_MEMORY
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import NO_MEMORY_EXIT, EngineMemory
from tidegate_server.core.messages.requests import InspectMemory

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.thorough(3)]

JAVA = "spark.driver.extraJavaOptions"
LITTLE = {JAVA: "-XX:MaxDirectMemorySize=16m -Dio.netty.maxDirectMemory=268435456"}
"""Little for everybody but Arrow, which takes its memory past the JVM's account."""
ROWS = 2_500_000
LARGE = (
    "CREATE TABLE large USING delta AS SELECT /*+ COALESCE(1) */ "
    "id, rand(1) AS a, rand(2) AS b FROM range(0, {rows})"
)
"""One file whose columns take 20 MB each, in one row group."""
READ = "SELECT count(*), sum(id), min(a) >= 0, min(b) >= 0 FROM large"


def settings(**more: str) -> dict[str, str]:
    return {**BRIEF, **IN_MEMORY, **LITTLE, **COMPILED, **more}


def test_reading_large_row_groups_needs_little_direct_memory(
    start_engine: Callable[..., EngineProcess],
) -> None:
    engine = start_engine(settings=settings())
    client = engine.client()
    session = Session(client)
    session.execute(LARGE.format(rows=ROWS))
    assert session.rows(READ) == [(ROWS, ROWS * (ROWS - 1) // 2, True, True)]
    memory = client.call(InspectMemory(with_use=True))
    assert isinstance(memory, EngineMemory)
    assert 0 <= memory.direct_used <= memory.direct_limit == 16 << 20
    assert 0 < memory.heap_used <= memory.heap_limit
    assert 0 <= memory.heap_live <= memory.heap_limit
    assert 0 < memory.collecting_ms < memory.uptime_ms
    assert memory.in_use == 0
    session.execute("CREATE TEMPORARY VIEW kept AS SELECT 1")
    session.execute("SELECT id FROM range(50000)", inline_bytes=0)
    memory = client.call(InspectMemory(with_use=True))
    assert isinstance(memory, EngineMemory)
    assert memory.in_use == 2  # the view and the result
    client.close()


def test_a_reader_without_direct_memory_ends_the_engine_and_not_after_minutes(
    start_engine: Callable[..., EngineProcess],
) -> None:
    vectored = {"spark.hadoop.parquet.hadoop.vectored.io.enabled": "true"}
    engine = start_engine(settings=settings(**vectored))
    session = Session(engine.client())
    session.execute(LARGE.format(rows=ROWS))
    began = time.monotonic()
    # The engine may get to say so, or end before.
    with pytest.raises((ServerError, flight.FlightError)) as caught:
        session.execute(READ)
    if isinstance(caught.value, ServerError):
        assert caught.value.code in ("OUT_OF_MEMORY", "ENGINE_LOST")
    assert engine.process.wait(60) == NO_MEMORY_EXIT
    assert time.monotonic() - began < 120  # Parquet's reader would wait for 300 s


def test_a_statement_that_fills_the_heap_ends_and_the_engine_lives(
    start_engine: Callable[..., EngineProcess],
) -> None:
    engine = start_engine(settings={**BRIEF, **IN_MEMORY})
    session = Session(engine.client())
    failure = session.failure("SELECT collect_list(id) FROM range(1000000000)")
    assert (failure.code, failure.sqlstate) == ("OUT_OF_MEMORY", "53200")
    assert "filled the engine's memory" in failure.message
    assert session.rows("SELECT 1") == [(1,)]
    assert engine.process.poll() is None
