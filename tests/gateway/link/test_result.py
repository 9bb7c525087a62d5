"""Results read chunk by chunk from any row."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Answer, Done, Executed, Progress
from tidegate_server.core.messages.requests import ChunkTicket, CloseResult, Request
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.gateway.link.result import EngineResult


class RecordingEngine:
    """Serves chunks of the given batch sizes, numbers the rows, notes what was asked."""

    def __init__(self, *chunks: tuple[int, ...]) -> None:
        self.chunks = chunks
        self.generation = 1
        self.ready = True
        self.asked: list[Request] = []
        self.chunks_read: list[int] = []

    def call(
        self,
        request: Request,
        *,
        on_progress: Callable[[Progress], None] | None = None,
        wait: float | None = None,
    ) -> Answer:
        self.asked.append(request)
        return Done()

    def read(self, ticket: ChunkTicket) -> Iterator[pa.RecordBatch]:
        if not self.ready:
            raise error(Code.ENGINE_UNAVAILABLE, reason="it is being started again")
        self.chunks_read.append(ticket.chunk)
        start = sum(sum(chunk) for chunk in self.chunks[: ticket.chunk])
        for rows in self.chunks[ticket.chunk]:
            yield pa.record_batch({"n": list(range(start, start + rows))})
            start += rows

    def result(self) -> EngineResult:
        rows = sum(map(sum, self.chunks))
        return EngineResult(self, executed_answer(len(self.chunks), rows=rows))


def executed_answer(chunks: int, inline: bytes | None = None, rows: int = -1) -> Executed:
    return Executed(
        result_id="r1",
        schema=Schema((Column(name="n", type="bigint"),)),
        has_result_set=True,
        chunks=chunks,
        rows=rows,
        current_catalog="spark_catalog",
        current_schema="default",
        inline=inline,
    )


def numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch["n"].to_pylist()]


def inline(*batches: list[int]) -> bytes:
    sink = pa.BufferOutputStream()
    schema = pa.schema([("n", pa.int64())])
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(pa.record_batch([pa.array(batch)], schema=schema))
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize("start", range(12))
def test_rows_come_in_order_from_any_row(start: int) -> None:
    engine = RecordingEngine((2, 3), (), (4,), (1, 1))
    assert numbers(engine.result().batches(start)) == list(range(start, 11))


@pytest.mark.parametrize("start", range(12))
def test_rows_come_in_order_from_any_row_the_second_time(start: int) -> None:
    engine = RecordingEngine((2, 3), (), (4,), (1, 1))
    result = engine.result()
    numbers(result.batches(0))
    assert numbers(result.batches(start)) == list(range(start, 11))


def test_chunks_before_the_row_are_not_read_again() -> None:
    engine = RecordingEngine((3,), (3,), (3,))
    result = engine.result()
    numbers(result.batches(0))
    engine.chunks_read.clear()
    assert numbers(result.batches(7)) == [7, 8]
    assert engine.chunks_read == [2]


def test_a_reader_that_stops_early_does_not_disturb_the_next() -> None:
    engine = RecordingEngine((2, 2), (2,))
    result = engine.result()
    first = result.batches(0)
    next(first)
    first.close()  # type: ignore[attr-defined]
    assert numbers(result.batches(0)) == [0, 1, 2, 3, 4, 5]


def test_two_readers_at_the_same_time_see_the_same_rows() -> None:
    engine = RecordingEngine((2, 2), (2,))
    result = engine.result()
    pairs = zip(result.batches(0), result.batches(0), strict=True)
    assert all(left.equals(right) for left, right in pairs)


@pytest.mark.parametrize("start", range(6))
def test_rows_inside_the_answer_need_no_engine(start: int) -> None:
    engine = RecordingEngine()
    engine.ready = False
    result = EngineResult(engine, executed_answer(0, inline([0, 1, 2], [], [3, 4])))
    assert numbers(result.batches(start)) == list(range(start, 5))


def test_closing_frees_the_chunks_once() -> None:
    engine = RecordingEngine((1,))
    result = engine.result()
    result.close()
    result.close()
    assert engine.asked == [CloseResult(result_id="r1")]


def test_closing_a_result_inside_the_answer_asks_nothing() -> None:
    engine = RecordingEngine()
    EngineResult(engine, executed_answer(0, inline([1]))).close()
    assert engine.asked == []


def test_closing_after_the_engine_was_replaced_asks_nothing() -> None:
    engine = RecordingEngine((1,))
    result = engine.result()
    engine.generation = 2
    result.close()
    assert engine.asked == []


def test_chunks_of_a_replaced_engine_are_lost() -> None:
    engine = RecordingEngine((1,), (1,))
    batches = engine.result().batches(0)
    next(batches)
    engine.generation = 2
    with pytest.raises(ServerError) as caught:
        next(batches)
    assert caught.value.code == "ENGINE_LOST"


def test_chunks_of_a_dead_engine_are_lost() -> None:
    engine = RecordingEngine((1,))
    result = engine.result()
    engine.ready = False
    with pytest.raises(ServerError) as caught:
        numbers(result.batches(0))
    assert caught.value.code == "ENGINE_LOST"


@pytest.mark.parametrize("rows", [6, 4, 0])
def test_rows_that_are_missing_or_too_many_are_an_error_at_the_end(rows: int) -> None:
    engine = RecordingEngine((2, 1), (2,))
    result = EngineResult(engine, executed_answer(2, rows=rows))
    with pytest.raises(ServerError) as caught:
        numbers(result.batches(0))
    assert (caught.value.code, caught.value.sqlstate) == ("RESULT_INCOMPLETE", "58030")
    assert f"{rows} rows were written and 5 were read" in caught.value.message


def test_a_result_without_chunks_but_with_rows_is_an_error() -> None:
    with pytest.raises(ServerError, match="9 rows were written and 0 were read"):
        numbers(EngineResult(RecordingEngine(), executed_answer(0, rows=9)).batches(0))


def test_a_reader_that_begins_later_counts_the_chunks_it_has_read() -> None:
    engine = RecordingEngine((2, 1), (2,))
    result = EngineResult(engine, executed_answer(2, rows=5))
    assert numbers(result.batches(4)) == [4]
    assert numbers(result.batches(0)) == [0, 1, 2, 3, 4]
