from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[2] / "fuzz" / "requests.py"
SECONDS = os.environ.get("TIDEGATE_FUZZ_SECONDS", "20")


@pytest.mark.skipif(sys.platform != "linux", reason="Atheris comes for Linux alone")
@pytest.mark.timeout(int(SECONDS) + 300)
def test_fuzzing_finds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), str(tmp_path / "corpus"), f"-max_total_time={SECONDS}"]
    # One input may take long only because something is wrong; memory must not grow with inputs.
    command += ["-timeout=20", "-rss_limit_mb=2048"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    executions = re.search(r"Done (\d+) runs", done.stderr)
    assert executions is not None
    assert int(executions[1]) > 1000, done.stderr[-4000:]
