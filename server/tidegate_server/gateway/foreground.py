"""Runs a gateway in the foreground until a signal ends it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from urllib.parse import quote

import msgspec

from tidegate._version import __version__
from tidegate_server.core.data_directory import claim, open_to_engines, restrict_access
from tidegate_server.core.logs import logging_to
from tidegate_server.core.messages.answers import EngineInfo
from tidegate_server.core.permissions import umask_for
from tidegate_server.gateway.app import Gateway
from tidegate_server.gateway.auth.exposure import exposed_files

logger = logging.getLogger(__name__)

_DEMO_SECONDS = 10.0
_SIGNAL_SECONDS = 0.5
STANDARD_OUTPUT = "-"
"""The ready file that means standard output, with a line for each change."""
_WRITING = threading.Lock()
"""Held while the ready file is written."""


def run(
    gateway: Gateway, *, say: Callable[[str], None], demo: bool = False, ready_file: Path | None
) -> int:
    """Start a gateway, wait for SIGINT or SIGTERM, stop it, return the exit code 0.

    ``say`` prints progress. ``demo`` runs the demo pipeline beside the gateway.
    ``ready_file`` gets the result of :func:`describe` as JSON, again for each new engine.

    :raises DataDirectoryTakenError: if another gateway uses the data directory.
    :raises ServerError: DATA_DIRECTORY, or why the store cannot be opened.
    :raises OSError: if the data directory or the address cannot be used.
    """
    stop = threading.Event()
    with ExitStack() as stack:
        group_reads = gateway.config.engine.group_reads
        stack.callback(os.umask, os.umask(umask_for(group_reads=group_reads)))
        claim(gateway.data)  # before any log is written there
        warnings = restrict_access(gateway.data, group_reads=group_reads)
        if gateway.config.engine.launcher:
            open_to_engines(gateway.data)
        stack.enter_context(logging_to(gateway.data / "logs", gateway.config.logging))
        for warning in (*warnings, *exposed_files(gateway.config)):
            logger.warning("%s", warning)
            say(f"Warning: {warning}")
        stack.enter_context(_signals(stop, gateway, say))
        gateway.on_engine_ready(lambda info: _engine_ready(gateway, say, ready_file))
        gateway.on_other_engines(lambda: _write_ready(gateway, ready_file))
        stack.enter_context(gateway)
        auth = gateway.config.server.auth
        say(f"Tidegate {__version__} listening on {gateway.address} (HiveServer2, auth {auth})")
        if gateway.http_port is not None:
            say(f"REST, metrics and health on port {gateway.http_port}")
        if gateway.flight_port is not None:
            say(f"Arrow Flight SQL on port {gateway.flight_port}")
        say(f"Starting the Spark engine with a heap of {gateway.engine_heap} ...")
        _write_ready(gateway, ready_file)
        if demo:
            stack.enter_context(_demo(gateway))
        # A signal that another thread receives does not end a wait without limit.
        while not stop.wait(_SIGNAL_SECONDS):
            pass
        say("Stopping ...")
    say("Stopped.")
    return 0


def describe(gateway: Gateway, info: EngineInfo | None) -> Mapping[str, object]:
    """Return where a gateway listens and which processes it consists of."""
    engine = msgspec.to_builtins(info) if info is not None else None
    return {
        "host": gateway.host,
        "port": gateway.port,
        "socket": gateway.config.server.socket or None,
        "http_port": gateway.http_port,
        "flight_port": gateway.flight_port,
        "pid": os.getpid(),
        "engine": engine,
        "engines": msgspec.to_builtins(gateway.other_engines),
    }


def connection_help(address: str) -> str:
    """Return instructions for connecting to a gateway that listens on ``address``."""
    if "/" in address:
        return (
            f"  {_program('tidegate')} -u 'tidegate:///?socket={quote(address)}'\n"
            f'  python: tidegate.connect(socket="{address}")\n'
            "Ctrl-C stops everything."
        )
    host, _, port = address.rpartition(":")
    return (
        f"  {_program('beeline')} -u jdbc:hive2://{address}/\n"
        f"  {_program('tidegate')} -u jdbc:hive2://{address}/\n"
        f'  python: tidegate.connect(host="{host}", port={port})\n'
        "Ctrl-C stops everything."
    )


def _program(name: str) -> str:
    """Return the command for a program: its name, or its path if it is not on the PATH.

    The scripts of a source checkout set TIDEGATE_PROGRAMS to the directory of their programs.
    """
    folder = os.environ.get("TIDEGATE_PROGRAMS")
    path = Path(folder or Path(sys.executable).parent) / name
    if not path.exists() or (folder is None and shutil.which(name)):
        return name
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _engine_ready(gateway: Gateway, say: Callable[[str], None], ready_file: Path | None) -> None:
    if gateway.engine_generation == 1 and str(ready_file) != STANDARD_OUTPUT:
        say(f"Connect with\n{connection_help(gateway.address)}")
    _write_ready(gateway, ready_file)


def _write_ready(gateway: Gateway, file: Path | None) -> None:
    """Describe the gateway in its ready file; called from the threads of all engines."""
    if file is None:
        return
    text = json.dumps(describe(gateway, gateway.engine_info))
    with _WRITING:
        if str(file) == STANDARD_OUTPUT:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
            return
        # Written to another file and renamed, so that a waiting process never reads a partial one.
        partial = file.with_name(f"{file.name}.partial")
        partial.write_text(text)
        partial.replace(file)


@contextmanager
def _signals(stop: threading.Event, gateway: Gateway, say: Callable[[str], None]) -> Iterator[None]:
    """Stop the gateway on the first SIGINT or SIGTERM, and without waiting on the second."""

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            say("Stopping immediately ...")
            gateway.hurry()
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _demo(gateway: Gateway) -> Iterator[None]:
    """Run the demo pipeline in its own process; Ctrl-C reaches it directly as well."""
    command = [sys.executable, "-P", "-m", "tidegate_server.gateway.demo"]
    socket = gateway.config.server.socket
    host = f"tidegate:///?socket={quote(socket)}" if socket else gateway.host
    child = subprocess.Popen([*command, "--host", host, "--port", str(gateway.port)])
    try:
        yield
    finally:
        child.terminate()
        try:
            child.wait(_DEMO_SECONDS)
        except subprocess.TimeoutExpired:
            logger.warning("The demo pipeline did not stop and is killed")
            child.kill()
            child.wait()
