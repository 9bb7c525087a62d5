"""The wheel of the repository."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.environments import ROOT, succeed


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from the repository."""
    folder = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    succeed(*build)
    (built,) = folder.glob("*.whl")
    return built
