"""A PostgreSQL server of this run's own, where its programs are installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.stores import POSTGRES

_DEBIAN = Path("/usr/lib/postgresql")


@pytest.fixture(scope="session", autouse=True)
def postgres() -> Iterator[None]:
    """Name a server in the environment, unless the environment names one already."""
    programs = _programs()
    if os.environ.get(POSTGRES) or programs is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tgpg", dir="/tmp") as place:
        directory = Path(place)
        as_user = _drop_root(directory)
        data = directory / "data"
        _run(programs / "initdb", "-D", data, "-U", "tidegate", "-A", "trust", "-N", **as_user)
        options = f"-k {directory} -c listen_addresses='' -c fsync=off -c max_connections=200"
        _run(
            programs / "pg_ctl",
            "-D",
            data,
            "-w",
            "-l",
            directory / "log",
            "-o",
            options,
            "start",
            **as_user,
        )
        os.environ[POSTGRES] = f"postgresql+psycopg://tidegate@/postgres?host={directory}"
        try:
            yield
        finally:
            del os.environ[POSTGRES]
            _run(programs / "pg_ctl", "-D", data, "-m", "immediate", "stop", **as_user)


def _programs() -> Path | None:
    """Find the directory of initdb: on the path, or where Debian puts it."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    installed = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return installed[-1].parent if installed else None


def _drop_root(directory: Path) -> dict[str, str]:
    """PostgreSQL refuses to run as root: give the directory to its own user."""
    if os.geteuid() != 0:
        return {}
    owner = pwd.getpwnam("postgres")
    os.chown(directory, owner.pw_uid, owner.pw_gid)
    return {"user": owner.pw_name}


def _run(*command: object, **options: str) -> None:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, cwd="/", **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
