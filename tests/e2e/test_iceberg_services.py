"""Catalogs of Iceberg whose tables a service knows: a database, a Hive Metastore, a REST server."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.support.fixtures.server import Server, run_as, running_server
from tests.support.full_run import FULL
from tests.support.hive_metastore import running_hive_metastore
from tests.support.iceberg_rest import running_rest_catalog
from tests.support.metastore import DRIVER
from tests.support.postgres import (
    USER,
    free_port,
    postgres_programs,
    require_password,
    running_postgres,
)
from tidegate_server.engine.jvm.jars import fetch_jars
from tidegate_server.gateway.link.java import find_java

pytestmark = [
    pytest.mark.faults,  # a server of its own
    pytest.mark.skipif(not FULL, reason="starts a server and three services"),
]

HUSH = "h1sh-hish"
CONFIG = """
[authorization]
enabled = true
administrators = ["root"]

[options]
"materialized-table.initialize" = "ON_CREATE"

[engine]
iceberg = true
jars = {drivers}

[secrets]
lake = {{ file = "{secret}" }}
user = "iceberg"
"""
KINDS = ("jdbc", "rest", "hive")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the driver of PostgreSQL."""
    folder = tmp_path_factory.mktemp("services")
    drivers = fetch_jars([DRIVER], str(find_java().home))
    secret, file = folder / "secret", folder / "tidegate.toml"
    secret.write_text(HUSH)
    secret.chmod(0o600)
    file.write_text(CONFIG.format(drivers=json.dumps([str(drivers[0])]), secret=secret))
    with running_server(folder, "--config", str(file)) as server:
        server.wait_for_engine()
        yield server


@contextmanager
def _database(folder: Path) -> Iterator[dict[str, str]]:
    programs = postgres_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    port = free_port()
    with running_postgres(programs, port) as directory:
        where = f"host={directory} port={port} user={USER} dbname=postgres"
        with psycopg.connect(where, autocommit=True) as database:
            database.execute(f"CREATE ROLE iceberg LOGIN PASSWORD '{HUSH}'")
            database.execute("CREATE DATABASE lake OWNER iceberg")
            require_password(directory)
            database.execute("SELECT pg_reload_conf()")
        yield {
            "uri": f"jdbc:postgresql://127.0.0.1:{port}/lake",
            "jdbc.user": "${secret:user}",
            "jdbc.password": "${secret:lake}",
        }


@contextmanager
def _service(kind: str, folder: Path) -> Iterator[dict[str, str]]:
    """Start the service of a catalog; yield the options that lead to it."""
    if kind == "jdbc":
        with _database(folder) as options:
            yield options
    else:
        running = {"rest": running_rest_catalog, "hive": running_hive_metastore}[kind]
        # A metastore whose database was not created by Hive's scripts has no tables for locks.
        unlocked = {"table-default.engine.hive.lock-enabled": "false"} if kind == "hive" else {}
        with running(folder) as uri:
            yield {"uri": uri, **unlocked}


@pytest.mark.parametrize("kind", KINDS)
def test_a_service_knows_the_tables(server: Server, tmp_path: Path, kind: str) -> None:
    with _service(kind, tmp_path) as options:
        given = {
            "type": "iceberg",
            "catalog-type": kind,
            "warehouse": str(tmp_path / "warehouse"),
            **options,
        }
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
        run_as(
            server,
            "root",
            f"CREATE CATALOG {kind} WITH ({listed})",
            f"GRANT ALL ON CATALOG {kind} TO USER ann",
        )
        run_as(
            server,
            "ann",
            f"CREATE SCHEMA {kind}.sales",
            f"CREATE TABLE {kind}.sales.orders (id INT, k STRING, amount INT)",
            f"INSERT INTO {kind}.sales.orders VALUES (1, 'a', 10), (2, 'b', 20)",
            f"CREATE MATERIALIZED TABLE {kind}.sales.totals FRESHNESS = INTERVAL '1' DAY "
            "REFRESH_MODE = INCREMENTAL AS "
            f"SELECT k, sum(amount) AS amount FROM {kind}.sales.orders GROUP BY k",
            f"INSERT INTO {kind}.sales.orders VALUES (3, 'a', 5)",
        )
        _require_incremental(server, kind, [("a", 15), ("b", 20)])
        _require_no_secret(server, kind)
        # What another engine sees is what the service has.
        engine = server.wait_for_engine()
        os.kill(engine["jvm_pid"], signal.SIGKILL)
        server.wait_for_engine(other_than=engine["pid"])
        run_as(server, "ann", f"INSERT INTO {kind}.sales.orders VALUES (4, 'b', 1)")
        _require_incremental(server, kind, [("a", 15), ("b", 21)])
        assert run_as(server, "ann", f"SHOW TABLES IN {kind}.sales LIKE 'o*'") == [
            ("sales", "orders", False)
        ]
        run_as(
            server,
            "ann",
            f"DROP MATERIALIZED TABLE {kind}.sales.totals",
            f"DROP TABLE {kind}.sales.orders",
            f"DROP SCHEMA {kind}.sales",
        )
        assert ("sales",) not in run_as(server, "ann", f"SHOW SCHEMAS IN {kind}")
        run_as(server, "root", f"DROP CATALOG {kind}")


def _require_incremental(server: Server, kind: str, rows: list[tuple[str, int]]) -> None:
    name = f"{kind}.sales.totals"
    run_as(server, "ann", f"ALTER MATERIALIZED TABLE {name} REFRESH")
    assert run_as(server, "ann", f"SELECT * FROM {name} ORDER BY k") == rows
    [verified] = run_as(server, "ann", f"VERIFY MATERIALIZED TABLE {name}")
    assert verified[3] is True
    history = run_as(server, "ann", f"SHOW REFRESH HISTORY FOR {name} LIMIT 1")
    assert "INCREMENTAL" in str(history)


def _require_no_secret(server: Server, kind: str) -> None:
    shown = [
        run_as(server, "root", f"DESCRIBE CATALOG EXTENDED {kind}"),
        run_as(server, "root", f"SHOW CREATE CATALOG {kind}"),
        run_as(server, "ann", "SET"),
    ]
    assert HUSH not in str(shown)
    logs = [file for file in (server.data / "logs").glob("*") if file.is_file()]
    assert not [file for file in logs if HUSH in file.read_text(errors="replace")]
