"""What is left when processes die: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.engine.conftest import EngineProcess, Session
from tests.support.spark_settings import BRIEF, IN_MEMORY
from tests.support.waiting import wait_until
from tidegate_server.core.messages.answers import EngineInfo
from tidegate_server.core.messages.requests import CloseResult, Ping

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.thorough]

StartEngine = Callable[..., EngineProcess]


def jvm_of(engine: EngineProcess) -> int:
    client = engine.client()
    answer = client.call(Ping())
    client.close()
    assert isinstance(answer, EngineInfo)
    return answer.jvm_pid


def gone(pid: int, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.1)
    return False


def test_killing_the_engine_leaves_no_java(start_engine: StartEngine) -> None:
    engine = start_engine()
    jvm = jvm_of(engine)
    engine.process.kill()
    engine.process.wait()
    assert gone(jvm)


def test_the_engine_ends_with_its_standard_input_and_sweeps_what_was_left(
    start_engine: StartEngine,
) -> None:
    engine = start_engine(settings=BRIEF)  # with a metastore on disk
    jvm = jvm_of(engine)
    session = Session(engine.client())
    session.execute("CREATE TABLE kept USING delta AS SELECT 1 a")
    session.execute("SELECT id FROM range(50000)", inline_bytes=0)
    engine.process.send_signal(signal.SIGINT)
    assert list((engine.data / "spool").iterdir())
    engine.stop()
    assert engine.process.returncode == 0
    assert gone(jvm)
    again = EngineProcess(engine.home, settings=BRIEF)
    try:
        again.wait()
        assert not list((engine.data / "spool").iterdir())
        assert Session(again.client()).rows("SELECT * FROM kept") == [(1,)]
        again.process.terminate()
        assert again.process.wait(timeout=20) == 0
    finally:
        again.process.kill()
        again.stop()


def test_the_engine_ends_when_the_jvm_dies(start_engine: StartEngine) -> None:
    engine = start_engine()
    os.kill(jvm_of(engine), signal.SIGKILL)
    assert engine.process.wait(timeout=20) != 0


def test_the_engine_ends_with_a_killed_parent(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from tests.engine.conftest import EngineProcess\n"
        f"engine = EngineProcess(Path({str(tmp_path)!r})); engine.wait()\n"
        "print(engine.process.pid, flush=True); sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    java = [p.pid for p in psutil.Process(pid).children(recursive=True) if p.name() == "java"]
    parent.kill()
    parent.communicate()
    assert java
    assert gone(pid)
    assert all(gone(each) for each in java)


@pytest.fixture(scope="module")
def limited(start_engine: StartEngine) -> Iterator[EngineProcess]:
    """An engine with a quota for each user, with Spark's UI, that warms up."""
    ui = {"spark.ui.enabled": "true", "spark.ui.port": "0"}
    engine = start_engine(
        spool_quota_per_user=1 << 20,
        direct_bytes=1 << 20,
        warm_up=True,
        settings={**BRIEF, **IN_MEMORY, **ui},
    )
    yield engine
    engine.stop()


def test_an_engine_warms_up_if_it_is_asked_to(
    engine: EngineProcess, limited: EngineProcess
) -> None:
    def log(of: EngineProcess) -> str:
        return (of.data / "logs" / "engine.log").read_text()

    wait_until(lambda: "warmed up" in log(limited), "it did not warm up")
    assert "warmed up" not in log(engine)


def test_a_result_beyond_the_quota_is_refused(start_engine: StartEngine) -> None:
    engine = start_engine(spool_quota=1 << 20, direct_bytes=1 << 20)
    session = Session(engine.client())
    failed = session.failure("SELECT id, uuid() FROM range(2000000)")
    assert failed.code == "RESULT_TOO_LARGE"
    assert not list((engine.data / "spool").iterdir())
    assert session.rows("SELECT 1") == [(1,)]


def test_a_result_beyond_its_users_quota_is_refused(limited: EngineProcess) -> None:
    session = Session(limited.client())
    big = "SELECT id, uuid() FROM range(2000000)"
    assert session.failure(big, owner="eva").code == "RESULTS_OF_USER_TOO_LARGE"
    kept = session.execute("SELECT id, uuid() FROM range(15000)", owner="eva", inline_bytes=0)
    again = session.failure("SELECT id, uuid() FROM range(15001)", owner="eva", inline_bytes=0)
    assert again.code == "RESULTS_OF_USER_TOO_LARGE"
    other = session.execute("SELECT id, uuid() FROM range(15002)", owner="ada", inline_bytes=0)
    session.client.call(CloseResult(result_id=kept.result_id))
    kept = session.execute("SELECT id, uuid() FROM range(15001)", owner="eva", inline_bytes=0)
    for result in (kept, other):
        session.client.call(CloseResult(result_id=result.result_id))


def test_the_page_of_a_job_is_named_where_sparks_ui_is_on(limited: EngineProcess) -> None:
    session = Session(limited.client())
    session.rows("SELECT count(*) FROM range(100000) a, range(700) b WHERE a.id % 7 = b.id % 11")
    url = session.client.progress[0].tracking_url
    with urllib.request.urlopen(url, timeout=20) as page:
        assert "Details for Job" in page.read().decode()
