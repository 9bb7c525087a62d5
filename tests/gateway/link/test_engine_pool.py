"""Engines of users: started on first use, ended when they are not used, apart from each other."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.support.engine_options import engine_options
from tests.support.waiting import wait_until
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import (
    Cancel,
    ChunkTicket,
    DropTable,
    Execute,
    Ping,
    SetTableProperties,
)
from tidegate_server.core.model.names import TableName
from tidegate_server.gateway.link.engine_pool import EnginePool, folder_name
from tidegate_server.gateway.link.process import LocalStarter
from tidegate_server.gateway.link.routing import Home, RoutedEngine
from tidegate_server.gateway.link.supervisor import Supervisor

pytestmark = pytest.mark.slow

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")

MakeEngines = Callable[..., EnginePool]


@pytest.fixture
def make_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeEngines]:
    """Makes engines of users that are stopped afterwards."""
    monkeypatch.chdir(tmp_path)  # where the engines look whether they are busy

    def make_supervisor(user: str) -> Supervisor:
        if user == "root":
            raise error(Code.ENGINE_ACCOUNT, user=user, account=user, reason="it is that of root")
        return Supervisor(
            engine_options(data=str(tmp_path)),
            logs=tmp_path / "logs",
            start_timeout=30.0,
            starter=LocalStarter([sys.executable, str(FAKE_ENGINE)]),
            owner=user,
            log_name=f"engine-out-{folder_name(user)}.log",
        )

    with ExitStack() as stack:

        def make(max_engines: int = 4, idle_timeout: float = 3600.0) -> EnginePool:
            engines = EnginePool(
                make_supervisor,
                prepare=lambda: None,
                max_engines=max_engines,
                idle_timeout=idle_timeout,
                limit="engine.max_engines",
                announce=lambda text: None,
            )
            stack.callback(engines.close)
            stack.callback(engines.stop)
            return engines

        yield make


def pid_of(engines: EnginePool, user: str) -> int:
    return engines.of(user).call(Ping()).pid


def test_each_user_has_an_engine_that_starts_on_first_use(make_engines: MakeEngines) -> None:
    engines = make_engines()
    assert not engines.of("ann").ready
    assert not engines.up()
    pids = {user: pid_of(engines, user) for user in ("ann", "bob")}
    assert pids["ann"] != pids["bob"]
    assert {user: info.pid for user, info in engines.up().items()} == pids
    assert pid_of(engines, "ann") == pids["ann"]


def test_who_does_not_wait_starts_no_engine(make_engines: MakeEngines) -> None:
    engines = make_engines()
    with pytest.raises(ServerError) as caught:
        engines.of("ann").call(Ping(), wait=0)
    assert caught.value.code == "ENGINE_UNAVAILABLE"
    with pytest.raises(ServerError):
        list(engines.of("ann").read(ChunkTicket(result_id="numbers", chunk=0)))
    assert not engines.up()


def test_calls_at_the_same_time_start_one_engine(make_engines: MakeEngines) -> None:
    engines = make_engines()
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(pid_of(engines, "ann"))) for _ in "xyz"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1


def test_the_end_of_one_engine_does_not_touch_another(make_engines: MakeEngines) -> None:
    engines = make_engines()
    ann, bob = pid_of(engines, "ann"), pid_of(engines, "bob")
    before = engines.of("ann").generation
    os.kill(ann, signal.SIGKILL)
    wait_until(lambda: engines.of("ann").generation > before, "the end was not noticed")
    assert pid_of(engines, "bob") == bob
    assert pid_of(engines, "ann") not in (ann, bob)
    assert engines.restarts() == 1


def test_an_engine_that_nobody_uses_ends_and_starts_again(make_engines: MakeEngines) -> None:
    engines = make_engines(idle_timeout=0.01)
    ann, before = pid_of(engines, "ann"), engines.of("ann").generation
    wait_until(lambda: engines.check() or not engines.up(), "the engine does not end")
    assert not psutil.pid_exists(ann)
    # What sessions opened in that engine is gone, as they see by its generation.
    assert engines.of("ann").generation > before
    assert pid_of(engines, "ann") != ann
    assert engines.restarts() == 0


def test_an_engine_with_unread_results_or_running_work_stays(make_engines: MakeEngines) -> None:
    engines = make_engines(idle_timeout=0.01)
    ann = pid_of(engines, "ann")
    Path("fake-engine-is-busy").touch()
    for _ in range(3):
        engines.check()
    assert pid_of(engines, "ann") == ann


def test_a_new_user_takes_the_place_of_who_did_nothing_for_longest(
    make_engines: MakeEngines,
) -> None:
    engines = make_engines(max_engines=2)
    for user in ("ann", "bob", "ann"):
        pid_of(engines, user)
    pid_of(engines, "eva")
    assert set(engines.up()) == {"ann", "eva"}


def test_a_new_user_is_refused_while_all_engines_are_busy(make_engines: MakeEngines) -> None:
    engines = make_engines(max_engines=1)
    ann = pid_of(engines, "ann")
    Path("fake-engine-is-busy").touch()
    with pytest.raises(ServerError, match=r"engine\.max_engines") as caught:
        pid_of(engines, "bob")
    assert caught.value.code == "ENGINE_UNAVAILABLE"
    assert pid_of(engines, "ann") == ann


def test_a_refused_account_ends_no_other_engine(make_engines: MakeEngines) -> None:
    engines = make_engines(max_engines=1)
    ann = pid_of(engines, "ann")
    with pytest.raises(ServerError) as caught:
        pid_of(engines, "root")
    assert caught.value.code == "ENGINE_ACCOUNT"
    assert pid_of(engines, "ann") == ann


def test_stopping_ends_all_engines_and_starts_none(make_engines: MakeEngines) -> None:
    engines = make_engines()
    pids = [pid_of(engines, user) for user in ("ann", "bob")]
    engines.stop()
    assert not any(map(psutil.pid_exists, pids))
    with pytest.raises(ServerError, match="stopping"):
        pid_of(engines, "eva")


def test_log_lines_name_the_user(make_engines: MakeEngines, tmp_path: Path) -> None:
    pid_of(make_engines(), "ann")
    assert (tmp_path / "logs" / "engine-out-ann.log").exists()


def test_directories_of_users_differ_and_are_no_paths() -> None:
    users = ["ann", "Ann", "ann@A.ORG", "../ann", "", ".", "%ann", "ann/", "x" * 300]
    names = [folder_name(user) for user in users]
    assert names[:2] == ["ann", "Ann"]
    assert len(set(names)) == len(users)
    assert all("/" not in name and not name.startswith(".") and len(name) < 65 for name in names)


# ---- routing -----------------------------------------------------------------------------------


@pytest.fixture
def routed(make_engines: MakeEngines) -> Iterator[tuple[RoutedEngine, EnginePool]]:
    """The requests of a gateway whose table 7 is bob's; its own engine is that of nobody."""
    engines, own = make_engines(), make_engines()

    def home_of(table_id: str, target: str) -> Home | None:
        if table_id == "gone":
            raise error(Code.ENGINE_UNAVAILABLE, reason="it is not configured")
        return Home(engines.of("bob"), user="bob") if table_id == "7" else None

    yield RoutedEngine(own.of("gateway"), [engines], home_of), engines


