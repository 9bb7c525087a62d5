"""Executors that are pods of Kubernetes: a mock of its API server, and pods as local processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

import tidegate
from tests.support.fixtures.server import Server, named_rows, run_as, running_server
from tests.support.fixtures.walkthrough import keep_a_table_fresh_though_the_engine_dies
from tests.support.full_run import FULL
from tests.support.kubernetes.access import Asked
from tests.support.kubernetes.cluster import SERVER, TOKEN, Kubernetes, running_kubernetes
from tests.support.metastore import postgres_metastore
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not FULL, reason="starts some ten engines"),
]

CONFIG = """
[engine]
jars = ["{driver}"]
shared_warehouse = true
executor_timeout = 60

[engine.settings]
{settings}
"spark.sql.warehouse.dir" = "{warehouse}"

[engines.pods]
master = "{master}"
cluster_id = "nightly"
driver_memory = "1g"

[engines.pods.settings]
"spark.kubernetes.executor.volumes.persistentVolumeClaim.a.options.claimName" = "OnDemand"
"spark.kubernetes.executor.volumes.persistentVolumeClaim.a.options.sizeLimit" = "1Gi"
"spark.kubernetes.executor.volumes.persistentVolumeClaim.a.options.storageClass" = "fast"
"spark.kubernetes.executor.volumes.persistentVolumeClaim.a.mount.path" = "/claimed"

[engines.apps]
master = "{master}"
application = true
driver_memory = "1g"
idle_timeout = 60

[engines.absent]
master = "{master}"
cluster_id = "absent"
driver_memory = "1g"
settings = {{ "spark.kubernetes.container.image" = "registry.example.org/absent" }}
"""
APPLICATION = "nightly-report"


@dataclass(slots=True)
class House:
    """A server whose engines run on a cluster."""

    server: Server
    cluster: Kubernetes

    def run(self, *statements: str) -> list[tuple[object, ...]]:
        """Run statements in a session of their own; return the rows of the last one."""
        return run_as(self.server, "ann", *statements)

    def pods(self, engine: str) -> list[str]:
        """Return the names of an engine's pods."""
        found = [
            pod["metadata"] for pod in self.cluster.nodes.pods() if "labels" in pod["metadata"]
        ]
        return [meta["name"] for meta in found if meta["labels"].get("tidegate/engine") == engine]

    def running(self, engine: str) -> list[int]:
        """Return the process ids of an engine's running pods."""
        processes = self.cluster.nodes.processes()
        return [processes[name] for name in self.pods(engine) if name in processes]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pods")


@pytest.fixture(scope="module")
def cluster(place: Path) -> Iterator[Kubernetes]:
    (place / "server").mkdir()
    with running_kubernetes(place / "cluster", [place / "server"]) as cluster:
        yield cluster
        assert cluster.nodes.problems == []


@pytest.fixture(scope="module")
def arguments(place: Path, cluster: Kubernetes) -> Iterator[tuple[str, ...]]:
    warehouse = place / "shared" / "warehouse"
    warehouse.mkdir(parents=True)
    with postgres_metastore(place) as metastore:
        lines = [f'"{key}" = "{value}"' for key, value in cluster.settings.items()]
        file = place / "tidegate.toml"
        file.write_text(
            CONFIG.format(
                driver=metastore.driver,
                settings="\n".join([metastore.lines, *lines]),
                warehouse=warehouse,
                master=cluster.master,
            )
        )
        yield ("--config", str(file), f"--set=engine.master={cluster.master}")


@pytest.fixture
def house(place: Path, cluster: Kubernetes, arguments: tuple[str, ...]) -> Iterator[House]:
    with running_server(place / "server", *arguments) as server:
        server.wait_for_engine()
        yield House(server, cluster)


