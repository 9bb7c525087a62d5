"""Starts, watches, restarts and stops the engine process."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

import pyarrow.flight as flight

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Done, EngineInfo
from tidegate_server.core.messages.requests import A, EngineOptions, InspectMemory, Ping, Request
from tidegate_server.core.permissions import private_opener
from tidegate_server.core.sql.redact import redact
from tidegate_server.gateway.link.flight import Endpoint, ask, first_line
from tidegate_server.gateway.link.process import EngineProcess, LocalStarter, Starter

logger = logging.getLogger(__name__)

KEPT_LOGS = 5
_LONGEST_BACKOFF = 30.0
_STABLE_SECONDS = 10.0
_POLL_SECONDS = 0.1
_PING_SECONDS = 10.0
_REPLACE_SECONDS = 15.0
"""Seconds that an engine gets to shut down when it is replaced."""
_NOTICE_SECONDS = 1.0


def backoff(failures: int) -> float:
    """Return how many seconds to wait after that many failed starts in a row: 0, 1, 2, 4 .. 30."""
    return 0.0 if failures == 0 else min(_LONGEST_BACKOFF, 2.0 ** (min(failures, 10) - 1))


class Supervisor:
    """Keeps one engine running between :meth:`start` and :meth:`stop`."""

    def __init__(
        self,
        options: EngineOptions,
        *,
        logs: Path,
        start_timeout: float,
        announce: Callable[[str], None] = logger.info,
        prepare: Callable[[], Iterable[Request[Done]]] = tuple,
        starter: Starter | None = None,
        owner: str = "",
        log_name: str = "engine-out.log",
    ) -> None:
        """Take the options of every start; ``socket`` is set for each.

        ``logs`` is the directory of ``log_name``, with the output of the engine and its JVM;
        ``start_timeout`` is in seconds; ``announce`` gets a sentence about each change;
        ``prepare`` returns requests to send as soon as an engine answers; ``starter`` starts it,
        by default on this machine; ``owner`` is the user or the engine target that it is for, if
        not empty.
        """
        self._options = options
        self._log_file = logs / log_name
        self._start_timeout = start_timeout
        self._announce = announce
        self._prepare = prepare
        self._starter: Starter = starter or LocalStarter()
        self._whose = f" of {owner}" if owner else ""
        self._on_ready: list[Callable[[EngineInfo], None]] = []
        self._changed = threading.Condition()
        self._process: EngineProcess | None = None
        self._endpoint: Endpoint | None = None
        self._info: EngineInfo | None = None
        self._generation = 1
        self._failed_starts = 0
        self._reason = "it was not started yet"
        self._prepared = threading.Event()
        self._last = False
        self._stopping = threading.Event()
        name = f"engine-supervisor{self._whose}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # ---- for FlightEngine ------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """The number of the engine that is up or awaited; grows by one when an engine ends."""
        return self._generation

    @property
    def ready(self) -> bool:
        """Whether an engine is up right now."""
        return self._endpoint is not None

    @property
    def info(self) -> EngineInfo | None:
        """The running engine's description of itself."""
        return self._info

    @property
    def reason(self) -> str:
        """Why no engine is up, while none is."""
        return self._reason

    @property
    def pid(self) -> int | None:
        """The engine's process id, available as soon as the process is started."""
        process = self._process
        return process.pid if process is not None else None

    def wait(self, seconds: float | None) -> Endpoint:
        """Return the running engine, waiting ``seconds`` for one (None: the start timeout).

        A failed start ends the wait.

        :raises ServerError: ENGINE_UNAVAILABLE with the reason.
        """
        with self._changed:
            failed_before = self._failed_starts
            self._changed.wait_for(
                lambda: (
                    self._endpoint is not None
                    or self._stopping.is_set()
                    or self._failed_starts > failed_before
                ),
                self._start_timeout if seconds is None else seconds,
            )
            if self._endpoint is not None:
                return self._endpoint
            raise error(Code.ENGINE_UNAVAILABLE, reason=self._reason)

    def wait_prepared(self) -> None:
        """Wait until the running engine is prepared, or preparing it has failed.

        :raises ServerError: ENGINE_UNAVAILABLE if there is none.
        """
        self.wait(None)
        self._prepared.wait(self._start_timeout)

    def lost(self, endpoint: Endpoint) -> bool:
        """Whether that engine start has ended; waits a moment for a process that is just ending.

        After True, :meth:`wait` and :attr:`generation` refer to the next start.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._endpoint != endpoint, _NOTICE_SECONDS)

    # ---- life cycle ------------------------------------------------------------------------

    def on_ready(self, callback: Callable[[EngineInfo], None]) -> None:
        """Call ``callback`` after each start, on the supervisor's thread."""
        self._on_ready.append(callback)

    def start(self, installation: str = "") -> None:
        """Start an engine in the background.

        :param installation: the id of the data directory, unless the options have it.
        """
        if installation:
            self._options = dataclasses.replace(self._options, installation=installation)
        self._thread.start()

    def start_no_other(self) -> None:
        """Let the running engine be the last one, if it ends before :meth:`stop`."""
        self._last = True

    def stop(self, seconds: float = 15.0) -> None:
        """Ask the engine to end, and kill its process group after ``seconds``; idempotent."""
        with self._changed:
            self._stopping.set()
            self._reason = "the gateway is stopping"
            self._endpoint = None
            self._changed.notify_all()
            process = self._process
        if process is not None:
            process.end(seconds)
        if self._thread.ident not in (None, threading.get_ident()):
            self._thread.join(timeout=seconds)

    def replace(self, reason: str, idle: Callable[[], bool]) -> bool:
        """End the running engine if it is unused, so that a new one is started.

        Calls that arrive meanwhile wait for the next engine. Returns whether the engine was ended:
        it is not while ``idle`` returns False, or while it has running work, unread results, or
        sessions with temporary objects.
        """
        with self._changed:
            process, endpoint = self._process, self._endpoint
            if process is None or endpoint is None or self._stopping.is_set():
                return False
            self._endpoint = None
        if not (idle() and _is_unused(endpoint.location)):
            with self._changed:
                if self._process is process and process.poll() is None:
                    self._endpoint = endpoint
                    self._changed.notify_all()
            return False
        self._announce(f"The Spark engine{self._whose} is being replaced. {reason}")
        process.end(_REPLACE_SECONDS)
        return True

    def ask(self, request: Request[A]) -> A:
        """Send a short request to the running engine; its answer is awaited for seconds only.

        :raises ServerError: ENGINE_UNAVAILABLE if there is none or it does not answer.
        """
        try:
            with flight.FlightClient(self.wait(0).location) as client:
                return ask(client, request, timeout=_PING_SECONDS)
        except flight.FlightError as problem:
            raise error(Code.ENGINE_UNAVAILABLE, reason=first_line(problem)) from problem

    def is_unused(self) -> bool:
        """Return whether ending the engine would interrupt or lose nothing."""
        endpoint = self._endpoint
        return endpoint is None or _is_unused(endpoint.location)

    def hurry(self) -> None:
        """Kill the engine now, during a :meth:`stop` that takes too long."""
        self._stopping.set()
        process = self._process
        if process is not None:
            process.kill()

    # ---- the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while not self._stopping.wait(backoff(failures)):
            began = time.monotonic()
            with self._starter.socket_folder() as folder:
                failures = failures + 1 if not self._run_engine(folder, began) else 0
            if self._last:
                self.stop()

    def _run_engine(self, folder: Path, began: float) -> bool:
        """Run one engine from start to end; False if it failed to start or ended too soon."""
        try:
            process = self._spawn(folder / "engine.sock")
        except OSError as problem:
            self._record_failed_start(f"it could not be started: {problem}")
            return False
        try:
            info = self._await_answer(process, folder / "engine.sock", began)
            if info is None:
                return False
            up_since = time.monotonic()
            self._announce(
                f"Engine{self._whose} ready after {up_since - began:.1f} s "
                f"(Spark {info.spark_version})"
            )
            self._send_preparations(_location(folder / "engine.sock"))
            self._prepared.set()
            self._notify_ready(info)
            self._record_end(process.wait())
            return time.monotonic() - up_since >= _STABLE_SECONDS
        finally:
            process.end(0)

    def _spawn(self, socket: Path) -> EngineProcess:
        rotate(self._log_file)
        options = dataclasses.replace(self._options, socket=str(socket))
        with self._changed, _open_log(self._log_file) as output:
            if self._stopping.is_set():
                raise InterruptedError("the gateway is stopping")
            process = self._starter.start(options, output)
            self._process = process
            self._reason = "it is still starting"
        return process

    def _await_answer(
        self, process: EngineProcess, socket: Path, began: float
    ) -> EngineInfo | None:
        """Ping until the engine answers; otherwise record the failure and return None."""
        while time.monotonic() - began < self._start_timeout:
            if (end := process.poll()) is not None:
                self._record_failed_start(
                    f"it stopped while starting ({end}){self._last_log_line()}"
                )
                return None
            if process.listens(socket) and (info := _ping(_location(socket))) is not None:
                self._prepared.clear()
                self._set_ready(info, _location(socket))
                return info
            if self._stopping.wait(_POLL_SECONDS):
                return None
        self._record_failed_start(
            f"it did not answer within {self._start_timeout:g} s{self._last_log_line()}"
        )
        return None

    def _send_preparations(self, location: str) -> None:
        try:
            with flight.FlightClient(location) as client:
                for request in self._prepare():
                    ask(client, request, timeout=self._start_timeout)
        except Exception:
            # An engine without its preparations is better than none.
            logger.exception("Preparing the engine failed")

    def _set_ready(self, info: EngineInfo, location: str) -> None:
        with self._changed:
            if self._stopping.is_set():
                return
            self._endpoint = Endpoint(location, self._generation)
            self._info = info
            self._changed.notify_all()

    def _notify_ready(self, info: EngineInfo) -> None:
        for callback in self._on_ready:
            try:
                callback(info)
            except Exception:
                # A failing callback must not end the supervision of the engine.
                if not self._stopping.is_set():
                    logger.exception("Work after the engine's start failed")

    def _record_failed_start(self, reason: str) -> None:
        with self._changed:
            if self._stopping.is_set():
                return
            self._failed_starts += 1
            self._reason = reason
            self._changed.notify_all()
        self._announce(f"The Spark engine{self._whose} did not start: {reason}")

    def _record_end(self, end: str) -> None:
        with self._changed:
            self._endpoint = None
            self._info = None
            self._generation += 1
            self._changed.notify_all()
            if self._stopping.is_set():
                return
            self._reason = f"it ended ({end}) and is being started again"
        then = "the gateway is stopping" if self._last else "starting another one"
        self._announce(f"The Spark engine{self._whose} ended ({end}); {then}")

    def _last_log_line(self) -> str:
        """Return the last line of the engine's log, to append to a sentence."""
        lines = self._log_file.read_text("utf-8", "replace").split("\n")
        last = redact(next((line.strip() for line in reversed(lines) if line.strip()), ""))
        return f": {last} (see {self._log_file})" if last else f", see {self._log_file}"


