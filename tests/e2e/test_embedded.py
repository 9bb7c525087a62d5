"""The command line with a private server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.spark_settings import BRIEF
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

COMMAND = (
    *(sys.executable, "-c", "import sys; from tidegate.cli import main; sys.exit(main())"),
    *("--embedded", "--format", "json", "--quiet"),
)
ENVIRONMENT = {
    "TIDEGATE_ENGINE__MASTER": "local[2]",
    "TIDEGATE_ENGINE__DRIVER_MEMORY": "1g",
    "TIDEGATE_ENGINE__WARM_UP": "false",
    "TIDEGATE_ENGINE__SETTINGS": json.dumps(BRIEF),
}
SETUP = """
CREATE TABLE events AS SELECT id FROM range(10);
CREATE MATERIALIZED TABLE counted FRESHNESS = INTERVAL '1' DAY AS SELECT count(*) AS n FROM events;
ALTER MATERIALIZED TABLE counted REFRESH
"""
LONG = "SELECT count(*) FROM range(1000000000) a CROSS JOIN range(1000) b WHERE a.id % 7 = b.id % 7"


CONTEXT = """
[variables]
least = "8"

[functions]
distance = "org.apache.hadoop.hive.ql.udf.generic.GenericUDFAbs"

[tables.generated]
columns = { id = "BIGINT" }
options = { connector = "datagen", number-of-rows = 3 }

[views]
large = "SELECT id FROM events WHERE id >= ${least}"
"""


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | ENVIRONMENT,
    )


def _is_alive(process: psutil.Process) -> bool:
    """Return whether a process runs; one that ended may remain as a zombie."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_server_ends_with_the_command_and_data_is_kept(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with start("--data", data, "-e", f"{SETUP}; SELECT n FROM counted; {LONG}") as killed:
        assert killed.stdout is not None
        assert {"n": 10} in map(json.loads, iter(killed.stdout.readline, ""))
        processes = psutil.Process(killed.pid).children(recursive=True)
        connections = [c for process in processes for c in process.net_connections("all")]
        assert any(str(c.laddr).endswith("/socket") for c in connections)
        assert not any(
            c.status == psutil.CONN_LISTEN and c.laddr.port == 10000 for c in connections
        )
        killed.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(map(_is_alive, processes)), "a process is left", 60)

    context = tmp_path / "context.toml"
    context.write_text(CONTEXT)
    query = (
        "SELECT n, distance(-n) AS d, (SELECT count(*) FROM large) AS l, "
        "(SELECT count(*) FROM generated) AS g FROM counted"
    )
    with start("--data", data, "--context", str(context), "-e", query) as again:
        output, errors = again.communicate(timeout=300)
    assert again.returncode == 0, errors
    assert json.loads(output) == {"n": 10, "d": 10, "l": 2, "g": 3}
    assert not [path for path in Path("/tmp").glob("tidegate-*/socket") if path.is_socket()]


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    with start("--data", str(tmp_path / "data"), "-e", "SELECT 1") as failed:
        _, errors = failed.communicate(timeout=60)
    assert failed.returncode == 3
    assert errors.startswith("tidegate-server: ")
    assert errors.endswith("\nERROR The embedded server did not start (exit code 2).\n")
