"""Ends the engine process when its gateway or its JVM ends."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

from pyspark import SparkContext

from tidegate_server.core.messages.answers import NO_MEMORY_EXIT
from tidegate_server.engine.jvm.errors import OUT_OF_MEMORY_EXITS

logger = logging.getLogger(__name__)

_GRACE = 2.0
_JVM_LOST = 70
_NO_MEMORY = "the JVM ran out of memory: raise engine.driver_memory"


class Lifetime:
    """Ends the process once: cleanly within a short grace period, otherwise forcibly."""

    def __init__(self) -> None:
        self._ending = threading.Event()
        self._cleanups: list[Callable[[], None]] = []

    def on_end(self, cleanup: Callable[[], None]) -> None:
        """Add a function to call at the end; the last one added is called first."""
        self._cleanups.append(cleanup)

    def end(self, reason: str, status: int = 0) -> None:
        """Clean up within the grace period and exit; returns only if the end has already begun."""
        if self._ending.is_set():
            return
        self._ending.set()
        logger.info("the engine ends: %s", reason)
        worker = threading.Thread(target=self._run_cleanups, name="end", daemon=True)
        worker.start()
        worker.join(_GRACE)
        os._exit(status)

    def _run_cleanups(self) -> None:
        for cleanup in reversed(self._cleanups):
            try:
                cleanup()
            except Exception:
                logger.exception("cleanup failed")

    def watch_gateway(self, pipe: IO[bytes]) -> None:
        """End the process when ``pipe`` is closed, which means that the gateway has exited."""

        def watch() -> None:
            while pipe.read(4096):
                pass
            self.end("the gateway has exited")

        threading.Thread(target=watch, name="gateway-watch", daemon=True).start()

    def watch_jvm(self) -> None:
        """End the process when the JVM dies, so that the gateway starts a new engine."""
        gateway: Any = SparkContext._gateway

        def watch() -> None:
            code = _end_of(gateway)
            if code in OUT_OF_MEMORY_EXITS:
                # The gateway shows the last line of the engine's output.
                sys.stderr.write(f"{_NO_MEMORY}\n")
                sys.stderr.flush()
                self.end(_NO_MEMORY, NO_MEMORY_EXIT)
            known = "" if code is None else f" (exit code {code})"
            self.end(f"the JVM died{known}", _JVM_LOST)

        threading.Thread(target=watch, name="jvm-watch", daemon=True).start()

    def handle_signals(self) -> None:
        """Ignore Ctrl-C, which reaches the terminal's whole process group; end on SIGTERM."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self.end("SIGTERM"))


def _end_of(gateway: Any) -> int | None:
    """Wait until the JVM has ended; return its exit code, or None if it is not a child process.

    In a cluster it is the parent of this process's parent: its end is that of a connection to it.
    """
    if gateway.proc is not None:
        return int(gateway.proc.wait())
    port = gateway.java_parameters.port
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as connection:
        while connection.recv(1):
            pass
    return None
