"""Waiting for a condition, with a limit."""

from __future__ import annotations

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