def rotate(file: Path, kept: int = KEPT_LOGS) -> None:
    """Rename ``file`` to ``file.1``, that to ``file.2``, and so on; keep ``kept`` old files."""
    file.parent.mkdir(parents=True, exist_ok=True)
    for number in range(kept - 1, -1, -1):
        older = file.with_name(f"{file.name}.{number}") if number else file
        if older.exists():
            older.replace(file.with_name(f"{file.name}.{number + 1}"))


def _open_log(file: Path) -> IO[bytes]:
    return open(file, "ab", opener=private_opener)


def _is_unused(location: str) -> bool:
    """Return whether ending an engine would interrupt or lose nothing."""
    try:
        with flight.FlightClient(location) as client:
            answer = ask(client, InspectMemory(with_use=True), timeout=_PING_SECONDS)
    except (flight.FlightError, ServerError) as problem:
        logger.info("The engine did not report what is in use: %s", first_line(problem))
        return False
    return answer.in_use == 0


def _ping(location: str) -> EngineInfo | None:
    """Return the engine's description of itself, or None while it does not answer."""
    try:
        with flight.FlightClient(location) as client:
            answer = ask(client, Ping(), timeout=_PING_SECONDS)
    except (flight.FlightError, ServerError) as problem:
        logger.debug("The engine does not answer yet: %s", first_line(problem))
        return None
    return answer


def _location(socket: Path) -> str:
    return f"grpc+unix://{socket}"
