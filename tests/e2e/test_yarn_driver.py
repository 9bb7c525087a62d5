"""Engines whose own process runs in YARN: deploy mode cluster."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from tests.support.fixtures.server import Server, StartServer
from tests.support.fixtures.walkthrough import REFRESH, ROWS, run
from tests.support.full_run import FULL
from tests.support.metastore import postgres_metastore
from tests.support.postgres import free_port
from tests.support.waiting import wait_until
from tests.support.yarn import running_yarn

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not FULL, reason="fetches Hadoop's jars, and starts engines in a cluster"),
]

CONFIG = """\
[engine]
master = "local[2]"
jars = ["{driver}"]

[engine.settings]
{metastore}
"spark.sql.warehouse.dir" = "{warehouse}"

[registration]
host = "127.0.0.1"
address = "127.0.0.1"
port = {port}

[engines.etl]
master = "yarn"
deploy_mode = "cluster"
driver_memory = "1g"

[engines.etl.settings]
{settings}

[engines.nightly]
master = "yarn"
deploy_mode = "cluster"
application = true
driver_memory = "1g"

[engines.nightly.settings]
{settings}
"""
OF_THE_DRIVER = ("spark.sql.warehouse.dir", "spark.driver.host", "spark.driver.bindAddress")
ENGINE = "SHOW ENGINES LIKE 'etl'"
CREATE = """\
CREATE MATERIALIZED TABLE totals FRESHNESS = INTERVAL '1' DAY REFRESH_MODE = INCREMENTAL
AS SELECT k, sum(n) AS n FROM events GROUP BY k"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a server beside a cluster of YARN."""
    with running_yarn(tmp_path) as yarn, postgres_metastore(tmp_path) as metastore:
        monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.configuration))
        file = tmp_path / "tidegate.toml"
        text = CONFIG.format(
            driver=metastore.driver,
            metastore=metastore.lines,
            warehouse=f"{yarn.files}/warehouse",
            port=free_port(),
            settings=as_lines({k: v for k, v in yarn.settings.items() if k not in OF_THE_DRIVER}),
        )
        file.write_text(text)
        yield file


def as_lines(settings: Mapping[str, str]) -> str:
    return "\n".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in settings.items())


def engine_process(server: Server, name: str) -> psutil.Process:
    """Return the process of an engine, which is up."""
    wait_until(lambda: name in server.ready_info()["engines"], f"{name} is not up")
    return psutil.Process(int(server.ready_info()["engines"][name]["pid"]))


def test_an_engine_in_yarn_outlives_its_gateway(config: Path, start_server: StartServer) -> None:
    server = start_server("--config", str(config))
    run(
        server,
        "CREATE TABLE events (k INT, n INT)",
        "INSERT INTO events SELECT id % 3, id FROM range(9)",
        "SET 'execution.engine' = 'etl'",
        CREATE,
        REFRESH,
    )
    assert run(server, ROWS) == [(0, 9), (1, 12), (2, 15)]
    engine = engine_process(server, "etl")
    assert engine not in psutil.Process(server.pid).children(recursive=True)
    assert "spark.yarn.app.container.log.dir" in " ".join(jvm_of(engine).cmdline())

    os.kill(server.pid, signal.SIGKILL)
    server.process.wait()
    server = start_server("--config", str(config))
    [(_, info)] = run(server, "INSERT INTO events VALUES (1, 100)", REFRESH)
    assert info["action"] == "INCREMENTAL"
    assert engine_process(server, "etl") == engine

    jvm_of(engine).kill()
    wait_until(lambda: not engine.is_running(), "the engine outlives its JVM")
    [(_, info)] = run(
        server,
        "ALTER MATERIALIZED TABLE totals SUSPEND",
        "ALTER MATERIALIZED TABLE totals RESUME",
        "DELETE FROM events WHERE k = 2",
        REFRESH,
    )
    assert info["action"] == "INCREMENTAL"
    assert engine_process(server, "etl") != engine
    assert run(server, ROWS) == [(0, 9), (1, 112)]
    [verified] = run(server, "VERIFY MATERIALIZED TABLE totals")
    assert verified[3] is True

    run(
        server,
        "SET 'execution.mode' = 'yarn-application'",
        "CREATE MATERIALIZED TABLE alone FRESHNESS = INTERVAL '1' DAY AS SELECT max(n) FROM events",
        "ALTER MATERIALIZED TABLE alone REFRESH",
    )
    states = {row[0]: (row[2], row[4]) for row in run(server, "SHOW ENGINES")}
    assert states["nightly"] == ("yarn-application", "UP")
    assert run(server, "SELECT * FROM alone") == [(100,)]

    engine = engine_process(server, "etl")
    jvm = jvm_of(engine)
    server.stop()
    wait_until(lambda: not engine.is_running() and not jvm.is_running(), "the application remains")


def jvm_of(engine: psutil.Process) -> psutil.Process:
    """Return the JVM in whose container an engine runs."""
    return next(each for each in engine.parents() if "java" in each.name())
