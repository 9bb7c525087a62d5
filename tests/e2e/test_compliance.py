"""SQLAlchemy's compliance suite for dialects, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.environments import install
from tests.support.fixtures.server import Server
from tests.support.full_run import FULL

pytestmark = [pytest.mark.spark, pytest.mark.timeout(0 if FULL else 2400)]

QUICK = ("HasTableTest", "CompoundSelect", "Escaping")
"""Classes that make few tables; the others run where ``TIDEGATE_FULL`` is set, in half an hour."""
ROOT = Path(__file__).parents[2]
SUITE = ROOT / "tests" / "compliance"
SQLALCHEMY_2_0 = "sqlalchemy>=2.0.44,<2.1"
NEEDED = ("pytest", "pytest-timeout", "thrift", "pure-sasl", "pyarrow", "numpy")


def run_suite(server: Server, python: str | Path) -> None:
    uri = f"tidegate+tidegate://{server.host}:{server.port}/default"
    command = [str(python), "-m", "pytest", "-c", str(SUITE / "setup.cfg")]
    command += [str(SUITE / "suite.py"), "--dburi", f"{uri}?spark.sql.sources.default=delta"]
    if not FULL:
        command += ["-k", " or ".join(QUICK)]
    packages = os.pathsep.join(str(ROOT / each) for each in ("driver", "sqlalchemy_dialect"))
    environment = {**os.environ, "PYTHONPATH": packages}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_the_dialect_passes_sqlalchemy_s_compliance_suite(server: Server) -> None:
    run_suite(server, sys.executable)


@pytest.mark.skipif(not FULL, reason="for the long run; 2.1 is always tested")
def test_the_dialect_passes_that_of_sqlalchemy_2_0(server: Server, tmp_path: Path) -> None:
    run_suite(server, install(tmp_path, SQLALCHEMY_2_0, *NEEDED) / "python")
