"""A user who is no administrator does everyday work with the privileges it was granted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidegate
from tests.engine.oracle.decision_support import Benchmark
from tests.support.fixtures.server import Server, run_as
from tests.support.full_run import FULL

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(3600 if FULL else 900),
    pytest.mark.thorough(4),
]

CREATE = (
    "CREATE MATERIALIZED TABLE reports.{} FRESHNESS = INTERVAL '1' DAY REFRESH_MODE = FULL AS {}"
)
SOME = (1, 22)
"""Queries of TPC-H for a short run: an aggregate and an anti-join."""
SCALE = 0.01 if FULL else 0.001
"""60,000 rows of lineitem, or 6,000; each of the queries has rows at either scale."""


@pytest.fixture(scope="module")
def house(guarded_server: Server) -> Iterator[Server]:
    """A server on which ann owns the schema reports, and nothing else."""
    run_as(guarded_server, "ann", "CREATE SCHEMA reports")
    yield guarded_server
    known = {schema for (schema,) in run_as(guarded_server, "root", "SHOW SCHEMAS")}
    for schema in known & {"reports", "flights", "tpch", "tpcds"}:
        tables = run_as(guarded_server, "root", f"SHOW MATERIALIZED TABLES IN {schema}")
        dropped = [f"DROP MATERIALIZED TABLE {schema}.{name}" for (name,) in tables]
        run_as(guarded_server, "root", *dropped, f"DROP SCHEMA {schema} CASCADE")
    run_as(guarded_server, "root", "DROP EXTERNAL LOCATION IF EXISTS staging")


def load(server: Server, benchmark: Benchmark, folder: Path) -> None:
    """Make the tables of a benchmark as an administrator."""
    run_as(server, "root", f"CREATE SCHEMA {benchmark.name}")
    for table, file in benchmark.export(folder):
        name = f"{benchmark.name}.{table}"
        run_as(server, "root", f"CREATE TABLE {name} USING delta AS SELECT * FROM parquet.`{file}`")


def test_tpch_as_materialized_tables_of_an_ordinary_user(house: Server, tmp_path: Path) -> None:
    benchmark = Benchmark("tpch", SCALE)
    load(house, benchmark, tmp_path)
    queries = benchmark.queries("tpch.")
    chosen = queries if FULL else {number: queries[number] for number in SOME}
    first = CREATE.format("q1", queries[1])
    with pytest.raises(tidegate.Error, match="SELECT on table"):
        run_as(house, "ann", first)
    run_as(house, "root", "GRANT SELECT ON SCHEMA tpch TO USER ann")
    for number, query in chosen.items():
        run_as(house, "ann", CREATE.format(f"q{number}", query))
    growth = "INSERT INTO tpch.lineitem SELECT * FROM tpch.lineitem WHERE l_orderkey < 99"
    for how, before in (("FULL", ()), ("INCREMENTAL", (growth,))):
        run_as(house, "root", *before)
        for number, query in chosen.items():
            name = f"reports.q{number}"
            [run] = run_as(house, "ann", f"ALTER MATERIALIZED TABLE {name} REFRESH {how}")
            if number == 1:
                assert run[1]["action"] == how
            [verified] = run_as(house, "ann", f"VERIFY MATERIALIZED TABLE {name}")
            assert verified[3] is True
            assert run_as(house, "ann", f"SELECT count(*) FROM {name}") == run_as(
                house, "root", f"SELECT count(*) FROM ({query})"
            )
    with pytest.raises(tidegate.Error, match="SELECT on materialized table"):
        run_as(house, "eve", "SELECT * FROM reports.q1")
    run_as(house, "root", "REVOKE SELECT ON SCHEMA tpch FROM USER ann")
    with pytest.raises(tidegate.Error, match="SELECT on table"):
        run_as(house, "ann", "ALTER MATERIALIZED TABLE reports.q1 REFRESH FULL")


@pytest.mark.skipif(not FULL, reason="for the long run")
def test_tpcds_queries_of_an_ordinary_user(house: Server, tmp_path: Path) -> None:
    benchmark = Benchmark("tpcds", SCALE)
    load(house, benchmark, tmp_path)
    run_as(house, "root", "GRANT SELECT ON SCHEMA tpcds TO USER ann")
    different = []
    for number, query in benchmark.queries("tpcds.").items():
        counted = f"SELECT count(*) FROM ({query})"
        if run_as(house, "ann", counted) != run_as(house, "root", counted):
            different.append(number)
    assert different == []


def test_the_demo_runs_with_a_schema_and_files_that_were_granted(
    house: Server, tmp_path: Path
) -> None:
    staging = tmp_path / "staging"
    staging.mkdir()
    run_as(
        house,
        "root",
        f"CREATE EXTERNAL LOCATION staging URL 'file:{staging}'",
        "GRANT READ FILES ON EXTERNAL LOCATION staging TO USER demo",
    )
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "tidegate_server.gateway.demo"),
            *("--host", house.host, "--port", str(house.port), "--staging", str(staging)),
            *("--history", "1", "--days", "1", "--seconds-per-day", "0", "--once"),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    assert "everything that arrived is in both tables" in ended.stdout
    [(owner,)] = run_as(
        house,
        "root",
        "SELECT owner FROM information_schema.materialized_tables WHERE table_name = 'dws_delays'",
    )
    assert owner == "demo"
