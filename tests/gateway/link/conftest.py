"""Fixtures: a supervisor over the engine without Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import pytest

from tests.support.engine_options import engine_options
from tidegate_server.core.messages.requests import Request
from tidegate_server.gateway.link.flight import FlightEngine
from tidegate_server.gateway.link.process import LocalStarter
from tidegate_server.gateway.link.supervisor import Supervisor

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")

MakeSupervisor = Callable[..., Supervisor]


@pytest.fixture
def announcements() -> list[str]:
    """What supervisors said."""
    return []


@pytest.fixture
def make_supervisor(tmp_path: Path, announcements: list[str]) -> Iterator[MakeSupervisor]:
    """Makes supervisors that are stopped afterwards."""
    made: list[Supervisor] = []

    def make(
        *arguments: str,
        start_timeout: float = 30.0,
        prepare: Callable[[], Iterable[Request]] = tuple,
        hidden: Collection[str] = (),
    ) -> Supervisor:
        supervisor = Supervisor(
            engine_options(data=str(tmp_path)),
            logs=tmp_path / "logs",
            start_timeout=start_timeout,
            announce=announcements.append,
            prepare=prepare,
            starter=LocalStarter([sys.executable, str(FAKE_ENGINE), *arguments], hidden=hidden),
        )
        made.append(supervisor)
        return supervisor

    yield make
    for supervisor in made:
        supervisor.stop(2)


@pytest.fixture
def supervisor(make_supervisor: MakeSupervisor) -> Supervisor:
    """A supervisor whose engine is up."""
    supervisor = make_supervisor()
    supervisor.start()
    supervisor.wait(30)
    return supervisor


@pytest.fixture
def engine(supervisor: Supervisor) -> Iterator[FlightEngine]:
    """A connection to the engine without Spark."""
    engine = FlightEngine(supervisor)
    yield engine
    engine.close()
