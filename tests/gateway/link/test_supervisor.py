"""Starting, replacing and stopping engine processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import EngineInfo
from tidegate_server.core.messages.requests import CloseResult, Request
from tidegate_server.gateway.link.process import exit_text
from tidegate_server.gateway.link.supervisor import Supervisor, backoff, rotate

pytestmark = pytest.mark.slow

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")


def wait_until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_failed_starts_are_repeated_after_ever_longer_pauses() -> None:
    assert [backoff(n) for n in range(8)] == [0, 1, 2, 4, 8, 16, 30, 30]
    assert backoff(10_000) == 30


def test_a_started_engine_is_ready(supervisor: Supervisor, announcements: list[str]) -> None:
    assert supervisor.ready
    assert supervisor.generation == 1
    assert announcements[0].startswith("Engine ready after ")


def test_who_asks_while_it_starts_waits(make_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = make_supervisor()
    supervisor.start()
    assert supervisor.wait(None).generation == 1


def test_the_socket_is_for_this_user_only(supervisor: Supervisor) -> None:
    folder = Path(supervisor.wait(0).location.removeprefix("grpc+unix://")).parent
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_killed_engine_is_replaced(supervisor: Supervisor) -> None:
    first = supervisor.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: supervisor.generation == 2 and supervisor.ready)
    assert supervisor.pid != first


def test_an_engine_that_ends_while_the_gateway_stops_is_not_replaced(
    supervisor: Supervisor, announcements: list[str]
) -> None:
    pid = supervisor.pid
    assert pid is not None
    supervisor.start_no_other()
    assert supervisor.ready
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: supervisor.generation == 2)
    with pytest.raises(ServerError, match="the gateway is stopping"):
        supervisor.wait(None)
    assert announcements[-1].endswith("(killed by SIGKILL); the gateway is stopping")
    assert supervisor.pid == pid


def test_each_start_calls_back(make_supervisor: Callable[..., Supervisor]) -> None:
    told: list[EngineInfo] = []
    supervisor = make_supervisor()
    supervisor.on_ready(told.append)
    supervisor.start()
    wait_until(lambda: len(told) == 1)
    os.kill(told[0].pid, signal.SIGKILL)
    wait_until(lambda: len(told) == 2)
    assert told[0].pid != told[1].pid


def test_a_callback_that_fails_does_not_end_the_watching(
    make_supervisor: Callable[..., Supervisor],
) -> None:
    def fail(info: EngineInfo) -> None:
        raise RuntimeError("a bug")

    supervisor = make_supervisor()
    supervisor.on_ready(fail)
    supervisor.start()
    wait_until(lambda: supervisor.ready)
    assert supervisor.pid is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_until(lambda: supervisor.generation == 2 and supervisor.ready)


def test_an_engine_that_cannot_start_says_its_last_words(
    make_supervisor: Callable[..., Supervisor],
) -> None:
    supervisor = make_supervisor("broken")
    supervisor.start()
    with pytest.raises(ServerError) as caught:
        supervisor.wait(None)
    assert caught.value.code == "ENGINE_UNAVAILABLE"
    assert "exit code 3" in caught.value.message
    assert "no Spark here" in caught.value.message


def test_an_engines_last_words_contain_no_secret(
    make_supervisor: Callable[..., Supervisor],
) -> None:
    supervisor = make_supervisor("broken", "jdbc:x://h?password=hush")
    supervisor.start()
    with pytest.raises(ServerError) as caught:
        supervisor.wait(None)
    assert "hush" not in str(caught.value)
    assert "password=*****" in caught.value.message


def test_an_engine_gets_no_variable_of_the_configuration(
    make_supervisor: Callable[..., Supervisor], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TIDEGATE_STORE__URL", "HOUSE_SECRET", "TIDEGATE_CACHE"):
        monkeypatch.setenv(name, "x")
    supervisor = make_supervisor(hidden=["HOUSE_SECRET"])
    supervisor.start()
    supervisor.wait(None)
    assert supervisor.pid is not None
    variables = psutil.Process(supervisor.pid).environ()
    assert "TIDEGATE_CACHE" in variables
    assert not {"TIDEGATE_STORE__URL", "HOUSE_SECRET"} & set(variables)


def test_an_engine_that_never_answers_is_given_up(
    make_supervisor: Callable[..., Supervisor],
) -> None:
    supervisor = make_supervisor("mute", start_timeout=0.5)
    supervisor.start()
    with pytest.raises(ServerError) as caught:
        supervisor.wait(30)
    assert "did not answer within 0.5 s" in caught.value.message


def test_stopping_ends_the_engine(supervisor: Supervisor) -> None:
    pid = supervisor.pid
    supervisor.stop(5)
    assert pid is not None
    assert not psutil.pid_exists(pid)
    assert not supervisor.ready


def test_stopping_kills_an_engine_that_does_not_listen(supervisor: Supervisor) -> None:
    pid = supervisor.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    supervisor.stop(0.2)
    assert not psutil.pid_exists(pid)


def test_stopping_wakes_those_who_wait(make_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = make_supervisor("mute")
    supervisor.start()
    wait_until(lambda: supervisor.pid)
    supervisor.stop(0.1)
    with pytest.raises(ServerError) as caught:
        supervisor.wait(None)
    assert "stopping" in caught.value.message


def test_nothing_survives_a_killed_gateway(tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import sys, time
        from pathlib import Path
        from tidegate_server.core.messages.requests import EngineOptions
        from tidegate_server.gateway.link.process import LocalStarter
        from tidegate_server.gateway.link.supervisor import Supervisor
        options = EngineOptions(socket="", data="", master="", driver_memory="", java_home="",
                                direct_bytes=1, spool_quota=1)
        supervisor = Supervisor(options, logs=Path({str(tmp_path)!r}), start_timeout=30,
                                starter=LocalStarter([sys.executable, {str(FAKE_ENGINE)!r}]))
        supervisor.start()
        supervisor.wait(30)
        print(supervisor.pid, flush=True)
        time.sleep(60)
        """
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        engine = int(gateway.stdout.readline())
        gateway.kill()
    wait_until(lambda: not psutil.pid_exists(engine))


