"""Submits an engine without Spark to this machine, as spark-submit does to a cluster.

The agent outlives this program. Its first argument is a file for the agent's output; the second, if
given, is a port at which it finds the gateway, ``fail``, or ``broken`` for an engine that fails.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from tidegate_server.core.tunnel import Invitation
from tidegate_server.engine.agent import Agent, RejectedError

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")
_WORDS = "FAKE_ENGINE_WORDS"


def submit(log: str, *port: str) -> None:
    """Start the agent in the background, then report until killed."""
    if port == ("fail",):
        sys.stdout.write("the queue etl does not exist\n")
        sys.exit(2)
    sys.stdin.readline()
    invitation = msgspec.json.decode(sys.stdin.readline(), type=Invitation)
    words = port if port == ("broken",) else ()
    if port and not words:
        invitation = msgspec.structs.replace(invitation, port=int(port[0]))
    with open(log, "ab") as output:
        agent = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, _WORDS: " ".join(words)},
        )
    assert agent.stdin is not None
    agent.stdin.write(msgspec.json.encode(invitation))
    agent.stdin.close()
    sys.exit(agent.wait())


def run_agent() -> int:
    """Run the agent of an engine without Spark."""
    logging.basicConfig(level=logging.INFO)
    invitation = msgspec.json.decode(sys.stdin.read(), type=Invitation)
    command = [sys.executable, str(FAKE_ENGINE), *os.environ[_WORDS].split()]
    with tempfile.TemporaryDirectory(prefix="tidegate-", dir="/tmp") as folder:
        agent = Agent(invitation, Path(folder), command)
        try:
            return asyncio.run(agent.run())
        except RejectedError as problem:
            sys.stderr.write(f"rejected: {problem}\n")
            return os.EX_NOPERM


if __name__ == "__main__":
    if sys.argv[1:]:
        submit(*sys.argv[1:])
    sys.exit(run_agent())
