"""Drivers of other languages, in the larger run (``bin/test --full``) where Node.js and Go are."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.fixtures.server import Server
from tests.support.full_run import FULL

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not FULL, reason="part of bin/test --full"),
]

PROGRAMS = Path(__file__).parents[1] / "clients"


@pytest.mark.skipif(shutil.which("npm") is None, reason="Node.js is not installed")
def test_node_hive_driver(server: Server, tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / "client.js", tmp_path)
    run(tmp_path, "npm", "init", "-y")
    run(tmp_path, "npm", "install", "hive-driver@1.0.0")
    told = answer(tmp_path, "node", "client.js", str(server.port))
    assert told["values"] == [
        {"i": 1, "s": "x", "a": [1, 2], "m": {"k": "v"}, "st": {"f": None}, "d": 1.5, "n": None}
    ]
    assert told["many"] == 25_000
    assert "materialized_tables" in told["tables"]
    assert "TABLE_OR_VIEW_NOT_FOUND" in told["error"]


@pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")
def test_gohive(server: Server, tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / "client.go", tmp_path / "main.go")
    run(tmp_path, "go", "mod", "init", "client")
    run(tmp_path, "go", "get", "github.com/beltran/gohive@v1.8.1")
    run(tmp_path, "go", "mod", "tidy")
    told = answer(tmp_path, "go", "run", ".", str(server.port))
    assert told["values"] == [{"i": 1, "s": "x", "a": "[1,2]", "d": "1.50", "n": None, "b": True}]
    assert told["many"] == 25_000
    assert told["command"] == "<nil>"
    assert "TABLE_OR_VIEW_NOT_FOUND" in told["error"]


def run(place: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def answer(place: Path, *command: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(run(place, *command).splitlines()[-1])
    return told
