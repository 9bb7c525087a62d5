"""A server with an engine for each user: who is in which process, and what that separates."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

import tidegate
from tests.support.fixtures.server import Server, run_as, running_server
from tests.support.metastore import postgres_metastore
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.thorough(4)]  # kills engines of a server of its own

CONFIG = """
[authorization]
enabled = true
administrators = ["root"]
allow = ["paths", "locations"]

[engine]
share = "user"
jars = ["{driver}"]

[engine.own_settings]
"{link}" = "{bobs}"

[engine.users.bob.settings]
"{link}" = "{bobs}"
"spark.hadoop.bobs.password" = {{ file = "{secret}" }}

[engine.settings]
{settings}
"""
LINK = "spark.hadoop.fs.viewfs.mounttable.bobs.link./lake"
"""A file system that exists in engines with this setting: it stands for storage credentials."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("users")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    lake, secret = folder / "lake", folder / "secret"
    lake.mkdir()
    secret.write_text("hush-of-bob")
    secret.chmod(0o600)
    with postgres_metastore(folder) as metastore:
        file = folder / "tidegate.toml"
        text = CONFIG.format(
            driver=metastore.driver,
            link=LINK,
            bobs=f"file://{lake}",
            secret=secret,
            settings=metastore.lines,
        )
        file.write_text(text)
        file.chmod(0o600)
        with running_server(folder, "--config", str(file)) as server:
            server.wait_for_engine()
            run_as(server, "ann", "CREATE SCHEMA ann")
            run_as(
                server,
                "bob",
                "CREATE SCHEMA bob",
                "CREATE TABLE bob.source USING delta LOCATION 'viewfs://bobs/lake/source' "
                "AS SELECT 1 AS a",
                "CREATE MATERIALIZED TABLE bob.total FRESHNESS = INTERVAL '1' DAY "
                "AS SELECT sum(a) AS total FROM bob.source",
            )
            yield server


def engine_of(server: Server, user: str) -> int:
    """Return the process id of a user's engine, started if need be."""
    run_as(server, user, "SELECT 1")
    wait_until(lambda: user in server.ready_info()["engines"], f"{user} has no engine")
    return int(server.ready_info()["engines"][user]["pid"])


def test_users_and_the_gateway_have_processes_of_their_own(server: Server) -> None:
    engines = {engine_of(server, "ann"), engine_of(server, "bob"), server.engine_pid}
    assert len(engines) == 3
    assert engines <= {process.pid for process in server.processes()}


def test_a_killed_engine_hurts_its_user_alone(server: Server) -> None:
    ann, bob = engine_of(server, "ann"), engine_of(server, "bob")
    with closing(server.connect(user="bob")) as bobs, closing(bobs.cursor()) as cursor:
        cursor.execute("CREATE TEMPORARY VIEW kept AS SELECT 7 AS n")
        with closing(server.connect(user="ann")) as anns, closing(anns.cursor()) as hers:
            hers.execute("CREATE TEMPORARY VIEW lost AS SELECT 7 AS n")
            os.kill(ann, signal.SIGKILL)
            cursor.execute("SELECT n FROM kept")
            assert cursor.fetchall() == [(7,)]
            psutil.wait_procs([psutil.Process(ann)] if psutil.pid_exists(ann) else [], PATIENCE)
            with pytest.raises(tidegate.Error, match=r"SESSION_OBJECTS_LOST|ENGINE_LOST"):
                hers.execute("SELECT n FROM lost")
            hers.execute("SELECT 8")
            assert hers.fetchall() == [(8,)]
    assert engine_of(server, "ann") != ann
    assert engine_of(server, "bob") == bob


def test_a_table_is_refreshed_in_its_executors_engine_with_its_settings(server: Server) -> None:
    """Bob's source can be read in engines with bob's settings only."""
    run_as(server, "bob", "INSERT INTO bob.source VALUES (2)")
    run_as(
        server,
        "bob",
        "GRANT SELECT, MODIFY ON TABLE bob.source TO USER ann",
        "GRANT SELECT, REFRESH ON MATERIALIZED TABLE bob.total TO USER ann",
    )
    with pytest.raises(tidegate.Error, match="bobs"):
        run_as(server, "ann", "SELECT * FROM bob.source")
    rows = run_as(
        server,
        "ann",
        "ALTER MATERIALIZED TABLE bob.total REFRESH",
        "SELECT total FROM bob.total",
    )
    assert rows == [(3,)]
    assert run_as(server, "root", "VERIFY MATERIALIZED TABLE bob.total")


def test_a_secret_of_a_user_reaches_that_users_engine_alone(server: Server) -> None:
    engine_of(server, "ann")
    engine_of(server, "bob")
    # Of root's engine, since others do not see such settings at all.
    assert "spark.hadoop.bobs.password" not in {row[0] for row in run_as(server, "root", "SET")}
    for process in server.processes():
        with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
            words = (*process.cmdline(), *process.environ().values())
            assert not any("hush-of-bob" in word for word in words)


def test_a_change_in_one_engine_is_seen_in_another(server: Server) -> None:
    run_as(
        server,
        "ann",
        "CREATE TABLE ann.files USING parquet AS SELECT 1 AS a",
        "GRANT SELECT ON TABLE ann.files TO USER bob",
    )
    with closing(server.connect(user="bob")) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SELECT count(*) FROM ann.files")
        assert cursor.fetchall() == [(1,)]
        run_as(server, "ann", "INSERT INTO ann.files VALUES (2)")
        cursor.execute("SELECT count(*) FROM ann.files")
        assert cursor.fetchall() == [(2,)]


def test_a_long_statement_is_canceled_in_its_users_engine(server: Server) -> None:
    slow = "SELECT count(*) FROM range(100000000000000) WHERE id % 7 = rand()"
    with closing(server.connect(user="ann")) as connection, closing(connection.cursor()) as cursor:
        cursor.execute_async(slow)
        cursor.cancel()
        with pytest.raises(tidegate.Error, match=r"OPERATION_CANCELED|canceled"):
            cursor.fetchall()
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]


def test_no_engine_outlives_a_killed_gateway(server: Server) -> None:
    engine_of(server, "ann")
    engine_of(server, "bob")
    assert len(server.processes()) > 6
    server.kill()
