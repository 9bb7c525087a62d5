"""Engines by key, such as a user: started on first use, ended when they are not used."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ParamSpec

import pyarrow as pa

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import EngineInfo, Progress
from tidegate_server.core.messages.requests import A, Cancel, ChunkTicket, Request
from tidegate_server.gateway.link.flight import FlightEngine
from tidegate_server.gateway.link.memory import MemoryState, MemoryWatch
from tidegate_server.gateway.link.supervisor import Supervisor

logger = logging.getLogger(__name__)

P = ParamSpec("P")

_STOP_SECONDS = 15.0
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def folder_name(key: str) -> str:
    """Return the name of the directory of an engine, a different one for each key."""
    if _PLAIN_NAME.fullmatch(key):
        return key
    return f"%{hashlib.sha256(key.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class _Running:
    """One engine with what belongs to it."""

    supervisor: Supervisor
    engine: FlightEngine
    memory: MemoryWatch
    checking: threading.Lock = field(default_factory=threading.Lock)
    """Held while its memory is being inspected."""


class PooledEngine:
    """Implements :class:`~.client.Engine` for one key, whether or not an engine is running."""

    def __init__(self, key: str, start: Callable[[PooledEngine], None]) -> None:
        """``start`` calls :meth:`attach`, or raises why no engine can be started."""
        self.key = key
        self._start = start
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._generations = 0
        """The generation of the last engine that was ended because nobody used it."""
        self._restarts = 0
        self._at_work = 0
        self._calls = 0
        self._used_at = time.monotonic()

    def call(
        self,
        request: Request[A],
        *,
        on_progress: Callable[[Progress], None] | None = None,
        wait: float | None = None,
    ) -> A:
        with self._use(start=wait != 0) as engine:
            return engine.call(request, on_progress=on_progress, wait=wait)

    def read(self, ticket: ChunkTicket) -> Iterator[pa.RecordBatch]:
        with self._use(start=False) as engine:
            yield from engine.read(ticket)

    @property
    def generation(self) -> int:
        running = self._running
        return self._generations + (1 if running is None else running.supervisor.generation)

    @property
    def ready(self) -> bool:
        running = self._running
        return running is not None and running.supervisor.ready

    @property
    def starting(self) -> str | None:
        """Why its engine is not up although it is wanted; None if it is up or not wanted."""
        running = self._running
        if running is None or running.supervisor.ready:
            return None
        return running.supervisor.reason

    @property
    def restarts(self) -> int:
        """How many engines of this key died and were replaced."""
        running = self._running
        return self._restarts + (0 if running is None else running.supervisor.generation - 1)

    @property
    def running(self) -> _Running | None:
        """The engine; None if none was started, or it was ended since."""
        return self._running

    def attach(self, running: _Running) -> None:
        """Use an engine that has just been started."""
        with self._lock:
            self._running = running

    def idle_seconds(self) -> float:
        """Return for how many seconds nobody has used it; 0 while it is used."""
        with self._lock:
            return 0.0 if self._at_work else time.monotonic() - self._used_at

    def detach_unused(self) -> _Running | None:
        """Give up the engine if its end would interrupt or lose nothing; return it, to be ended."""
        with self._lock:
            running, calls = self._running, self._calls
            if running is None or self._at_work:
                return None
        if not running.supervisor.is_unused():
            return None
        with self._lock:
            if self._calls != calls:  # it was used meanwhile
                return None
            self._restarts = self.restarts
            self._generations += running.supervisor.generation
            self._running = None
        return running

    @contextmanager
    def _use(self, *, start: bool) -> Iterator[FlightEngine]:
        """Lend the engine until the block ends.

        :raises ServerError: ENGINE_UNAVAILABLE, or ENGINE_ACCOUNT, if there is none.
        """
        with self._lock:
            self._at_work += 1
            self._calls += 1
            running = self._running
        try:
            if running is None and start:
                self._start(self)
                running = self._running
            if running is None:
                raise error(Code.ENGINE_UNAVAILABLE, reason=f"that of {self.key} is not running")
            yield running.engine
        finally:
            with self._lock:
                self._at_work -= 1
                self._used_at = time.monotonic()


class EnginePool:
    """The engines of all users, or of all applications of an engine target."""

    def __init__(
        self,
        make: Callable[[str], Supervisor],
        *,
        prepare: Callable[[], None],
        max_engines: int,
        idle_timeout: float,
        limit: str,
        announce: Callable[[str], None],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Take what every engine needs; none is started yet.

        ``make`` builds the supervisor of the engine of a key, or raises ENGINE_ACCOUNT;
        ``prepare`` waits until the metastore can be used; ``idle_timeout`` is in seconds;
        ``limit`` names the key of the configuration that sets ``max_engines``; ``changed`` is
        called after an engine has come up or was ended.
        """
        self._make = make
        self._prepare = prepare
        self._max_engines = max_engines
        self._idle_timeout = idle_timeout
        self._limit = limit
        self._announce = announce
        self._changed = changed
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        """Held while an engine is added or one is ended to make room for it."""
        self._known: dict[str, PooledEngine] = {}
        self._stopping = False

    def of(self, key: str) -> PooledEngine:
        """Return the engine of a key; it is started by its first call."""
        with self._lock:
            return self._known.setdefault(key, PooledEngine(key, self._start))

    def wake(self, key: str) -> None:
        """Start the engine of a key in the background, before its first call."""
        _in_background(self._wake, self.of(key))

    def _wake(self, engine: PooledEngine) -> None:
        try:
            self._start(engine)
        except ServerError as problem:
            logger.warning("the engine of %s was not started: %s", engine.key, problem)

    def cancel(self, request: Cancel) -> None:
        """Pass a cancel on to every engine that is up, one of which may run the operation."""
        for engine in self._engines():
            running = engine.running
            if running is not None and running.supervisor.ready:
                _in_background(_cancel, running.supervisor, request)

    def up(self) -> Mapping[str, EngineInfo]:
        """Return the engines that are up by their keys."""
        found = {each.key: each.running for each in self._engines()}
        infos = {key: run.supervisor.info for key, run in found.items() if run is not None}
        return {key: info for key, info in sorted(infos.items()) if info is not None}

    def memory(self) -> Mapping[str, MemoryState]:
        """Return the memory of the engines that are up by their keys."""
        found = {each.key: each.running for each in self._engines()}
        states = {key: run.memory.state for key, run in found.items() if run is not None}
        return {key: state for key, state in sorted(states.items()) if state is not None}

    def restarts(self) -> int:
        """Return how many engines died and were replaced."""
        return sum(each.restarts for each in self._engines())

    def check(self) -> None:
        """Inspect the memory of every engine, and end those that nobody has used for long."""
        for engine in self._engines():
            running = engine.running
            if running is not None:
                if running.checking.acquire(blocking=False):
                    _in_background(_check, running)
                if engine.idle_seconds() >= self._idle_timeout:
                    with self._starting:
                        self._retire(engine, f"was not used for {self._idle_timeout:g} s")

    def start_no_other(self) -> None:
        """Start no engine any more."""
        with self._starting:
            self._stopping = True
        for supervisor in self._supervisors():
            supervisor.start_no_other()

    def stop(self) -> None:
        """End all engines, at the same time."""
        self.start_no_other()
        threads = [threading.Thread(target=each.stop) for each in self._supervisors()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """Close the connections, once the engines have ended."""
        for engine in self._engines():
            if engine.running is not None:
                engine.running.engine.close()

    def hurry(self) -> None:
        """Kill all engines, during a :meth:`stop` that takes too long."""
        for supervisor in self._supervisors():
            supervisor.hurry()

    def _supervisors(self) -> list[Supervisor]:
        return [run.supervisor for each in self._engines() if (run := each.running)]

    def _engines(self) -> tuple[PooledEngine, ...]:
        with self._lock:
            return tuple(self._known.values())

    def _start(self, engine: PooledEngine) -> None:
        self._prepare()
        with self._starting:
            if self._stopping:
                raise error(Code.ENGINE_UNAVAILABLE, reason="the gateway is stopping")
            if engine.running is not None:
                return
            supervisor = self._make(engine.key)
            self._make_room()
            supervisor.on_ready(lambda info: self._changed())
            flight = FlightEngine(supervisor)
            memory = MemoryWatch(
                flight,
                replace=lambda reason: supervisor.replace(reason, lambda: flight.in_flight == 0),
                announce=lambda text: self._announce(f"{engine.key}: {text}"),
            )
            logger.info("starting the engine of %s", engine.key)
            engine.attach(_Running(supervisor, flight, memory))
            supervisor.start()

    def _make_room(self) -> None:
        """End the engine that was not used for the longest time, if there are too many."""
        running = [each for each in self._engines() if each.running is not None]
        if len(running) < self._max_engines:
            return
        for engine in sorted(running, key=PooledEngine.idle_seconds, reverse=True):
            if self._retire(engine, "makes room for another one"):
                return
        reason = f"all {self._max_engines} engines are busy that {self._limit} allows"
        raise error(Code.ENGINE_UNAVAILABLE, reason=reason)

    def _retire(self, engine: PooledEngine, why: str) -> bool:
        running = engine.detach_unused()
        if running is None:
            return False
        logger.info("the engine of %s %s and ends", engine.key, why)
        running.engine.close()
        running.supervisor.stop(_STOP_SECONDS)
        self._changed()
        return True


def _in_background(work: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
    """Run what an engine that does not answer must not hold up for the others."""
    threading.Thread(
        target=work, args=arguments, kwargs=named, name="engine-pool", daemon=True
    ).start()


def _cancel(supervisor: Supervisor, request: Cancel) -> None:
    try:
        supervisor.ask(request)
    except ServerError as problem:
        logger.debug("a cancel was not passed on: %s", problem)


def _check(running: _Running) -> None:
    try:
        running.memory.check()
    finally:
        running.checking.release()
