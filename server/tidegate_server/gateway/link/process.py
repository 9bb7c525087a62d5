"""The process of an engine: what its supervisor asks of it, and one that runs on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

import msgspec

from tidegate_server.core.messages.answers import NO_MEMORY_EXIT
from tidegate_server.core.messages.requests import EngineOptions
from tidegate_server.core.sql.redact import redact
from tidegate_server.gateway.link.accounts import Launch

logger = logging.getLogger(__name__)

ENGINE_COMMAND: tuple[str, ...] = (sys.executable, "-P", "-m", "tidegate_server.engine")
_KILL_SECONDS = 10.0
_CONFIGURATION = re.compile(r"TIDEGATE_[A-Z]+__", re.IGNORECASE)
"""Environment variables with settings of the configuration."""
_SOCKET_PATH_LIMIT = 90
"""Systems allow 104 to 108 bytes for the path of a Unix socket."""


class EngineProcess(Protocol):
    """One engine, from its start to its end."""

    @property
    def pid(self) -> int | None:
        """The id of its process; None if it runs on another machine."""
        ...

    def poll(self) -> str | None:
        """Return how it ended, such as ``exit code 3``; None while it runs."""
        ...

    def wait(self) -> str:
        """Wait until it has ended, and return how."""
        ...

    def listens(self, socket: Path) -> bool:
        """Return whether it accepts connections; nothing else may be in its place."""
        ...

    def end(self, seconds: float) -> None:
        """End it, with its children; gently at first if the time allows it."""
        ...

    def kill(self) -> None:
        """End it at once, without waiting."""
        ...


class Starter(Protocol):
    """Starts the processes of one engine, one after another."""

    def socket_folder(self) -> contextlib.AbstractContextManager[Path]:
        """Return a context with the folder of the engine's socket."""
        ...

    def start(self, options: EngineOptions, output: IO[bytes]) -> EngineProcess:
        """Start an engine with its options, whose output goes to a file.

        :raises OSError: if it cannot be started.
        """
        ...


class LocalStarter:
    """Starts an engine on this machine.

    It gets its options on standard input, which stays open: when this process ends for any reason,
    the pipe closes and the engine exits too. It runs in its own session, so that Ctrl-C in a
    terminal only reaches the gateway.
    """

    def __init__(
        self,
        command: Sequence[str] = ENGINE_COMMAND,
        *,
        hidden: Collection[str] = (),
        launch: Launch | None = None,
    ) -> None:
        """``command`` starts it; ``hidden`` are environment variables that it does not get;
        ``launch`` starts it under another account."""
        self._launch = launch
        self._command = (*(() if launch is None else launch.prefix), *command)
        self._hidden = frozenset(hidden)

    @contextlib.contextmanager
    def socket_folder(self) -> Iterator[Path]:
        """Yield the folder of the engine's socket, which an engine of another account creates."""
        if self._launch is None:
            with private_folder() as made:
                yield made
            return
        folder = Path(_short_temp() or tempfile.gettempdir()) / f"tidegate-{secrets.token_hex(8)}"
        try:
            yield folder
        finally:
            # The engine removes it, unless it was killed.
            shutil.rmtree(folder, ignore_errors=True)

    def start(self, options: EngineOptions, output: IO[bytes]) -> LocalProcess:
        # Another account may not enter this process's directory.
        cwd = None if self._launch is None else "/"
        process = spawn(self._command, [options], output, self._environment(), cwd)
        return LocalProcess(process, self._launch)

    def _environment(self) -> dict[str, str]:
        kept = engine_environment(self._hidden)
        return kept if self._launch is None else {**kept, **self._launch.environment}


class LocalProcess:
    """An engine on this machine."""

    def __init__(self, process: subprocess.Popen[bytes], launch: Launch | None = None) -> None:
        """``launch`` has started it under another account."""
        self._process = process
        self._launch = launch

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> str | None:
        code = self._process.poll()
        return None if code is None else exit_text(code)

    def wait(self) -> str:
        return exit_text(self._process.wait())

    def listens(self, socket: Path) -> bool:
        if not os.path.exists(socket):
            return False
        return self._launch is None or socket.parent.lstat().st_uid == self._launch.account.uid

    def end(self, seconds: float) -> None:
        if self._launch is not None:
            # An engine ends with its input; the gateway may not be allowed to send it a signal.
            self._close_input()
        if seconds > 0 and self._process.poll() is None:
            if self._launch is None:
                self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        self.kill()
        self._process.wait()
        self._close_input()

    def kill(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        except PermissionError:
            # macOS rejects a signal to a group of zombies only; such a group has ended as well.
            if self._launch is not None and self._launch.prefix:
                self._kill_launched(self._launch.prefix)

    def _kill_launched(self, prefix: Sequence[str]) -> None:
        command = [*prefix, "kill", "-KILL", "--", f"-{self.pid}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_KILL_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            logger.warning("an engine could not be killed: %s", problem)
            return
        if done.returncode:
            logger.info("killing an engine: %s", redact(done.stderr.strip()))

    def _close_input(self) -> None:
        stdin = self._process.stdin
        if stdin is not None and not stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                stdin.close()


def spawn(
    command: Sequence[str],
    lines: Iterable[object],
    output: IO[bytes],
    environment: Mapping[str, str],
    cwd: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, with lines of JSON on its standard input.

    :raises OSError: if it cannot be started.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=environment,
        cwd=cwd,
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died at once; its exit code says more
        for line in lines:
            process.stdin.write(msgspec.json.encode(line) + b"\n")
        process.stdin.flush()
    return process


def engine_environment(hidden: Collection[str]) -> dict[str, str]:
    """Return this process's variables except those of its configuration.

    A query could read them in the engine.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name not in hidden and not _CONFIGURATION.match(name)
    }


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """Yield a folder for a socket that only this account can enter."""
    with tempfile.TemporaryDirectory(prefix="tidegate-", dir=_short_temp()) as made:
        yield Path(made)


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


def _short_temp() -> str | None:
    """Return a directory with a path short enough for sockets; None for the default one."""
    return "/tmp" if len(tempfile.gettempdir()) > _SOCKET_PATH_LIMIT - 40 else None
