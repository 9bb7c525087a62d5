"""Measures what a mode of execution costs: from CREATE to the first commit, and by workers."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from servers import machine

from tests.support.fixtures.server import Server, running_server
from tests.support.kubernetes.cluster import running_kubernetes
from tests.support.metastore import Metastore, postgres_metastore
from tests.support.postgres import free_port
from tests.support.standalone import standalone_cluster
from tests.support.yarn import running_yarn
from tidegate_server.gateway.link.cluster import section_settings

_ENGINE = "measured"
_CONFIG = """\
[engine]
master = "local[2]"
jars = ["{driver}"]
shared_warehouse = true

[engine.settings]
{metastore}

[registration]
host = "127.0.0.1"
address = "127.0.0.1"
port = {port}

[engines.{engine}]
master = "{master}"
deploy_mode = "{deploy_mode}"
driver_memory = "1g"

[engines.{engine}.settings]
{settings}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the engine of a mode runs."""

    master: str
    warehouse: str
    settings: Mapping[str, str]
    deploy_mode: str = "client"


Mode = Callable[[Path], AbstractContextManager[Place]]


@contextlib.contextmanager
def local(folder: Path) -> Iterator[Place]:
    """Another engine on the server's machine."""
    yield Place(master="local[2]", warehouse=_made(folder / "warehouse"), settings={})


@contextlib.contextmanager
def standalone(folder: Path, workers: int = 1) -> Iterator[Place]:
    """A standalone cluster with so many workers of one core."""
    warehouse = _made(folder / "shared")
    settings = {
        "spark.executor.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.cores.max": str(workers),
        "spark.executor.cores": "1",
    }
    with standalone_cluster(folder / "spark") as cluster:
        for _ in range(workers):
            cluster.add_worker([], cores=1, memory="2g")
        yield Place(master=cluster.url, warehouse=warehouse, settings=settings)


@contextlib.contextmanager
def yarn_client(folder: Path) -> Iterator[Place]:
    """Executors in YARN."""
    with running_yarn(folder) as yarn, _variable("HADOOP_CONF_DIR", str(yarn.configuration)):
        settings = dict(yarn.settings)
        yield Place(
            master="yarn", warehouse=settings.pop("spark.sql.warehouse.dir"), settings=settings
        )


@contextlib.contextmanager
def kubernetes_client(folder: Path) -> Iterator[Place]:
    """Executors that are pods: processes of this machine, beside a mock of the API server."""
    with running_kubernetes(folder / "cluster", optional="drivers") as cluster:
        api = cluster.master.removeprefix("k8s://")
        settings = {**cluster.settings, "spark.kubernetes.driver.master": api}
        warehouse = _made(folder / "shared")
        yield Place(master=cluster.master, warehouse=warehouse, settings=settings)


def in_cluster(mode: Mode) -> Mode:
    """Return a mode whose driver is in the cluster, too."""

    @contextlib.contextmanager
    def found(folder: Path) -> Iterator[Place]:
        with mode(folder) as place:
            settings = section_settings(place.settings, {}, in_cluster=True)
            yield dataclasses.replace(place, settings=settings, deploy_mode="cluster")

    return found


MODES: Mapping[str, Mode] = {
    "embedded": local,
    "remote": standalone,
    "yarn-session, client": yarn_client,
    "yarn-session, cluster": in_cluster(yarn_client),
    "kubernetes-session, client": kubernetes_client,
    "kubernetes-session, cluster": in_cluster(kubernetes_client),
}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=MODES, help="one mode")
    parser.add_argument("--runs", type=int, default=3, help="tables after the first one")
    parser.add_argument(
        "--workers", type=int, metavar="ROWS", help="measure one and two workers instead"
    )
    options = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-modes-") as made:
        if options.workers:
            _compare_workers(Path(made), options.workers, options.runs)
            return 0
        baseline = 0.0
        for name, mode in MODES.items():
            if options.only in (None, name):
                folder = Path(made) / name.replace(", ", "-")
                folder.mkdir()
                first, later = _create_tables(folder, mode, options.runs)
                baseline = baseline or later
                print(
                    f"{name:<28} first table {first:5.1f} s, with the start of its engine; "
                    f"later ones {later:5.2f} s, ratio {later / baseline:.2f}",
                    flush=True,
                )
    return 0


def _create_tables(folder: Path, mode: Mode, runs: int) -> tuple[float, float]:
    """Return the seconds from CREATE to the first commit: of the first table, median of others."""
    with mode(folder) as place, _server(folder, place) as server:
        _run(
            server,
            "CREATE TABLE facts AS SELECT id, id % 100 AS k, id * 7 % 1000 AS v FROM range(100000)",
        )
        seconds = [_first_commit(server, f"t{number}") for number in range(runs + 1)]
    return seconds[0], statistics.median(seconds[1:])


def _first_commit(server: Server, table: str) -> float:
    began = time.perf_counter()
    _run(
        server,
        f"SET 'execution.engine' = '{_ENGINE}'",
        f"CREATE MATERIALIZED TABLE {table} FRESHNESS = INTERVAL '1' DAY "
        "AS SELECT k, sum(v) AS v, count(*) AS n FROM facts GROUP BY k",
        f"ALTER MATERIALIZED TABLE {table} REFRESH",
    )
    return time.perf_counter() - began


def _compare_workers(folder: Path, rows: int, runs: int) -> None:
    """Refresh a table over so many rows with one and with two workers of one core."""
    found = {}
    for workers in (1, 2):
        place = folder / str(workers)
        place.mkdir()
        with standalone(place, workers) as cluster, _server(place, cluster) as server:
            _run(
                server,
                f"CREATE TABLE facts AS SELECT id, id % 100000 AS k, id % 1000 AS d, "
                f"CAST(id % 9999 AS DECIMAL(12,2)) AS v FROM range(0, {rows}, 1, 8)",
                f"SET 'execution.engine' = '{_ENGINE}'",
                "CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' DAY "
                "AS SELECT k, sum(v) AS v, count(DISTINCT d) AS n FROM facts GROUP BY k",
                "ALTER MATERIALIZED TABLE t REFRESH FULL",
            )
            seconds = []
            for _ in range(runs):
                began = time.perf_counter()
                _run(server, "ALTER MATERIALIZED TABLE t REFRESH FULL")
                seconds.append(time.perf_counter() - began)
        found[workers] = statistics.median(seconds)
        print(f"{workers} worker(s) of one core: {found[workers]:.2f} s", flush=True)
    print(f"ratio {found[1] / found[2]:.2f}")


@contextlib.contextmanager
def _server(folder: Path, place: Place) -> Iterator[Server]:
    with postgres_metastore(folder) as metastore:
        file = folder / "tidegate.toml"
        file.write_text(_configuration(place, metastore))
        file.chmod(0o600)
        with running_server(folder / "server", "--config", str(file), settings={}) as server:
            server.wait_for_engine()
            yield server


def _configuration(place: Place, metastore: Metastore) -> str:
    shared = {**metastore.settings, "spark.sql.warehouse.dir": place.warehouse}
    return _CONFIG.format(
        driver=metastore.driver,
        metastore=_lines(shared),
        port=free_port(),
        engine=_ENGINE,
        master=place.master,
        deploy_mode=place.deploy_mode,
        settings=_lines(place.settings),
    )


def _lines(settings: Mapping[str, str]) -> str:
    return "\n".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in settings.items())


def _run(server: Server, *statements: str) -> list[tuple[object, ...]]:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


def _made(folder: Path) -> str:
    folder.mkdir(parents=True)
    return str(folder)


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


if __name__ == "__main__":
    sys.exit(main())