def test_work_on_a_table_starts_the_engine_of_its_executor(
    routed: tuple[RoutedEngine, EnginePool],
) -> None:
    engine, users = routed
    name = TableName("spark_catalog", "pay", "m")
    engine.call(DropTable(name=name, table_id="unknown"))
    assert not users.up()
    engine.call(DropTable(name=name, table_id="7"), wait=0)
    assert list(users.up()) == ["bob"]
    assert users.of("bob").call(Ping()).pid != engine.call(Ping()).pid


def test_a_table_without_its_engine_can_only_be_dropped(
    routed: tuple[RoutedEngine, EnginePool],
) -> None:
    engine, _ = routed
    name = TableName("spark_catalog", "pay", "m")
    engine.call(DropTable(name=name, table_id="gone"))
    with pytest.raises(ServerError, match="not configured"):
        engine.call(SetTableProperties(name=name, table_id="gone", properties={}))


def test_a_cancel_reaches_the_engines_that_are_up_and_starts_none(
    routed: tuple[RoutedEngine, EnginePool],
) -> None:
    engine, users = routed
    users.of("ann").call(Ping())
    users.of("bob")
    engine.call(Cancel(operation_id="x"))
    assert list(users.up()) == ["ann"]


def test_a_statement_that_dies_with_its_engine_is_told_so(
    routed: tuple[RoutedEngine, EnginePool],
) -> None:
    _, users = routed
    with pytest.raises(ServerError) as caught:
        users.of("ann").call(Execute(session_id="s", operation_id="o", sql="die"))
    assert caught.value.code == "ENGINE_LOST"
