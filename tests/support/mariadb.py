"""A MariaDB server of this run's own, where its programs are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.support.postgres import free_port
from tests.support.waiting import wait_until

_PLACES = f"{os.environ.get('PATH', '')}:/usr/sbin"
_SETTINGS = (
    *("--log-bin=binlog", "--server-id=1", "--binlog-format=ROW", "--binlog-row-metadata=FULL"),
    *("--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M"),
    *("--performance-schema=OFF", "--character-set-server=utf8mb4"),
)
_READY = b"ready for connections"


class MariaDb:
    """A running server, whose user root needs no password on its socket."""

    def __init__(self, directory: Path, port: int) -> None:
        self._socket = directory / "socket"
        self.port = port

    def execute(self, *statements: str, database: str | None = None) -> Sequence[tuple[Any, ...]]:
        """Run statements in one transaction; return the rows of the last one."""
        import pymysql

        settings: dict[str, Any] = {"unix_socket": str(self._socket), "user": "root"}
        with (
            closing(pymysql.connect(database=database, **settings)) as connection,
            connection.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)
            connection.commit()
            return tuple(cursor.fetchall())

    def purge(self) -> None:
        """Delete all files of the binlog but the current one."""
        [(current, *_)] = self.execute("SHOW MASTER STATUS")

        def is_purged() -> bool:  # not while a reader that has ended is still served
            logs = self.execute(f"PURGE BINARY LOGS TO '{current}'", "SHOW BINARY LOGS")
            return len(logs) == 1

        wait_until(is_purged, "the binlog to be purged", 30)


def has_mariadb() -> bool:
    """Return whether the server's programs and the extra ``mysql`` are installed."""
    names = ("mariadbd", "mariadb-install-db")
    found = all(shutil.which(name, path=_PLACES) for name in names)
    return found and find_spec("pymysqlreplication") is not None


@contextmanager
def running_mariadb() -> Iterator[MariaDb]:
    """Start a server with a binlog."""
    program = str(shutil.which("mariadbd", path=_PLACES))
    with tempfile.TemporaryDirectory(prefix="tgmy", dir="/tmp") as place:
        directory = Path(place)
        data, log = directory / "data", directory / "log"
        own = ["--no-defaults", f"--datadir={data}", *(["--user=root"] if _is_root() else [])]
        install = [str(shutil.which("mariadb-install-db", path=_PLACES)), *own]
        install += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        done = subprocess.run(install, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        server = MariaDb(directory, free_port())
        command = [program, *own, *_SETTINGS, f"--socket={directory}/socket"]
        command += [f"--port={server.port}", "--bind-address=127.0.0.1"]
        with log.open("wb") as sink:
            process = subprocess.Popen(command, stdout=sink, stderr=sink)
        try:
            wait_until(
                lambda: _READY in log.read_bytes() or process.poll() is not None, "MariaDB", 60
            )
            assert process.poll() is None, log.read_text("utf-8", "replace")
            yield server
        finally:
            process.terminate()
            process.wait(60)


def _is_root() -> bool:
    return os.geteuid() == 0
