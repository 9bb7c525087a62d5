"""An engine that mostly collects garbage says so, and is replaced when nothing suffers by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.link.test_supervisor import wait_until
from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.answers import EngineMemory
from tidegate_server.core.messages.requests import Execute
from tidegate_server.gateway.link.flight import FlightEngine
from tidegate_server.gateway.link.memory import MemoryWatch
from tidegate_server.gateway.link.supervisor import Supervisor
from tidegate_server.gateway.rest.status import health

pytestmark = pytest.mark.slow


@dataclass
class Clocked:
    """An engine whose JVM spends a share of its time in collections."""

    share: float = 0.0
    live: int = 700 << 20
    direct: int = 0
    generation: int = 1
    ready: bool = True
    waiting: float = 0.0
    uptime: int = 0
    collecting: int = 0
    asked: list[object] = field(default_factory=list)

    def call(self, request: object, **_: Any) -> EngineMemory:
        if not self.ready:
            raise error(Code.ENGINE_UNAVAILABLE, reason="gone")
        self.uptime += 15_000
        self.collecting += round(15_000 * self.share)
        return EngineMemory(
            heap_used=900 << 20,
            heap_live=self.live,
            heap_limit=1000 << 20,
            direct_used=self.direct,
            direct_limit=100,
            collecting_ms=self.collecting,
            uptime_ms=self.uptime,
            waiting_seconds=self.waiting,
        )


@dataclass
class Watched:
    engine: Clocked = field(default_factory=Clocked)
    said: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = MemoryWatch(
            self.engine,  # type: ignore[arg-type]
            replace=lambda reason: bool(self.replaced.append(reason)),
            announce=self.said.append,
        )

    def check(self, times: int) -> None:
        for _ in range(times):
            self.watch.check()


def test_a_healthy_engine_has_no_problem() -> None:
    watched = Watched(Clocked(share=0.05))
    watched.check(100)
    state = watched.watch.state
    assert state is not None
    assert state.collecting == pytest.approx(0.05)
    assert (state.problem, watched.said, watched.replaced) == (None, [], [])


def test_slow_collections_of_a_heap_that_is_mostly_free_are_no_problem() -> None:
    watched = Watched(Clocked(share=0.4, live=250 << 20))
    watched.check(100)
    assert (watched.said, watched.replaced) == ([], [])


def test_work_that_waits_for_executors_is_announced_once() -> None:
    watched = Watched(Clocked(waiting=20))
    watched.check(20)
    watched.engine.waiting = 0
    watched.check(2)
    assert ["no executor" in text for text in watched.said] == [True, False]
    assert "waits for executors any more" in watched.said[-1]
    assert watched.replaced == []


def test_an_engine_that_collects_says_so_once_and_is_to_be_replaced() -> None:
    watched = Watched(Clocked(share=0.4))
    watched.check(11)
    assert len(watched.said) == 1
    assert "spends 40% of its time in garbage collections" in watched.said[0]
    assert "engine.driver_memory" in watched.said[0]
    assert watched.replaced == []  # a burst is no reason
    watched.check(1)
    assert len(watched.replaced) == 1
    watched.check(1)
    assert len(watched.replaced) == 2  # again, until it is safe


def test_health_names_it_and_stays_ready() -> None:
    watched = Watched(Clocked(share=0.4))
    watched.check(2)

    class Readable:
        def by_id(self, table_id: str) -> None: ...

    found = health(Readable(), watched.engine, memory=watched.watch.state)  # type: ignore[arg-type]
    assert found.missing == ()
    assert "garbage collections" in found.problems[0]


def test_what_is_over_is_said() -> None:
    watched = Watched(Clocked(share=0.4))
    watched.check(3)
    watched.engine.share = 0.0
    watched.check(20)
    assert watched.said[-1] == "The engine has enough memory again."
    assert watched.replaced == []


def test_the_next_engine_is_not_judged_by_the_one_before() -> None:
    watched = Watched(Clocked(share=0.4))
    watched.check(11)
    watched.engine.generation = 2
    watched.engine.uptime = watched.engine.collecting = 0
    watched.check(11)
    assert watched.replaced == []


def test_direct_memory_that_is_nearly_used_up_is_a_problem() -> None:
    watched = Watched(Clocked(direct=95))
    watched.check(1)
    assert "MaxDirectMemorySize" in watched.said[0]


def test_without_an_engine_nothing_is_known() -> None:
    watched = Watched(Clocked(ready=False))
    watched.check(2)
    assert watched.watch.state is None


def test_an_engine_in_use_is_not_replaced(
    make_supervisor: Callable[..., Supervisor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fake-engine-is-busy").touch()
    supervisor = make_supervisor()
    supervisor.start()
    supervisor.wait(None)
    assert not supervisor.replace("why", lambda: True)
    assert not supervisor.replace("why", lambda: False)
    assert (supervisor.ready, supervisor.generation) == (True, 1)


def test_an_idle_engine_is_replaced_and_calls_wait_for_the_next_one(
    make_supervisor: Callable[..., Supervisor], announcements: list[str]
) -> None:
    supervisor = make_supervisor()
    supervisor.start()
    supervisor.wait(None)
    engine = FlightEngine(supervisor)
    assert engine.in_flight == 0
    assert supervisor.replace("It collects.", lambda: engine.in_flight == 0)
    engine.call(Execute(session_id="s", operation_id="o", sql="SELECT 1"))
    assert supervisor.generation == 2
    wait_until(lambda: "The Spark engine is being replaced. It collects." in announcements)
    engine.close()
