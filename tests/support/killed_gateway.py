"""A gateway that is killed at a fault point, and the next one."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import psutil

import tidegate
from tests.support.fixtures.server import Server, StartServer, named_rows
from tests.support.waiting import PATIENCE, wait_until
from tidegate_server.core.faults import Point


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
    wait_until((faults / f"{point.value}.held").exists, f"no process reached {point.value}")
    everything = server.processes()
    os.kill(server.pid, signal.SIGKILL)
    (faults / f"{point.value}.held").unlink()
    asking.join()
    server.process.wait()
    assert psutil.wait_procs(everything, timeout=PATIENCE)[1] == []
    again = start_server()
    again.wait_for_engine()
    return again
