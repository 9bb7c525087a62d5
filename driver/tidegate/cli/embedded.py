"""A private server for the life of one run of the command line."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any, TextIO

from tidegate.cli.run import show_line

_TICK_SECONDS = 0.2
_STOP_SECONDS = 60.0
_PROGRESS_AFTER_SECONDS = 1.0
_ROUTINE = ("Tidegate ", "Starting ")
"""How the lines begin that are no trouble."""


class EmbeddedServerError(Exception):
    """The server is not installed, or did not start."""


@contextmanager
def embedded_server(
    data: str | None, progress: TextIO | None, warn: Callable[[str], None]
) -> Iterator[str]:
    """Run a server, and yield the path of its socket once its engine is ready.

    The server stops when its standard input is closed, however this process ends.

    :param data: its data directory; None for one that is deleted at the end.
    :param progress: a terminal for a line that shows what the server does.
    :param warn: gets what the server says about trouble until it is ready.
    :raises EmbeddedServerError: if it is not installed or does not start.
    """
    if importlib.util.find_spec("tidegate_server") is None:
        raise EmbeddedServerError(
            "--embedded needs the server: pip install 'tidegate[server,shell]'."
        )
    command = [sys.executable, "-m", "tidegate_server", "--embedded", "--ready-file", "-"]
    if data is not None:
        command += ["--data", data]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Ctrl-C in the shell cancels a statement; it must not reach the server.
        start_new_session=True,
    )
    try:
        yield _wait_for_engine(process, progress, warn)
    finally:
        _stop(process, progress)


def _wait_for_engine(
    process: subprocess.Popen[str], progress: TextIO | None, warn: Callable[[str], None]
) -> str:
    lines = _read_lines(process)
    started = time.monotonic()
    while True:
        try:
            line = lines.get(timeout=_TICK_SECONDS)
        except Empty:
            elapsed = time.monotonic() - started
            if elapsed >= _PROGRESS_AFTER_SECONDS:
                _show(progress, f"Starting the embedded server ... {elapsed:.0f} s")
            continue
        if line is None:
            _show(progress, "")
            code = process.wait()
            raise EmbeddedServerError(f"The embedded server did not start (exit code {code}).")
        if (ready := _ready(line)) is None:
            if not line.startswith(_ROUTINE):
                _show(progress, "")
                warn(line)
        elif ready["engine"] is not None:
            _show(progress, "")
            return str(ready["socket"])


def _read_lines(process: subprocess.Popen[str]) -> SimpleQueue[str | None]:
    """Return the lines of the server as they come, then None; reading goes on to the end."""
    lines: SimpleQueue[str | None] = SimpleQueue()

    def read() -> None:
        if process.stdout is not None:
            for line in process.stdout:
                lines.put(line.rstrip("\n"))
        lines.put(None)

    threading.Thread(target=read, name="embedded-server", daemon=True).start()
    return lines


def _ready(line: str) -> dict[str, Any] | None:
    """Return what a line of ``--ready-file -`` says; None for a line of text."""
    with contextlib.suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict):
            return found
    return None


def _stop(process: subprocess.Popen[str], progress: TextIO | None) -> None:
    """Ask the server to stop and wait for it; it is killed if that takes too long."""
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    try:
        process.wait(_PROGRESS_AFTER_SECONDS)
    except subprocess.TimeoutExpired:
        _show(progress, "Stopping the embedded server ...")
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        finally:
            _show(progress, "")


def _show(progress: TextIO | None, text: str) -> None:
    if progress is not None:
        show_line(progress, text)
