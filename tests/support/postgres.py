"""A PostgreSQL server of this run's own, where its programs are installed."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DEBIAN = Path("/usr/lib/postgresql")
USER = "tidegate"


def postgres_programs() -> Path | None:
    """Find the directory of initdb: on the path, or where Debian puts it."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    installed = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return installed[-1].parent if installed else None


@contextmanager
def running_postgres(programs: Path, port: int = 0) -> Iterator[Path]:
    """Start a server whose user USER needs no password; yield its socket's directory.

    :param port: a port of this machine to listen on as well; 0 for none.
    """
    with tempfile.TemporaryDirectory(prefix="tgpg", dir="/tmp") as place:
        directory = Path(place)
        as_user = _drop_root(directory)
        data = directory / "data"
        _run(programs / "initdb", "-D", data, "-U", USER, "-A", "trust", "-N", **as_user)
        options = f"-k {directory} -c fsync=off -c max_connections=200"
        options += (
            f" -c listen_addresses=127.0.0.1 -p {port}" if port else " -c listen_addresses=''"
        )
        start = ("-w", "-l", directory / "log", "-o", options, "start")
        _run(programs / "pg_ctl", "-D", data, *start, **as_user)
        try:
            yield directory
        finally:
            _run(programs / "pg_ctl", "-D", data, "-m", "immediate", "stop", **as_user)


def require_password(directory: Path) -> None:
    """Let clients of TCP in by password alone, from the next start or reload on."""
    rules = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
    (directory / "data" / "pg_hba.conf").write_text(rules)


def free_port() -> int:
    """Return a port of this machine that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


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
