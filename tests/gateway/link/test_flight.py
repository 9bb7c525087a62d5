"""Requests, answers and batches over Arrow Flight."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Answer, EngineInfo, Progress
from tidegate_server.core.messages.requests import ChunkTicket, Execute, Ping
from tidegate_server.gateway.link.flight import FlightEngine
from tidegate_server.gateway.link.supervisor import Supervisor


def execute(engine: FlightEngine, sql: str, seen: list[Progress] | None = None) -> Answer:
    request = Execute(session_id="s", operation_id="o", sql=sql)
    return engine.call(request, on_progress=None if seen is None else seen.append)


def test_a_request_gets_its_answer(engine: FlightEngine, supervisor: Supervisor) -> None:
    answer = engine.call(Ping())
    assert isinstance(answer, EngineInfo)
    assert answer.pid == supervisor.pid


def test_progress_is_told_before_the_answer(engine: FlightEngine) -> None:
    seen: list[Progress] = []
    execute(engine, "progress", seen)
    assert [progress.stages_done for progress in seen] == [1, 2]


def test_an_error_keeps_its_code_position_and_hint(engine: FlightEngine) -> None:
    with pytest.raises(ServerError) as caught:
        execute(engine, "fail")
    assert caught.value.code == "MT_NOT_FOUND"
    assert caught.value.sqlstate == "42P01"
    assert caught.value.line == 3
    assert "SHOW MATERIALIZED TABLES" in caught.value.hint


def test_a_bug_in_the_engine_is_an_internal_error_of_one_line(engine: FlightEngine) -> None:
    with pytest.raises(ServerError) as caught:
        execute(engine, "crash")
    assert caught.value.code == "INTERNAL"
    assert caught.value.message == "Internal error: a bug in the engine."


def test_an_action_without_an_answer_is_an_internal_error(engine: FlightEngine) -> None:
    with pytest.raises(ServerError) as caught:
        execute(engine, "silent")
    assert caught.value.code == "INTERNAL"
    assert "Execute" in caught.value.message


def test_batches_of_a_chunk_arrive(engine: FlightEngine) -> None:
    batches = list(engine.read(ChunkTicket(result_id="numbers", chunk=1)))
    assert [batch["n"].to_pylist() for batch in batches] == [[3], [4]]


def test_an_error_of_a_chunk_keeps_its_code(engine: FlightEngine) -> None:
    with pytest.raises(ServerError) as caught:
        list(engine.read(ChunkTicket(result_id="gone", chunk=0)))
    assert caught.value.code == "INVALID_REQUEST"


def test_an_engine_that_exits_during_a_statement_is_lost(engine: FlightEngine) -> None:
    with pytest.raises(ServerError) as caught:
        execute(engine, "die")
    assert caught.value.code == "ENGINE_LOST"


def test_an_engine_killed_during_a_statement_is_lost(
    engine: FlightEngine, supervisor: Supervisor
) -> None:
    pid = supervisor.pid
    assert pid is not None
    threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(ServerError) as caught:
        execute(engine, "hang")
    assert caught.value.code == "ENGINE_LOST"


def test_after_a_loss_the_next_statement_waits_for_the_next_engine(engine: FlightEngine) -> None:
    assert engine.generation == 1
    with pytest.raises(ServerError):
        execute(engine, "die")
    execute(engine, "")
    assert engine.generation == 2


def test_who_does_not_wait_hears_that_the_engine_is_not_available(engine: FlightEngine) -> None:
    with pytest.raises(ServerError):
        execute(engine, "die")
    with pytest.raises(ServerError) as caught:
        engine.call(Ping(), wait=0)
    assert caught.value.code == "ENGINE_UNAVAILABLE"
    assert caught.value.sqlstate == "08006"


def test_statements_run_at_the_same_time(engine: FlightEngine) -> None:
    hanging = threading.Thread(target=lambda: pytest.raises(ServerError, execute, engine, "hang"))
    hanging.start()
    assert execute(engine, "") is not None
    with pytest.raises(ServerError):
        execute(engine, "die")
    hanging.join(10)
    assert not hanging.is_alive()
