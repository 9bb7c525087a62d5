"""A point of a refresh holds whoever comes by, if a test armed it, and nobody else."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tidegate_server.core.faults import VARIABLE, Point, pause_at


def test_nobody_is_held_unless_a_test_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    pause_at(Point.AFTER_COMMIT)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / "before-commit.armed").touch()
    pause_at(Point.AFTER_COMMIT)
    assert [file.name for file in tmp_path.iterdir()] == ["before-commit.armed"]


def test_one_is_held_until_it_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / "after-commit.armed").touch()
    held = tmp_path / "after-commit.held"
    comer = threading.Thread(target=pause_at, args=(Point.AFTER_COMMIT,))
    comer.start()
    deadline = time.monotonic() + 30
    while not held.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    pause_at(Point.AFTER_COMMIT)  # the next one is not held
    assert comer.is_alive()
    held.unlink()
    comer.join(30)
    assert not comer.is_alive()
