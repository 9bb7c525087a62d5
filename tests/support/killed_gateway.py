"""A gateway that is killed at a fault point, and the next one."""

from __future__ import annotations

import threading
from contextlib import suppress

import tidegate
from tests.support.fixtures.faults import Faults
from tests.support.fixtures.server import Server, StartServer, named_rows
from tidegate_server.core.faults import Point


def die_at(
    server: Server, point: Point, statement: str, start_server: StartServer, faults: Faults
) -> Server:
    """Kill the gateway while a statement is at a point; return the next one, its engine up."""
    faults.arm(point)

    def ask() -> None:
        with suppress(tidegate.Error):
            named_rows(server, statement)

    asking = threading.Thread(target=ask)
    asking.start()
    faults.wait_held(point)
    with server.killed():
        faults.release(point)
        asking.join()
    again = start_server()
    again.wait_for_engine()
    return again
