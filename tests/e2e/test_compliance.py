"""SQLAlchemy's compliance suite for dialects, in its own process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fixtures.server import Server
from tests.support.full_run import FULL

pytestmark = [pytest.mark.spark, pytest.mark.timeout(0 if FULL else 2400)]

QUICK = ("HasTableTest", "CompoundSelect", "BooleanTest", "Escaping")
"""Classes that make few tables; the others run where ``TIDEGATE_FULL`` is set, in half an hour."""
ROOT = Path(__file__).parents[2]
SUITE = ROOT / "tests" / "compliance"


def test_the_dialect_passes_sqlalchemy_s_compliance_suite(server: Server) -> None:
    uri = f"tidegate+tidegate://{server.host}:{server.port}/default"
    command = [sys.executable, "-m", "pytest", "-c", str(SUITE / "setup.cfg")]
    command += [str(SUITE / "suite.py"), "--dburi", f"{uri}?spark.sql.sources.default=delta"]
    if not FULL:
        command += ["-k", " or ".join(QUICK)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
