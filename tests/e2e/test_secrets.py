"""Where the secrets of a running server can be seen, and where not."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

import tidegate
from tests.support.fixtures.server import Server, last_rows, named_rows, running_server
from tests.support.spark_settings import BRIEF, SMALL

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux"),
]

MARK = "Hush7Hush"
ODD = f'{MARK} ü\\u0041:=#! "x" \N{KEY} '
SETTINGS = {
    "spark.hadoop.fs.s3a.secret.key": f"{MARK}1",
    "spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net": f"{MARK}2",
    "spark.hadoop.house.password": ODD,
    "spark.hadoop.house.plain": f"{MARK}4",
}
VARIABLE = "HOUSE_SECRET"
JAVA_OPTIONS, JAVA_PROPERTY = "spark.driver.extraJavaOptions", "house.keyPassword"


@dataclass
class Watched:
    """A server, and where its secrets were seen while it started."""

    server: Server
    seen: set[str] = field(default_factory=set)


def places_with_secrets(pid: int) -> Iterator[str]:
    """Yield the files of /proc in which a secret is, for a process and its descendants."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        command = _read(pid, "cmdline")
        for one in (process, *process.children(recursive=True)):
            # The gateway itself was given a secret by a variable, which its user alone can read,
            # and a child that does not run its own program yet still is the gateway.
            is_gateway = _read(one.pid, "cmdline") == command
            for name in ("cmdline",) if is_gateway else ("cmdline", "environ"):
                if MARK.encode() in _read(one.pid, name):
                    yield f"{name} of {one.name()}"


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A server with secrets in its configuration, its engine up."""
    folder = tmp_path_factory.mktemp("secrets")
    secret = folder / "odd"
    secret.write_text(ODD, encoding="utf-8")
    secret.chmod(0o600)
    lines = ["[server]", f'http_token = {{ env = "{VARIABLE}" }}', "[engine.settings]"]
    lines += [f'"{key}" = "{value}"' for key, value in SETTINGS.items() if value is not ODD]
    lines += [f'"spark.hadoop.house.password" = {{ file = "{secret}" }}']
    options = folder / "java.options"
    options.write_text(f"{BRIEF[JAVA_OPTIONS]}\n-D{JAVA_PROPERTY}={MARK}6\n")
    lines += [f'"{JAVA_OPTIONS}" = "@{options}"']
    configuration = folder / "tidegate.toml"
    configuration.write_text("\n".join(lines))
    configuration.chmod(0o600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, f"{MARK}5")
        before = os.umask(0o022)
        try:
            arguments = ("--config", str(configuration))
            with running_server(folder, *arguments, settings=SMALL) as server:
                yield _start_watched(server)
        finally:
            os.umask(before)


def _start_watched(server: Server) -> Watched:
    found = Watched(server)
    up = threading.Event()

    def look() -> None:
        while not up.wait(0.02):
            found.seen.update(places_with_secrets(server.pid))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        server.wait_for_engine()
    finally:
        up.set()
        thread.join()
    return found


def test_no_process_shows_a_secret(watched: Watched) -> None:
    assert watched.seen == set(), "while it started"
    assert list(places_with_secrets(watched.server.pid)) == []


def test_spark_has_every_setting(watched: Watched) -> None:
    for key, value in {**SETTINGS, JAVA_PROPERTY: f"{MARK}6"}.items():
        [row] = named_rows(
            watched.server,
            f"SELECT java_method('java.lang.System', 'getProperty', '{key}') AS value",
        )
        # Spark's properties lose white space at their ends; its settings, set later, do not.
        assert str(row["value"]) == value.strip(), key
    [row] = named_rows(watched.server, "SET spark.hadoop.house.plain")
    assert MARK in str(row)


def test_spark_does_not_show_them(watched: Watched) -> None:
    rows = named_rows(watched.server, "SET")
    shown = [str(row) for row in rows if MARK in str(row)]
    assert [row for row in shown if "house.plain" not in row] == []
    [row] = named_rows(
        watched.server,
        f"SELECT java_method('java.lang.System', 'getenv', '{VARIABLE}') AS value",
    )
    assert row["value"] == "null"


def test_no_log_contains_a_secret(watched: Watched) -> None:
    statements = (
        f"CREATE TABLE a (n INT) USING jdbc OPTIONS (url 'jdbc:x://u:{MARK}@h', password '{MARK}')",
        f"CREATE TABLE b (n INT) USING delta TBLPROPERTIES ('my.secret' = '{MARK}')",
        f"INSERT INTO b (n, password) VALUES (1, '{MARK}')",
        f"SELECT * FROM b WHERE password = '{MARK}' AND nothing",
        f"CREATE TABLE c USING csv OPTIONS (password '{MARK}",
        f"CREATE TABLE c USING csv OPTIONS password '{MARK}')",
        f"SELECT assert_true(false, 'jdbc:x://h?password={MARK}')",
        f"SELECT * FROM csv.`/nowhere?password={MARK}`",
        f"CREATE MATERIALIZED TABLE m WITH ('password' '{MARK}') AS SELECT 1 AS n",
        f"CREATE MATERIALIZED TABLE m AS SELECT n, 'password={MARK}' AS text FROM b",
        "ALTER MATERIALIZED TABLE m REFRESH",
        f"SET spark.house.password = {MARK}",
    )
    with closing(watched.server.connect()) as connection, closing(connection.cursor()) as cursor:
        failed = 0
        for statement in statements:
            try:
                last_rows(cursor, statement)
            except tidegate.Error:
                failed += 1
    assert 5 <= failed < len(statements)
    rows = named_rows(watched.server, "SELECT * FROM information_schema.materialized_tables")
    assert rows
    assert MARK not in str(rows)
    logs = {file.name: file.read_text("utf-8") for file in _files(watched.server.data / "logs")}
    assert {name for name, text in logs.items() if MARK in text} == set()
    assert "*****" in logs["gateway.log"]
    assert MARK not in watched.server.output.read_text("utf-8")


def test_every_file_is_for_the_servers_user_only(watched: Watched) -> None:
    named_rows(
        watched.server,
        "CREATE TABLE files (n INT) USING delta",
        "INSERT INTO files VALUES (1)",
        "CREATE TABLE rows (n INT) USING parquet",
        "INSERT INTO rows SELECT id FROM range(100)",
    )
    data = watched.server.data
    readable = [path for path in (data, *data.rglob("*")) if _mode(path) & 0o077]
    assert readable == []
    assert [path for path in _files(data / "tmp") if path.name == "spark.properties"] == []


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _mode(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:  # a temporary file
        return 0
