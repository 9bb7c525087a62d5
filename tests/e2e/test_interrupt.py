"""Ctrl-C in beeline, at a terminal, ends the work in Spark."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.support.fixtures.server import Beeline, Server, running_tasks
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.jdbc]

CTRL_C = b"\x03"
SECONDS = 60.0

COUNTING = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.id % 7 = b.id % 11"
WRITING = "SELECT id, repeat('x', 100) AS text FROM range(200000000)"
"""Its result does not fit in memory: the tasks write it into files."""


class Terminal:
    """A beeline at its own terminal."""

    def __init__(self, beeline: Beeline) -> None:
        self._screen, inside = os.openpty()
        self._read = b""
        environment = {**beeline.environment(), "TERM": "xterm"}
        self.process = subprocess.Popen(
            # Whoever runs the tests in the background ignores Ctrl-C, which is inherited.
            ["setsid", "--ctty", "env", "--default-signal=INT", *beeline.command("-n", "tester")],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env=environment,
            cwd=beeline.home,
        )
        os.close(inside)

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._screen, keys)

    def wait_for(self, pattern: bytes) -> bytes:
        """Wait until the screen shows something new, and return all that is new up to there."""
        deadline = time.monotonic() + SECONDS
        while (found := re.search(pattern, self._read)) is None:
            if time.monotonic() > deadline:
                pytest.fail(f"beeline did not show {pattern!r} but {self._read[-2000:]!r}")
            if select.select([self._screen], [], [], 0.1)[0]:
                self._read += os.read(self._screen, 65536)
        shown, self._read = self._read[: found.end()], self._read[found.end() :]
        return shown

    def close(self) -> None:
        """Hang up."""
        self.process.kill()
        self.process.wait()
        os.close(self._screen)


@pytest.fixture
def terminal(beeline: Beeline) -> Iterator[Terminal]:
    """A beeline that is connected to the session's server."""
    opened = Terminal(beeline)
    try:
        opened.wait_for(rb"jdbc:hive2://[^ ]*> ")
        yield opened
    finally:
        opened.close()


def test_ctrl_c_in_beeline_leaves_no_task_and_the_session_goes_on(
    server: Server, terminal: Terminal
) -> None:
    for number, query in enumerate([COUNTING, WRITING]):
        terminal.type(f"{query};\n".encode())
        # Before it draws a bar, beeline has nothing to cancel yet.
        terminal.wait_for(rb"ELAPSED TIME")
        wait_until(lambda: running_tasks(server) > 0, "no task ran")
        terminal.type(CTRL_C)
        terminal.wait_for(rb"Error: Query was cancelled")
        wait_until(lambda: running_tasks(server) == 0, "the tasks did not end")
        terminal.type(f"SELECT concat('going', ' on ', {number});\n".encode())
        terminal.wait_for(b"going on %d" % number)
