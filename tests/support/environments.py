"""Environments of Python with packages and their dependencies, no more."""

from __future__ import annotations

import os
import subprocess
import venv
from collections.abc import Iterable
from importlib.metadata import distribution
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


def install(folder: Path, *packages: str | Path, linked: Iterable[str] = ()) -> Path:
    """Return the bin directory of an environment with packages, or wheels, and what they need.

    :param linked: large distributions that are links to those of this process's environment, since
        unpacking them takes longer than the tests. Pip takes them as installed.
    """
    venv.create(folder, with_pip=True)
    links = folder / "linked"
    links.mkdir()
    for name in linked:
        found = distribution(name)
        for entry in {file.parts[0] for file in found.files or ()} - {".."}:
            (links / entry).symlink_to(found.locate_file(entry))
    [site] = folder.glob("lib/python*/site-packages")
    (site / "linked.pth").write_text(f"{links}\n")
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-compile")
    succeed(*pip, *packages, timeout=1800)
    return folder / "bin"
