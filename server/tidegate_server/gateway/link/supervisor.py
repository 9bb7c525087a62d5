"""Starts, watches, restarts and stops the engine process."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec
import pyarrow.flight as flight

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import NO_MEMORY_EXIT, Done, EngineInfo
from tidegate_server.core.messages.requests import A, EngineOptions, InspectMemory, Ping, Request
from tidegate_server.core.permissions import private_opener
from tidegate_server.core.sql.redact import redact
from tidegate_server.gateway.link.accounts import Launch
from tidegate_server.gateway.link.flight import Endpoint, ask, first_line

logger = logging.getLogger(__name__)

ENGINE_COMMAND: tuple[str, ...] = (sys.executable, "-P", "-m", "tidegate_server.engine")
KEPT_LOGS = 5
_LONGEST_BACKOFF = 30.0
_STABLE_SECONDS = 10.0
_POLL_SECONDS = 0.1
_PING_SECONDS = 10.0
_REPLACE_SECONDS = 15.0
"""Seconds that an engine gets to shut down when it is replaced."""
_KILL_SECONDS = 10.0
_NOTICE_SECONDS = 1.0
_CONFIGURATION = re.compile(r"TIDEGATE_[A-Z]+__", re.IGNORECASE)
"""Environment variables with settings of the configuration."""
_SOCKET_PATH_LIMIT = 90
"""Systems allow 104 to 108 bytes for the path of a Unix socket."""


def backoff(failures: int) -> float:
    """Return how many seconds to wait after that many failed starts in a row: 0, 1, 2, 4 .. 30."""
    return 0.0 if failures == 0 else min(_LONGEST_BACKOFF, 2.0 ** (min(failures, 10) - 1))


class Supervisor:
    """Keeps one engine running between :meth:`start` and :meth:`stop`.

    The engine gets its options on standard input, which stays open: when this process ends for any
    reason, the pipe closes and the engine exits too. It runs in its own session, so that Ctrl-C in
    a terminal only reaches the gateway.
    """

    def __init__(
        self,
        options: EngineOptions,
        *,
        logs: Path,
        start_timeout: float,
        announce: Callable[[str], None] = logger.info,
        prepare: Callable[[], Iterable[Request[Done]]] = tuple,
        command: Sequence[str] = ENGINE_COMMAND,
        hidden: Collection[str] = (),
        owner: str = "",
        log_name: str = "engine-out.log",
        launch: Launch | None = None,
    ) -> None:
        """Take the options of every start; ``socket`` is set for each.

        ``logs`` is the directory of ``log_name``, with the output of the engine and its JVM;
        ``start_timeout`` is in seconds; ``announce`` gets a sentence about each change;
        ``prepare`` returns requests to send as soon as an engine answers; ``command`` starts it;
        ``hidden`` are environment variables that it does not get; ``owner`` is the user or the
        engine target that it is for, if not empty; ``launch`` starts it under another account.
        """
        self._options = options
        self._log_file = logs / log_name
        self._start_timeout = start_timeout
        self._announce = announce
        self._prepare = prepare
        self._launch = launch
        self._prefix = () if launch is None else launch.prefix
        self._command = (*self._prefix, *command)
        self._whose = f" of {owner}" if owner else ""
        self._hidden = frozenset(hidden)
        self._on_ready: list[Callable[[EngineInfo], None]] = []
        self._changed = threading.Condition()
        self._process: subprocess.Popen[bytes] | None = None
        self._endpoint: Endpoint | None = None
        self._info: EngineInfo | None = None
        self._generation = 1
        self._failed_starts = 0
        self._reason = "it was not started yet"
        self._prepared = threading.Event()
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

    def start(self) -> None:
        """Start an engine in the background."""
        self._thread.start()

    def stop(self, seconds: float = 15.0) -> None:
        """Ask the engine to end, and kill its process group after ``seconds``; idempotent."""
        with self._changed:
            self._stopping.set()
            self._reason = "the gateway is stopping"
            self._endpoint = None
            self._changed.notify_all()
            process = self._process
        if process is not None:
            self._end(process, seconds)
        if self._thread.ident is not None:
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
        self._end(process, _REPLACE_SECONDS)
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
            self._kill(process.pid)

    # ---- the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while not self._stopping.wait(backoff(failures)):
            began = time.monotonic()
            with self._socket_folder() as folder:
                failures = failures + 1 if not self._run_engine(folder, began) else 0

    @contextlib.contextmanager
    def _socket_folder(self) -> Iterator[Path]:
        """Yield the folder of the engine's socket, which an engine of another account creates."""
        if self._launch is None:
            with tempfile.TemporaryDirectory(prefix="tidegate-", dir=_short_temp()) as made:
                yield Path(made)
            return
        folder = Path(_short_temp() or tempfile.gettempdir()) / f"tidegate-{secrets.token_hex(8)}"
        try:
            yield folder
        finally:
            # The engine removes it, unless it was killed.
            shutil.rmtree(folder, ignore_errors=True)

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
            process.wait()
            self._record_end(process)
            return time.monotonic() - up_since >= _STABLE_SECONDS
        finally:
            self._end(process, 0)

    def _spawn(self, socket: Path) -> subprocess.Popen[bytes]:
        rotate(self._log_file)
        options = dataclasses.replace(self._options, socket=str(socket))
        with self._changed, _open_log(self._log_file) as output:
            if self._stopping.is_set():
                raise InterruptedError("the gateway is stopping")
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self._environment(),
                # Another account may not enter this process's directory.
                cwd=None if self._launch is None else "/",
            )
            self._process = process
            self._reason = "it is still starting"
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once; its exit code says more
            process.stdin.write(msgspec.json.encode(options) + b"\n")
            process.stdin.flush()
        return process

    def _environment(self) -> dict[str, str]:
        """Return this process's variables except those of its configuration.

        A query could read them in the engine.
        """
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in self._hidden and not _CONFIGURATION.match(name)
        }
        return kept if self._launch is None else {**kept, **self._launch.environment}

    def _await_answer(
        self, process: subprocess.Popen[bytes], socket: Path, began: float
    ) -> EngineInfo | None:
        """Ping until the engine answers; otherwise record the failure and return None."""
        while time.monotonic() - began < self._start_timeout:
            if (code := process.poll()) is not None:
                self._record_failed_start(
                    f"it stopped while starting ({exit_text(code)}){self._last_log_line()}"
                )
                return None
            if self._is_engines(socket) and (info := _ping(_location(socket))) is not None:
                self._prepared.clear()
                self._set_ready(info, _location(socket))
                return info
            if self._stopping.wait(_POLL_SECONDS):
                return None
        self._record_failed_start(
            f"it did not answer within {self._start_timeout:g} s{self._last_log_line()}"
        )
        return None

    def _is_engines(self, socket: Path) -> bool:
        """Return whether the engine listens already; no other account may be in its place."""
        if not os.path.exists(socket):
            return False
        return self._launch is None or socket.parent.lstat().st_uid == self._launch.account.uid

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

    def _record_end(self, process: subprocess.Popen[bytes]) -> None:
        with self._changed:
            self._endpoint = None
            self._info = None
            self._generation += 1
            self._changed.notify_all()
            if self._stopping.is_set():
                return
            self._reason = f"it ended ({exit_text(process.returncode)}) and is being started again"
        self._announce(
            f"The Spark engine{self._whose} ended ({exit_text(process.returncode)}); "
            "starting another one"
        )

    def _last_log_line(self) -> str:
        """Return the last line of the engine's log, to append to a sentence."""
        lines = self._log_file.read_text("utf-8", "replace").split("\n")
        last = redact(next((line.strip() for line in reversed(lines) if line.strip()), ""))
        return f": {last} (see {self._log_file})" if last else f", see {self._log_file}"

    # ---- the end of a process ----------------------------------------------------------------

    def _end(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        """End a process and its children; gently at first if ``seconds`` allow it."""
        if self._launch is not None:
            # An engine ends with its input; the gateway may not be allowed to send it a signal.
            _close_input(process)
        if seconds > 0 and process.poll() is None:
            if self._launch is None:
                process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
        self._kill(process.pid)
        process.wait()
        _close_input(process)

    def _kill(self, leader: int) -> None:
        try:
            os.killpg(leader, signal.SIGKILL)
        except ProcessLookupError:
            return
        except PermissionError:
            # macOS rejects a signal to a group of zombies only; such a group has ended as well.
            if self._prefix:
                self._kill_launched(leader)

    def _kill_launched(self, leader: int) -> None:
        command = [*self._prefix, "kill", "-KILL", "--", f"-{leader}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_KILL_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            logger.warning("the engine%s could not be killed: %s", self._whose, problem)
            return
        if done.returncode:
            logger.info("killing the engine%s: %s", self._whose, redact(done.stderr.strip()))


def rotate(file: Path, kept: int = KEPT_LOGS) -> None:
    """Rename ``file`` to ``file.1``, that to ``file.2``, and so on; keep ``kept`` old files."""
    file.parent.mkdir(parents=True, exist_ok=True)
    for number in range(kept - 1, -1, -1):
        older = file.with_name(f"{file.name}.{number}") if number else file
        if older.exists():
            older.replace(file.with_name(f"{file.name}.{number + 1}"))


def _open_log(file: Path) -> IO[bytes]:
    return open(file, "ab", opener=private_opener)


def exit_text(code: int) -> str:
    """Describe how a process ended: its exit code, or the signal that killed it."""
    if code == NO_MEMORY_EXIT:
        return f"out of memory, exit code {code}"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


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


def _close_input(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None and not process.stdin.closed:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


def _location(socket: Path) -> str:
    return f"grpc+unix://{socket}"


def _short_temp() -> str | None:
    """Return a directory with a path short enough for sockets; None for the default one."""
    return "/tmp" if len(tempfile.gettempdir()) > _SOCKET_PATH_LIMIT - 40 else None
