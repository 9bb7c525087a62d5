"""An engine without Spark, to be started by a supervisor: answers, fails or dies as a test asks."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.answers import (
    Answer,
    Done,
    EngineInfo,
    EngineMemory,
    Executed,
    Progress,
    failure,
)
from tidegate_server.core.messages.encoding import decode_request, decode_ticket, encode_answer
from tidegate_server.core.messages.requests import (
    ChunkTicket,
    CloseResult,
    EngineOptions,
    Execute,
    ForgetSessions,
    InspectMemory,
    Ping,
    Request,
)
from tidegate_server.core.model.types import Column, Schema

NUMBERS = pa.schema([pa.field("n", pa.int64())])
CHUNK_ROWS = (3, 2, 4)


BUSY = Path("fake-engine-is-busy")
"""A file in the working directory that makes the engine say it is in use."""


class FakeEngine(flight.FlightServerBase):  # type: ignore[misc]
    """Serves three chunks of counted numbers; the SQL of Execute says what else to do."""

    def do_action(
        self, context: flight.ServerCallContext, action: flight.Action
    ) -> Iterator[flight.Result]:
        request = decode_request(action.type, action.body.to_pybytes())
        for answer in self._answers(request):
            yield flight.Result(pa.py_buffer(encode_answer(answer)))

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.GeneratorStream:
        wanted = decode_ticket(ticket.ticket)
        if wanted.result_id != "numbers":
            refused = failure(error(Code.INVALID_REQUEST, reason=f"no {wanted.result_id}"))
            raise flight.FlightServerError(refused.message, encode_answer(refused))
        return flight.GeneratorStream(NUMBERS, _chunk(wanted))

    def _answers(self, request: Request) -> Iterator[Answer]:
        match request:
            case Ping():
                yield EngineInfo(spark_version="0.0-fake", pid=os.getpid(), jvm_pid=0)
            case InspectMemory():
                yield memory(in_use=int(BUSY.exists()))
            case Execute(sql="progress"):
                for done in (1, 2):
                    yield Progress(
                        stages_done=done,
                        stages_total=2,
                        tasks_done=done,
                        tasks_running=0,
                        tasks_total=2,
                    )
                yield executed_answer()
            case Execute(sql="fail"):
                yield failure(error(Code.MT_NOT_FOUND, table="a.b.c", line=3))
            case Execute(sql="crash"):
                raise ValueError("a bug in the engine")
            case Execute(sql="die"):
                os._exit(7)
            case Execute(sql="hang"):
                time.sleep(60)
            case Execute(sql="silent"):
                return
            case Execute():
                yield executed_answer()
            case ForgetSessions():
                _say("forgot")
                yield Done()
            case CloseResult(result_id=result_id):
                _say(f"closed {result_id}")
                yield Done()
            case _:
                yield Done()


def memory(in_use: int) -> EngineMemory:
    return EngineMemory(
        heap_used=1,
        heap_live=0,
        heap_limit=2,
        direct_used=0,
        direct_limit=1,
        collecting_ms=0,
        uptime_ms=1,
        in_use=in_use,
    )


def executed_answer() -> Executed:
    """Return the answer that names the three chunks."""
    return Executed(
        result_id="numbers",
        schema=Schema((Column(name="n", type="bigint"),)),
        has_result_set=True,
        chunks=len(CHUNK_ROWS),
        rows=sum(CHUNK_ROWS),
        current_catalog="spark_catalog",
        current_schema="default",
    )


def _chunk(ticket: ChunkTicket) -> Iterator[pa.RecordBatch]:
    first = sum(CHUNK_ROWS[: ticket.chunk])
    for number in range(first, first + CHUNK_ROWS[ticket.chunk]):
        yield pa.record_batch([pa.array([number])], schema=NUMBERS)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _leave_with_the_gateway() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    """Serve until the standard input ends."""
    if sys.argv[1:2] == ["broken"]:
        _say(" ".join(["no Spark here", *sys.argv[2:]]))
        sys.exit(3)
    if sys.argv[1:] == ["mute"]:
        time.sleep(60)
    options = msgspec.json.decode(sys.stdin.readline(), type=EngineOptions)
    threading.Thread(target=_leave_with_the_gateway, daemon=True).start()
    FakeEngine(f"grpc+unix://{options.socket}").serve()


if __name__ == "__main__":
    main()
