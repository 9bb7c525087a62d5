"""A gateway that dies at a point, and the next one."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

import tidegate
from tests.fix_server import Server, StartServer, named_rows
from tidegate_server.core.faults import Point

WAIT = 120.0


def until(look: Callable[[], object], otherwise: str) -> None:
    """Wait for something to be true."""
    deadline = time.monotonic() + WAIT
    while not look():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)


def die_at(
    server: Server, point: Point, statement: str, start_server: StartServer, faults: Path
) -> Server:
    """Kill the gateway while a statement is at a point; return the next one, its engine up.

    :param faults: the folder that ``TIDEGATE_FAULTS`` names.
    """
    (faults / f"{point.value}.armed").touch()

    def ask() -> None:
        with suppress(tidegate.Error):
            named_rows(server, statement)

    asking = threading.Thread(target=ask)
    asking.start()
    until((faults / f"{point.value}.held").exists, f"nobody came by {point.value}")
    everything = server.processes()
    os.kill(server.pid, signal.SIGKILL)
    (faults / f"{point.value}.held").unlink()
    asking.join()
    server.process.wait()
    assert psutil.wait_procs(everything, timeout=WAIT)[1] == []
    again = start_server()
    again.wait_for_engine()
    return again
