"""A standalone cluster whose worker sees the warehouse, and nothing else of the gateway's files."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import tidegate
from tests.support.fixtures.server import Server, named_rows, run_as, running_server
from tests.support.full_run import FULL
from tests.support.metastore import postgres_metastore
from tests.support.standalone import StandaloneCluster, standalone_cluster
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1200)]

CONFIG = """
[engine]
jars = ["{driver}"]
shared_warehouse = true
executor_timeout = 60

[engine.settings]
{settings}
"spark.sql.warehouse.dir" = "{warehouse}"
"spark.cores.max" = "1"
"spark.executor.memory" = "600m"
"spark.driver.host" = "127.0.0.1"

[engines.second]
master = "{master}"
driver_memory = "1g"

[engines.third]
master = "{master}"
driver_memory = "1g"
"""
ROWS = 3_000_000 if FULL else 500_000
TEXT = "lpad(cast(id AS STRING), 100, 'x')"


@dataclass(frozen=True, slots=True)
class House:
    """A server whose engines run on a cluster."""

    server: Server
    cluster: StandaloneCluster
    warehouse: Path

    def run(self, *statements: str) -> list[tuple[object, ...]]:
        """Run statements in a session of their own; return the rows of the last one."""
        return run_as(self.server, "ann", *statements)

    def second_engine(self) -> int:
        """Return the process id of the engine that tables choose."""
        wait_until(lambda: "second" in self.server.ready_info()["engines"], "it is not up")
        return int(self.server.ready_info()["engines"]["second"]["pid"])


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("cluster")
    warehouse, own = folder / "shared" / "warehouse", folder / "server"
    warehouse.mkdir(parents=True)
    own.mkdir()
    with standalone_cluster(folder / "spark") as cluster, postgres_metastore(folder) as metastore:
        cluster.add_worker([own], cores=2, memory="2g")
        file = folder / "tidegate.toml"
        file.write_text(
            CONFIG.format(
                driver=metastore.driver,
                settings=metastore.lines,
                warehouse=warehouse,
                master=cluster.url,
            )
        )
        arguments = ("--config", str(file), f"--set=engine.master={cluster.url}")
        with running_server(own, *arguments) as server:
            server.wait_for_engine()
            run_as(
                server,
                "ann",
                "CREATE TABLE orders (shop INT, amount BIGINT)",
                "INSERT INTO orders SELECT id % 3, id FROM range(30)",
            )
            yield House(server, cluster, warehouse)


def test_a_large_result_arrives_whole_and_in_order(house: House) -> None:
    with closing(house.server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(f"SELECT id, {TEXT} AS t FROM range({ROWS}) ORDER BY id")
        expected = 0
        while rows := cursor.fetchmany(50_000):
            assert rows[0][0] == expected
            expected += len(rows)
            assert rows[-1] == (expected - 1, str(expected - 1).rjust(100, "x"))
        assert expected == ROWS
    # Twice as many as the cores that spark.cores.max allows
    listing = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
    assert house.run(f"SET {listing}") == [(listing, "2")]
    results = [*house.warehouse.glob(".tidegate/*/results/*/*")]
    assert results == []


@pytest.mark.thorough(4)
def test_executors_read_the_system_tables(house: House) -> None:
    query = (
        "SELECT count(*) FROM information_schema.materialized_tables "
        "WHERE table_name LIKE 'counted%'"
    )
    assert house.run(query) == [(0,)]
    create = "CREATE MATERIALIZED TABLE counted{} FRESHNESS = INTERVAL '1' DAY AS SELECT {} AS a"
    house.run(create.format(1, 1), create.format(2, 2))
    assert house.run(query) == [(2,)]
    house.run(*(f"DROP MATERIALIZED TABLE counted{number}" for number in (1, 2)))
    assert house.run(query) == [(0,)]


@pytest.mark.thorough(4)
def test_a_table_stays_in_the_engine_that_it_chose(house: House) -> None:
    house.run(
        "SET 'execution.mode' = 'remote'",
        "SET 'execution.engine' = 'second'",
        "CREATE MATERIALIZED TABLE sums FRESHNESS = INTERVAL '1' DAY REFRESH_MODE = FULL "
        "AS SELECT shop, sum(amount) AS amount FROM orders GROUP BY shop",
    )
    [(_, info)] = house.run("ALTER MATERIALIZED TABLE sums REFRESH")
    assert info["state"] == "SUCCEEDED"
    assert (info["execution.mode"], info["execution.engine"]) == ("remote", "second")
    second, own = house.second_engine(), house.server.engine_pid
    assert second != own
    listed = [
        ("", "remote", "UP", 0),
        ("second", "remote", "UP", 1),
        ("third", "remote", "DOWN", 0),
    ]
    # On a slow machine it may just have been WAITING.
    wait_until(
        lambda: [(row[0], row[2], row[4], row[5]) for row in house.run("SHOW ENGINES")] == listed,
        "they are not listed",
    )
    assert house.run("SELECT sum(amount) FROM sums") == [(435,)]

    os.kill(second, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(second)] if psutil.pid_exists(second) else [], PATIENCE)
    house.run(
        "ALTER MATERIALIZED TABLE sums SUSPEND",
        "ALTER MATERIALIZED TABLE sums RESUME",
        "INSERT INTO orders VALUES (1, 1000)",
        "ALTER MATERIALIZED TABLE sums REFRESH",
    )
    assert house.run("SELECT sum(amount) FROM sums") == [(1435,)]
    assert house.second_engine() != second
    assert house.server.engine_pid == own
    [verified] = house.run("VERIFY MATERIALIZED TABLE sums")
    assert verified[3] is True


@pytest.mark.thorough(4)
def test_each_refresh_runs_in_the_engine_that_the_table_has_chosen_for_it(house: House) -> None:
    def require_rows(number: int) -> None:
        wait_until(lambda: house.run("SELECT sum(n) FROM moved") == [(number,)], "not refreshed")

    house.run(
        "CREATE TABLE visits (shop INT, n BIGINT)",
        "INSERT INTO visits SELECT id % 3, id FROM range(30)",
        "CREATE MATERIALIZED TABLE moved WITH ('execution.initial-engine' = 'second') "
        "FRESHNESS = INTERVAL '1' SECOND REFRESH_MODE = CONTINUOUS "
        "AS SELECT shop, count(*) AS n FROM visits GROUP BY shop",
    )
    require_rows(30)
    for number, change in enumerate(
        ("SUSPEND", "SET ('execution.engine' = 'second')", "RESET ('execution.engine')"), start=31
    ):
        house.run(f"ALTER MATERIALIZED TABLE moved {change}", "INSERT INTO visits VALUES (1, 1)")
        if change == "SUSPEND":
            house.run("ALTER MATERIALIZED TABLE moved RESUME")
        require_rows(number)
    runs = named_rows(house.server, "SHOW REFRESH HISTORY FOR moved")
    found = [run["execution_target"] for run in runs if run["action"] not in (None, "NO_DATA")]
    assert found == ["embedded", "remote/second", "embedded", "remote/second"]
    [verified] = house.run("VERIFY MATERIALIZED TABLE moved")
    assert verified[3] is True
    house.run("DROP MATERIALIZED TABLE moved", "DROP TABLE visits")


@pytest.mark.thorough(4)
def test_a_killed_executor_is_replaced(house: House) -> None:
    query = "SELECT count(*), max(shop) FROM orders"
    before = house.run(query)
    for executor in house.cluster.executors():
        os.kill(executor, signal.SIGKILL)
    assert house.run(query) == before


@pytest.mark.thorough(4)
def test_an_engine_without_executors_says_for_whom_it_waits(house: House) -> None:
    house.run(
        "CREATE MATERIALIZED TABLE waiting WITH ('execution.initial-engine' = 'second') "
        "FRESHNESS = INTERVAL '1' DAY REFRESH_MODE = FULL AS SELECT count(*) AS n FROM orders",
        "ALTER MATERIALIZED TABLE waiting REFRESH",  # both cores are taken now
        "ALTER MATERIALIZED TABLE waiting SET ('execution.initial-engine' = 'third')",
    )
    with closing(house.server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute_async("ALTER MATERIALIZED TABLE waiting REFRESH FULL")
        wait_until(lambda: ("third", "WAITING") in engine_states(house), "it does not wait")
        [run] = named_rows(house.server, "SHOW REFRESH HISTORY FOR waiting LIMIT 1")
        assert (run["state"], run["execution_target"]) == ("RUNNING", "remote/third")
        assert f"{house.cluster.url} has given the engine third none" in run["strategy_reason_text"]
        with pytest.raises(tidegate.Error, match="CLUSTER_NO_EXECUTORS"):
            cursor.wait()
    assert house.run("SELECT n FROM waiting") == house.run("SELECT count(*) FROM orders")
    house.run("DROP MATERIALIZED TABLE waiting")


def engine_states(house: House) -> list[tuple[object, object]]:
    return [(row[0], row[4]) for row in house.run("SHOW ENGINES")]


def test_an_engine_that_is_not_configured_is_refused(house: House) -> None:
    with pytest.raises(tidegate.Error, match="did you mean second?"):
        house.run("SET 'execution.engine' = 'secnd'")
    create = "CREATE MATERIALIZED TABLE none AS SELECT 1 AS a"
    with pytest.raises(tidegate.Error) as ambiguous:
        house.run("SET 'execution.mode' = 'remote'", create)
    assert "one of second, third" in str(ambiguous.value.hint)
    with pytest.raises(tidegate.Error, match="MT_EXECUTION_MODE"):
        house.run("SET 'execution.mode' = 'yarn-application'")
