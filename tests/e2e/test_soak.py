"""Changes and refreshes of large tables leave nothing behind in the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.full_run import FULL

_SOAK = Path(__file__).parents[2] / "bench" / "soak.py"
_LONGEST = 3 * 3600
"""Seconds, with the tables that are made first."""


@pytest.mark.faults
@pytest.mark.skipif(not FULL, reason="part of bin/test --full")
def test_an_hour_of_refreshes_leaves_nothing_behind() -> None:
    subprocess.run([sys.executable, str(_SOAK)], check=True, timeout=_LONGEST)
