"""Engines whose process runs in a cluster: registration, connections, restarts, ends."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.gateway.link.fake_engine import executed_answer
from tests.support.cutting_proxy import cutting_proxy
from tests.support.engine_options import engine_options
from tests.support.postgres import free_port
from tests.support.waiting import wait_until
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.requests import ChunkTicket, Execute
from tidegate_server.core.tunnel import (
    Accepted,
    Connection,
    Line,
    Register,
    Rejected,
    Resume,
)
from tidegate_server.gateway.link import registration, submission
from tidegate_server.gateway.link.flight import FlightEngine
from tidegate_server.gateway.link.registration import Registrar
from tidegate_server.gateway.link.submission import ClusterStarter, read_record
from tidegate_server.gateway.link.supervisor import Supervisor

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
FAKE_SUBMISSION = Path(__file__).with_name("fake_submission.py")


class Gateway:
    """As much of a gateway as engines in clusters see."""

    def __init__(self, folder: Path, port: int, *arguments: str, lease: float = 60.0) -> None:
        """``arguments`` are those of the program that submits engines."""
        self.folder = folder
        self.announcements: list[str] = []
        self.registrar = Registrar("127.0.0.1", port, "127.0.0.1", folder / "registration.pem")
        record = read_record(folder / "registration.json")
        self.registrar.start([] if record is None else [record.known])
        self.supervisor = Supervisor(
            engine_options(
                data=str(folder),
                master="yarn",
                settings={"spark.hadoop.fs.s3a.secret.key": "hush"},
            ),
            logs=folder / "logs",
            start_timeout=30.0,
            announce=self.announcements.append,
            starter=ClusterStarter(
                self.registrar,
                "etl",
                folder / "registration.json",
                lease=lease,
                command=[
                    sys.executable,
                    str(FAKE_SUBMISSION),
                    str(folder / "agent.log"),
                    *arguments,
                ],
            ),
        )
        self.engine = FlightEngine(self.supervisor)

    def start(self) -> None:
        self.supervisor.start()
        self.supervisor.wait(None)

    @property
    def pid(self) -> int:
        """The process of the engine."""
        info = self.supervisor.info
        assert info is not None
        return info.pid

    def stop(self) -> None:
        self.supervisor.stop(10)
        self.engine.close()
        self.registrar.stop()


MakeGateway = Callable[..., Gateway]


@pytest.fixture
def make_gateway(tmp_path: Path) -> Iterator[MakeGateway]:
    """Makes gateways, and ends what they have left."""
    made: list[Gateway] = []

    def make(*arguments: str, port: int = 0, lease: float = 60.0) -> Gateway:
        made.append(Gateway(tmp_path, port, *arguments, lease=lease))
        return made[-1]

    yield make
    for gateway in made:
        gateway.stop()


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    """A gateway whose engine has registered."""
    made = make_gateway()
    made.start()
    return made


def execute(sql: str) -> Execute:
    return Execute(operation_id=sql, session_id="s", sql=sql)


def agent_log(gateway: Gateway) -> str:
    return (gateway.folder / "agent.log").read_text()


def test_a_submitted_engine_registers_and_serves(gateway: Gateway) -> None:
    assert gateway.engine.call(execute("progress")) == executed_answer()
    ticket = ChunkTicket(result_id="numbers", chunk=1)
    assert [batch["n"][0].as_py() for batch in gateway.engine.read(ticket)] == [3, 4]
    assert "Engine ready after " in gateway.announcements[0]


def test_many_connections_at_once(gateway: Gateway) -> None:
    with ExitStack() as stack:
        for _ in range(20):
            other = FlightEngine(gateway.supervisor)
            stack.callback(other.close)
            assert other.call(execute("SELECT 1")) == executed_answer()


def test_a_failed_submission_says_why(make_gateway: MakeGateway) -> None:
    gateway = make_gateway("fail")
    gateway.supervisor.start()
    with pytest.raises(ServerError) as caught:
        gateway.supervisor.wait(None)
    assert caught.value.code == "ENGINE_UNAVAILABLE"
    assert "exit code 2" in caught.value.message
    assert "the queue etl does not exist" in caught.value.message


def test_an_engine_that_fails_in_the_cluster_says_why(make_gateway: MakeGateway) -> None:
    gateway = make_gateway("broken")
    gateway.supervisor.start()
    with pytest.raises(ServerError) as caught:
        gateway.supervisor.wait(None)
    assert "exit code 3" in caught.value.message
    assert "no Spark here" in caught.value.message


def test_an_engine_that_dies_is_submitted_again(gateway: Gateway) -> None:
    first = gateway.pid
    with pytest.raises(ServerError) as caught:
        gateway.engine.call(execute("die"))
    assert caught.value.code == "ENGINE_LOST"
    supervisor = gateway.supervisor
    wait_until(lambda: supervisor.generation == 2 and supervisor.ready, "no other engine")
    assert gateway.pid != first
    assert any("ended (exit code 7)" in each for each in gateway.announcements)


def test_stopping_ends_engine_and_agent(gateway: Gateway) -> None:
    engine = psutil.Process(gateway.pid)
    agent = engine.parent()
    assert agent is not None
    gateway.stop()
    wait_until(lambda: not engine.is_running() and not agent.is_running(), "it does not end")
    assert not (gateway.folder / "registration.json").exists()


def test_a_broken_connection_is_resumed(make_gateway: MakeGateway) -> None:
    port = free_port()
    with cutting_proxy(port) as proxy:
        gateway = make_gateway(str(proxy.port), port=port)
        gateway.start()
        pid = gateway.pid
        proxy.interrupt()
        # The first call may meet the connection that was cut.
        wait_until(lambda: _answers(gateway), "the engine does not answer")
        assert gateway.pid == pid
        assert gateway.supervisor.generation == 1
        gateway.stop()


def _answers(gateway: Gateway) -> bool:
    try:
        return gateway.engine.call(execute("SELECT 1")) == executed_answer()
    except ServerError:
        return False


def killed_gateway(folder: Path, port: int, lease: float = 60.0) -> psutil.Process:
    """Kill a gateway whose engine has registered; return the engine, which runs."""
    program = textwrap.dedent(
        f"""
        import time
        from pathlib import Path
        from tests.gateway.link.test_registration import Gateway
        gateway = Gateway(Path({str(folder)!r}), {port}, lease={lease})
        gateway.start()
        print(gateway.pid, flush=True)
        time.sleep(60)
        """
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as gateway:
        assert gateway.stdout is not None
        engine = psutil.Process(int(gateway.stdout.readline()))
        gateway.kill()
    return engine


def test_a_gateway_that_is_started_again_finds_its_engine(
    make_gateway: MakeGateway, tmp_path: Path
) -> None:
    port = free_port()
    engine = killed_gateway(tmp_path, port)
    gateway = make_gateway(port=port)
    gateway.start()
    assert gateway.pid == engine.pid
    assert _answers(gateway)
    wait_until(lambda: "forgot" in agent_log(gateway), "the engine keeps old sessions")


def test_a_known_engine_waits_until_it_is_wanted(make_gateway: MakeGateway, tmp_path: Path) -> None:
    port = free_port()
    engine = killed_gateway(tmp_path, port)
    gateway = make_gateway(port=port)
    wait_until(lambda: "is not reached yet" in agent_log(gateway), "it does not try to return")
    gateway.start()
    assert gateway.pid == engine.pid


def test_an_engine_that_is_no_longer_wanted_ends(make_gateway: MakeGateway, tmp_path: Path) -> None:
    port = free_port()
    engine = killed_gateway(tmp_path, port)
    (tmp_path / "registration.json").unlink()
    gateway = make_gateway(port=port)
    wait_until(lambda: not engine.is_running(), "the engine lives on")
    assert "does not expect this engine" in agent_log(gateway)


def test_another_engine_is_submitted_if_the_known_one_is_gone(
    make_gateway: MakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "_RETURN_SECONDS", 0.5)
    port = free_port()
    engine = killed_gateway(tmp_path, port)
    agent = engine.parent()
    assert agent is not None
    agent.kill()
    engine.kill()
    gateway = make_gateway(port=port)
    gateway.start()
    assert gateway.pid != engine.pid


def test_without_a_gateway_an_engine_ends_after_its_lease(tmp_path: Path) -> None:
    engine = killed_gateway(tmp_path, free_port(), lease=1.0)
    wait_until(lambda: not engine.is_running(), "the engine lives on")
    assert "the gateway was not reached for 1 s" in (tmp_path / "agent.log").read_text()


def test_an_engine_that_vanishes_is_given_up(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "_RETURN_SECONDS", 0.5)
    agent = psutil.Process(gateway.pid).parent()
    assert agent is not None
    record = read_record(gateway.folder / "registration.json")
    assert record is not None
    agent.send_signal(signal.SIGKILL)
    os.kill(gateway.pid, signal.SIGKILL)
    said = gateway.announcements
    wait_until(lambda: any("connection was lost" in each for each in said), "it is not noticed")


@pytest.mark.parametrize(
    "line", [Register("guess"), Register(""), Resume("guess"), Resume("")], ids=repr
)
def test_nobody_else_is_admitted(gateway: Gateway, line: Line) -> None:
    assert isinstance(asyncio.run(_greet(gateway, line)), Rejected)


def test_a_token_is_accepted_once(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    options = engine_options(socket=str(gateway.folder / "engine.sock"), master="yarn")
    engine, invitation = gateway.registrar.invite(options, 60.0)
    first = asyncio.run(_greet(gateway, Register(invitation.token)))
    assert isinstance(first, Accepted)
    assert first.options == options
    assert isinstance(asyncio.run(_greet(gateway, Register(invitation.token))), Rejected)
    engine.end(0)
    assert isinstance(asyncio.run(_greet(gateway, Resume(first.credential))), Rejected)


def test_a_gateway_with_another_certificate_is_not_trusted(
    make_gateway: MakeGateway, tmp_path: Path
) -> None:
    gateway = make_gateway()
    other = Registrar("127.0.0.1", 0, "127.0.0.1", tmp_path / "other.pem")
    other.start()
    try:
        with pytest.raises(ssl.SSLCertVerificationError):
            asyncio.run(_greet(gateway, Register("x"), port=other.port))
    finally:
        other.stop()


async def _greet(gateway: Gateway, line: Line, port: int = 0) -> Line:
    """Send a first line with the certificate that agents get, and return the answer."""
    context = ssl.create_default_context(cafile=str(gateway.folder / "registration.pem"))
    context.check_hostname = False
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port or gateway.registrar.port, ssl=context
    )
    connection = Connection(reader, writer)
    await connection.send(line)
    try:
        return await connection.receive()
    finally:
        await connection.close()
