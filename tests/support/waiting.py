"""Waiting for a condition, with a limit."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable

import pytest

PATIENCE = 240.0
"""Seconds after which a test gives up."""


def wait_until(condition: Callable[[], object], otherwise: str, seconds: float = PATIENCE) -> None:
    """Wait until a condition holds; fail with the text ``otherwise`` after some seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(otherwise)
        time.sleep(0.05)


def wait_until_listening(process: subprocess.Popen[bytes], port: int, seconds: float) -> None:
    """Wait until a process that was started listens on a port of this machine."""

    def listens() -> bool:
        assert process.poll() is None, f"{process.args!r} ended with {process.returncode}"
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    wait_until(listens, f"nothing listens on port {port}", seconds)