def test_each_start_has_a_log_of_its_own(supervisor: Supervisor, tmp_path: Path) -> None:
    assert supervisor.pid is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_until(lambda: supervisor.generation == 2 and supervisor.ready)
    names = {file.name for file in (tmp_path / "logs").iterdir()}
    assert names == {"engine-out.log", "engine-out.log.1"}
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "logs").iterdir()} == {0o600}


def test_only_the_newest_logs_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "engine.log"
    for number in range(5):
        file.write_text(str(number))
        rotate(file, kept=2)
    assert not file.exists()
    assert (tmp_path / "engine.log.1").read_text() == "4"
    assert (tmp_path / "engine.log.2").read_text() == "3"
    assert not (tmp_path / "engine.log.3").exists()


def test_ends_are_told_in_words() -> None:
    assert exit_text(3) == "exit code 3"
    assert exit_text(-9) == "killed by SIGKILL"


def test_an_engine_serves_while_it_is_prepared(make_supervisor: Callable[..., Supervisor]) -> None:
    release, done = threading.Event(), threading.Event()

    def prepare() -> Iterator[Request]:
        assert release.wait(30)
        yield CloseResult(result_id="prepared")

    def follow() -> None:
        supervisor.wait_prepared()
        done.set()

    supervisor = make_supervisor(prepare=prepare)
    supervisor.start()
    supervisor.wait(30)
    waiting = threading.Thread(target=follow, daemon=True)
    waiting.start()
    assert not done.wait(0.2)
    release.set()
    assert done.wait(30)
    waiting.join()


def test_an_engine_that_cannot_be_prepared_serves_nevertheless(
    make_supervisor: Callable[..., Supervisor],
) -> None:
    def prepare() -> Iterator[Request]:
        raise RuntimeError("no disk")

    supervisor = make_supervisor(prepare=prepare)
    supervisor.start()
    assert supervisor.wait(30).generation == 1
    supervisor.wait_prepared()