def test_tables_stay_fresh_though_executors_and_engines_die(house: House) -> None:
    before = house.pods("gateway")
    keep_a_table_fresh_though_the_engine_dies(house.server)
    assert not set(before) & set(house.pods("gateway"))  # those of the killed engine are deleted
    [(_, info)] = house.run("ALTER MATERIALIZED TABLE totals REFRESH FULL")
    assert info["action"] == "FULL"
    engine = house.server.wait_for_engine()["pid"]
    for _ in range(4):  # Spark gives up after three
        [executor] = house.running("gateway")
        os.kill(executor, signal.SIGKILL)
        assert house.run("SELECT sum(n) FROM totals") == [(121,)]
    assert house.server.wait_for_engine()["pid"] == engine
    with closing(house.server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SELECT id, repeat('x', 100) FROM range(500000)")
        assert len(cursor.fetchall()) == 500_000
    house.run("DROP MATERIALIZED TABLE totals", "DROP TABLE events")


def test_tables_choose_sessions_and_applications(house: House) -> None:
    create = "CREATE MATERIALIZED TABLE {} FRESHNESS = INTERVAL '1' DAY REFRESH_MODE = FULL AS {}"
    query = "SELECT shop, count(*) AS n FROM orders GROUP BY shop"
    house.run(
        "CREATE TABLE orders (shop INT)",
        "INSERT INTO orders SELECT id % 3 FROM range(30)",
        "SET 'execution.mode' = 'kubernetes-session'",
        "SET 'kubernetes.cluster-id' = 'nightly'",
        create.format("shared", query),
        "SET 'execution.mode' = 'kubernetes-application'",
        f"SET 'kubernetes.cluster-id' = '{APPLICATION}'",
        create.format("alone", query),
    )
    for table, pods in (("shared", "pods"), ("alone", f"apps.{APPLICATION}")):
        change = f"ALTER MATERIALIZED TABLE {table}"
        house.run(f"{change} REFRESH", f"{change} SUSPEND")
        house.run(f"{change} RESUME", "INSERT INTO orders VALUES (7)", f"{change} REFRESH")
        assert house.run(f"SELECT count(*) FROM {table}") == [(4,)]
        [name] = house.pods(pods)
        assert name.startswith("nightly-report-" if table == "alone" else "nightly-")
    engines = {row[0]: (row[1], row[2], row[4]) for row in house.run("SHOW ENGINES")}
    assert engines["pods"] == (None, "kubernetes-session", "UP")
    assert engines["apps"] == (APPLICATION, "kubernetes-application", "UP")
    wait_until(lambda: house.pods(f"apps.{APPLICATION}") == [], "the application does not end")
    assert ("apps", "DOWN") in [(row[0], row[4]) for row in house.run("SHOW ENGINES")]


def test_an_engine_that_may_not_create_pods_says_so(house: House, place: Path) -> None:
    account = house.cluster.front.accounts[TOKEN]
    rules = account.rules
    account.rules = [{"resources": ["pods"], "verbs": ["get", "list", "watch", "create", "patch"]}]
    try:
        with pytest.raises(tidegate.Error) as refused:
            house.run("ALTER MATERIALIZED TABLE alone REFRESH")
    finally:
        account.rules = rules
    assert "CLUSTER_CONFIGURATION" in str(refused.value)
    assert "the account may not delete pods and deletecollection pods" in str(refused.value)
    token = place / "cluster" / "token"
    token.write_text("another")
    try:
        # The supervisor tries again after some seconds; this is the error of such an attempt.
        wait_until(lambda: unauthorized(house), "no attempt was unauthorized")
    finally:
        token.write_text(TOKEN)
    house.run("ALTER MATERIALIZED TABLE alone REFRESH")


def unauthorized(house: House) -> bool:
    [reason] = [row[7] for row in house.run("SHOW ENGINES") if row[0] == "apps"]
    return "rejects the credentials (401, Unauthorized)" in str(reason)


def test_an_engine_without_executors_says_why(house: House) -> None:
    change = "ALTER MATERIALIZED TABLE shared"
    house.run(f"{change} SET ('execution.engine' = 'absent')")
    with closing(house.server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute_async(f"{change} REFRESH")
        wait_until(lambda: "WAITING" in str(absent(house)), "it does not wait")
        why = 'ImagePullBackOff: Back-off pulling image "registry.example.org/absent"'
        wait_until(lambda: why in str(absent(house)), "it does not say why")
        [run] = named_rows(house.server, "SHOW REFRESH HISTORY FOR shared LIMIT 1")
        assert why in str(run["strategy_reason_text"])
        with pytest.raises(tidegate.Error, match="CLUSTER_NO_EXECUTORS.*ImagePullBackOff"):
            cursor.wait()
    house.run(f"{change} SET ('execution.engine' = 'pods')", f"{change} REFRESH")


def absent(house: House) -> tuple[object, ...]:
    [row] = [row for row in house.run("SHOW ENGINES") if row[0] == "absent"]
    return row


def test_pods_of_a_killed_gateway_are_deleted(
    house: House, place: Path, arguments: tuple[str, ...]
) -> None:
    nodes = house.cluster.nodes
    [mine] = house.pods("gateway")
    [pod] = [pod for pod in nodes.pods() if pod["metadata"]["name"] == mine]
    assert [owner["name"] for owner in pod["metadata"]["ownerReferences"]] == [SERVER]
    labels = pod["metadata"]["labels"]
    forever = ["sleep", "3600"]
    labels = {key: value for key, value in labels.items() if key.startswith("tidegate/")}
    nodes.create("hanging", labels, forever)  # which has none of the labels that Spark deletes by
    nodes.create("foreign", {**labels, "tidegate/installation": "another"}, forever)
    wait_until(lambda: {"hanging", "foreign"} <= nodes.processes().keys(), "they do not start")
    house.server.kill()
    with running_server(place / "server", *arguments) as server:
        server.wait_for_engine()
        names = {pod["metadata"]["name"] for pod in nodes.pods()}
        assert "foreign" in names
        assert not names & {mine, "hanging"}
        wait_until(lambda: "hanging" not in nodes.processes(), "it still runs")
        run_as(server, "ann", "INSERT INTO orders VALUES (8)")
        run_as(server, "ann", "ALTER MATERIALIZED TABLE shared REFRESH")
        assert run_as(server, "ann", "SELECT count(*) FROM shared") == [(5,)]


def test_the_role_has_what_was_asked_for_and_no_more(cluster: Kubernetes) -> None:
    """Of all requests that the other tests made."""
    account = cluster.front.accounts[TOKEN]
    refused = {each for each in cluster.front.requests if not account.may(each)}
    assert refused == {Asked("get", "namespaces", "")}
    granted = {
        (verb, name) for r in account.rules for name in r["resources"] for verb in r["verbs"]
    }
    allowed = {(each.verb, each.resource) for each in cluster.front.requests - refused}
    # That is for a claim whose pod could not be created.
    assert granted - allowed == {("delete", "persistentvolumeclaims")}
