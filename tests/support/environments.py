"""Environments of Python with packages and their dependencies, no more."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """Run a command with nothing of this process's environment of Python."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=environment,
    )


def succeed(*command: str | Path, timeout: float = 600) -> str:
    """Run a command that has to go well, and return its output."""
    done = run(*command, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(folder: Path, *packages: str | Path) -> Path:
    """Return the bin directory of an environment with packages, or wheels, and what they need."""
    venv.create(folder, with_pip=True)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-compile")
    succeed(*pip, *packages, timeout=1800)
    return folder / "bin"
