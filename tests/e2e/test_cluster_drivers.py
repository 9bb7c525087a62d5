"""Engines whose own process runs in YARN or Kubernetes: deploy mode cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from tests.support.fixtures.server import Server, StartServer
from tests.support.fixtures.walkthrough import REFRESH, ROWS, run
from tests.support.full_run import FULL
from tests.support.kubernetes.cluster import TOKEN, Kubernetes, running_kubernetes
from tests.support.metastore import Metastore, postgres_metastore
from tests.support.postgres import free_port
from tests.support.waiting import wait_until
from tests.support.yarn import running_yarn
from tidegate_server.gateway.link.cluster import section_settings

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not FULL, reason="fetches jars of clusters, and starts engines in them"),
]

CONFIG = """\
[engine]
master = "local[2]"
jars = ["{driver}"]
shared_warehouse = true

[engine.settings]
{metastore}
"spark.sql.warehouse.dir" = "{warehouse}"

[registration]
host = "127.0.0.1"
address = "127.0.0.1"
port = {port}

[engines.etl]
master = "{master}"
deploy_mode = "cluster"
driver_memory = "1g"

[engines.etl.settings]
{settings}

[engines.nightly]
master = "{master}"
deploy_mode = "cluster"
application = true
driver_memory = "1g"

[engines.nightly.settings]
{settings}
"""
IN_YARN, IN_POD = "spark.yarn.app.container.log.dir", "/opt/spark/conf/spark.properties"
"""What the arguments of a JVM contain that was started there."""
CREATE = """\
CREATE MATERIALIZED TABLE totals FRESHNESS = INTERVAL '1' DAY REFRESH_MODE = INCREMENTAL
AS SELECT k, sum(n) AS n FROM events GROUP BY k"""


def write_config(
    folder: Path, master: str, warehouse: str, metastore: Metastore, settings: Mapping[str, str]
) -> Path:
    file = folder / "tidegate.toml"
    given = section_settings(settings, {}, in_cluster=True)
    given.pop("spark.sql.warehouse.dir", None)  # that of all engines
    file.write_text(
        CONFIG.format(
            driver=metastore.driver,
            metastore=metastore.lines,
            warehouse=warehouse,
            port=free_port(),
            master=master,
            settings=as_lines(given),
        )
    )
    return file


def as_lines(settings: Mapping[str, str]) -> str:
    return "\n".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in settings.items())


def engine_process(server: Server, name: str) -> psutil.Process:
    """Return the process of an engine, which is up."""
    wait_until(lambda: name in server.ready_info()["engines"], f"{name} is not up")
    return psutil.Process(int(server.ready_info()["engines"][name]["pid"]))


def test_engines_in_yarn(
    tmp_path: Path, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_yarn(tmp_path) as yarn, postgres_metastore(tmp_path) as metastore:
        monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.configuration))
        warehouse = f"{yarn.files}/warehouse"
        config = write_config(tmp_path, "yarn", warehouse, metastore, yarn.settings)
        keep_tables_fresh(config, start_server, "yarn-application", IN_YARN)


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[Kubernetes]:
    with running_kubernetes(tmp_path / "cluster", optional="drivers") as cluster:
        yield cluster
        assert cluster.nodes.problems == []


def test_engines_in_pods(kubernetes: Kubernetes, tmp_path: Path, start_server: StartServer) -> None:
    warehouse = tmp_path / "shared" / "warehouse"
    warehouse.mkdir(parents=True)
    api = kubernetes.master.removeprefix("k8s://")
    settings = {**kubernetes.settings, "spark.kubernetes.driver.master": api}
    with postgres_metastore(tmp_path) as metastore:
        config = write_config(tmp_path, kubernetes.master, str(warehouse), metastore, settings)
        keep_tables_fresh(config, start_server, "kubernetes-application", IN_POD)
        nodes = kubernetes.nodes
        wait_until(lambda: len(nodes.pods()) == 1, "pods remain beside that of the server")
    account = kubernetes.front.accounts[TOKEN]
    asked = {(each.verb, each.resource) for each in kubernetes.front.requests if account.may(each)}
    granted = {
        (verb, name) for r in account.rules for name in r["resources"] for verb in r["verbs"]
    }
    assert granted == asked


def keep_tables_fresh(
    config: Path, start_server: StartServer, application: str, place: str
) -> None:
    """Refresh tables in the cluster though the gateway and the engine are killed."""
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
    assert server.pid not in [each.pid for each in engine.parents()]
    assert place in " ".join(jvm_of(engine).cmdline())

    server.kill()
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
        f"SET 'execution.mode' = '{application}'",
        "CREATE MATERIALIZED TABLE alone FRESHNESS = INTERVAL '1' DAY AS SELECT max(n) FROM events",
        "ALTER MATERIALIZED TABLE alone REFRESH",
    )
    states = {row[0]: (row[2], row[4]) for row in run(server, "SHOW ENGINES")}
    assert states["nightly"] == (application, "UP")
    assert run(server, "SELECT * FROM alone") == [(100,)]

    engine = engine_process(server, "etl")
    jvm = jvm_of(engine)
    server.stop()
    wait_until(lambda: not engine.is_running() and not jvm.is_running(), "the application remains")


def jvm_of(engine: psutil.Process) -> psutil.Process:
    """Return the JVM that started an engine."""
    return next(each for each in engine.parents() if "java" in each.name())
