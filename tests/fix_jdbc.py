"""Hive's own JDBC drivers of several generations, each driven in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.jdbc import class_path
from tests.fix_server import Server
from tidegate_server.gateway.link.java import find_java

VERSIONS = ("3.1.3", "4.0.1", "4.1.0")
_PROGRAM = Path(__file__).parent / "e2e" / "jdbc_program.py"
Ask = Callable[..., dict[str, Any]]


@pytest.fixture(params=VERSIONS)
def jdbc(request: pytest.FixtureRequest, server: Server) -> Ask:
    """Run steps through one driver: ``ask(steps, url="...")`` returns what each step gave."""
    jars = class_path(request.param).split(os.pathsep)

    def ask(*steps: tuple[str, ...], url: str = "default") -> dict[str, Any]:
        asked = json.dumps({"jars": jars, "url": server.url + url, "steps": steps})
        done = subprocess.run(
            [sys.executable, str(_PROGRAM)],
            input=asked,
            capture_output=True,
            text=True,
            timeout=300,
            env={"JAVA_HOME": str(find_java().home)},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answers

    return ask
