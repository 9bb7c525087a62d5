"""One engine process for the whole test session, spoken to over its real socket."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from tests.support.engine_options import engine_options
from tests.support.spark_settings import BRIEF, IN_MEMORY, LONG_LIVED, WITHOUT_FORKS
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Answer, Executed, Failure, Progress, TableList
from tidegate_server.core.messages.encoding import decode_answer, encode_request, encode_ticket
from tidegate_server.core.messages.requests import (
    ChunkTicket,
    CloseSession,
    DropTable,
    DropView,
    Execute,
    ListTables,
    OpenSession,
    Request,
)

START_TIMEOUT = 180.0


class EngineProcess:
    """An engine started the way the gateway does it."""

    def __init__(self, home: Path, **changed: object) -> None:
        self.home = home
        self.data = home / "data"
        self.socket = home / "engine.sock"
        options = engine_options(
            socket=str(self.socket),
            data=str(self.data),
            driver_memory="2g",
            direct_bytes=32 << 20,
            spool_quota=1 << 30,
            warm_up=False,
            settings={**BRIEF, **IN_MEMORY, **WITHOUT_FORKS},
        )
        line = json.dumps({**asdict(options), **changed}) + "\n"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tidegate_server.engine"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=home,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()

    def wait(self) -> None:
        """Wait until it answers."""
        end = time.monotonic() + START_TIMEOUT
        while not self.socket.exists():
            assert self.process.poll() is None, "the engine ended while starting"
            assert time.monotonic() < end, "the engine did not start in time"
            time.sleep(0.1)

    def client(self) -> Client:
        """Return a new connection."""
        return Client(self.socket)

    def stop(self) -> None:
        """Close its standard input, as a dying gateway does, and wait for its end."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it may have ended before
            self.process.stdin.close()
        self.process.wait(timeout=30)


class Client:
    """The gateway's half of the protocol, as small as tests need it."""

    def __init__(self, socket: Path) -> None:
        self._flight = flight.FlightClient(f"grpc+unix://{socket}")
        self.progress: list[Progress] = []

    def call(self, request: Request) -> Answer:
        """Send a request and return its final answer; a failure is raised."""
        action, body = encode_request(request)
        final: Answer | None = None
        for item in self._flight.do_action(flight.Action(action, body)):
            answer = decode_answer(item.body.to_pybytes())
            if isinstance(answer, Progress):
                self.progress.append(answer)
            else:
                final = answer
        assert final is not None
        if isinstance(final, Failure):
            raise final.to_error()
        return final

    def read(self, result_id: str, chunk: int) -> pa.Table:
        """Return one chunk."""
        ticket = flight.Ticket(encode_ticket(ChunkTicket(result_id=result_id, chunk=chunk)))
        return self._flight.do_get(ticket).read_all()

    def close(self) -> None:
        """Close the connection."""
        self._flight.close()


class Session:
    """A session in the engine."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.id = str(uuid.uuid4())
        client.call(OpenSession(session_id=self.id))

    def execute(self, sql: str, **changed: object) -> Executed:
        """Run a statement."""
        request = Execute(
            session_id=self.id,
            operation_id=str(changed.pop("operation_id", uuid.uuid4())),
            sql=sql,
            **changed,  # type: ignore[arg-type]
        )
        answer = self.client.call(request)
        assert isinstance(answer, Executed)
        return answer

    def rows(self, sql: str, **changed: object) -> list[tuple[object, ...]]:
        """Run a query and return its rows."""
        answer = self.execute(sql, **changed)
        return [tuple(row.values()) for row in self.table(answer).to_pylist()]

    def table(self, answer: Executed) -> pa.Table:
        """Return a whole result."""
        if answer.inline is not None:
            return pa.ipc.open_stream(answer.inline).read_all()
        chunks = [self.client.read(answer.result_id, i) for i in range(answer.chunks)]
        return pa.concat_tables(chunks)

    def failure(self, sql: str, **changed: object) -> ServerError:
        """Run a statement that must fail and return its error."""
        with pytest.raises(ServerError) as caught:
            self.execute(sql, **changed)
        return caught.value


@pytest.fixture(scope="session")
def start_engine() -> Iterator[Callable[..., EngineProcess]]:
    """Start engines that are stopped with the test session."""
    started: list[EngineProcess] = []

    def start(**changed: object) -> EngineProcess:
        home = Path(tempfile.mkdtemp(prefix="tg"))
        os.chmod(home, 0o700)
        engine = EngineProcess(home, **changed)
        started.append(engine)
        engine.wait()
        return engine

    yield start
    for engine in started:
        engine.stop()
        shutil.rmtree(engine.home, ignore_errors=True)


@pytest.fixture(scope="session")
def engine(start_engine: Callable[..., EngineProcess]) -> EngineProcess:
    """The engine that all tests share."""
    return start_engine(settings={**LONG_LIVED, **IN_MEMORY, **WITHOUT_FORKS})


@pytest.fixture
def client(engine: EngineProcess) -> Iterator[Client]:
    """A connection to the shared engine."""
    connection = engine.client()
    yield connection
    connection.close()


@pytest.fixture
def session(client: Client) -> Iterator[Session]:
    """A fresh session."""
    opened = Session(client)
    yield opened
    client.call(CloseSession(session_id=opened.id))


@pytest.fixture
def schema(session: Session) -> Iterator[str]:
    """A fresh schema, current in the session."""
    yield from _new_schema(session)


@pytest.fixture(scope="module")
def module_session(engine: EngineProcess) -> Iterator[Session]:
    """A session in which a module makes what all its tests read."""
    connection = engine.client()
    opened = Session(connection)
    yield opened
    connection.call(CloseSession(session_id=opened.id))
    connection.close()


@pytest.fixture(scope="module")
def module_schema(module_session: Session) -> Iterator[str]:
    """A schema for all tests of a module that change nothing in it."""
    yield from _new_schema(module_session)


def _new_schema(session: Session) -> Iterator[str]:
    """Create a schema that is current in the session until it is dropped."""
    name = f"s{uuid.uuid4().hex[:8]}"
    session.execute(f"CREATE SCHEMA {name}")
    session.execute(f"USE {name}")
    yield name
    _drop_materialized(session, name)
    session.execute(f"DROP SCHEMA {name} CASCADE")


def _drop_materialized(session: Session, schema: str) -> None:
    """Drop what DROP SCHEMA leaves to DROP MATERIALIZED TABLE."""
    listed = session.client.call(ListTables(schema=schema))
    assert isinstance(listed, TableList)
    for table in listed.tables:
        shown = dict(session.rows(f"SHOW TBLPROPERTIES {table.name.quoted()}"))
        if "tidegate.id" not in shown:
            continue
        drop = DropView if table.type == "VIEW" else DropTable
        session.client.call(drop(name=table.name, table_id=str(shown["tidegate.id"])))
