"""Changes of materialized tables, which a job writes into other systems."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import tidegate
from tests.support.databases import driver_jars
from tests.support.fixtures.server import (
    Server,
    StartServer,
    last_rows,
    named_rows,
    run_as,
    running_job,
)
from tests.support.full_run import FULL
from tests.support.waiting import wait_until

Rows = list[tuple[object, ...]]
EVERY_SECOND = "SET 'execution.checkpointing.interval' = '1 s'"
DAILY = "FRESHNESS = INTERVAL '1' DAY"
TOTALS = "SELECT who, sum(amount) AS total FROM orders GROUP BY who"
SETUP = (
    "CREATE TABLE orders (id INT, who STRING, amount INT)",
    "INSERT INTO orders VALUES (1, 'ann', 5), (2, 'ann', 15), (3, 'bob', 20), (4, 'cyd', 1)",
    f"CREATE MATERIALIZED TABLE totals {DAILY} REFRESH_MODE = INCREMENTAL AS {TOTALS}",
    "ALTER MATERIALIZED TABLE totals REFRESH",
)
REFRESH = "ALTER MATERIALIZED TABLE totals REFRESH"
"""Rows of the target are those of the table with more than 10."""
STEPS = (
    (
        "INSERT INTO orders VALUES (5, 'dan', 30), (6, 'cyd', 30)",
        "DELETE FROM orders WHERE id = 3",
        "UPDATE orders SET amount = 16 WHERE id = 2",
        REFRESH,
    ),
    (
        "UPDATE orders SET who = 'eve' WHERE id = 5",
        REFRESH,
        "INSERT INTO orders VALUES (7, 'bob', 11)",
        "DELETE FROM orders WHERE id = 2",
        REFRESH,
    ),
    ("UPDATE orders SET amount = amount + 1", f"{REFRESH} FULL"),
)


def follow(server: Server, target: Callable[[], Rows]) -> None:
    """Change the table, and wait until the target equals what the job selects of it."""

    def equal() -> bool:
        try:
            rows = run_as(server, "root", "SELECT who, total FROM totals WHERE total > 10")
            return sorted(rows) == sorted(target())
        except tidegate.Error as problem:
            if problem.code in ("ENGINE_LOST", "ENGINE_UNAVAILABLE"):
                return False
            raise

    def settle(what: str) -> None:
        wait_until(equal, f"{what}: the target is another")

    settle("at first")
    for number, statements in enumerate(STEPS):
        if number == 1:  # the next changes come while no job runs
            engine = server.wait_for_engine()
            for pid in (engine["pid"], engine["jvm_pid"]):
                os.kill(pid, signal.SIGKILL)
            server.wait_for_engine(other_than=engine["pid"])
        run_as(server, "root", *statements)
        settle(f"step {number}")


@pytest.mark.faults
@pytest.mark.thorough(5)
def test_a_database_equals_a_table_though_the_engine_dies(
    start_server: StartServer, tmp_path: Path
) -> None:
    config, file = tmp_path / "tidegate.toml", tmp_path / "shop.db"
    [sqlite] = [jar for jar in driver_jars() if "sqlite" in jar]
    config.write_text(f"[engine]\njars = {json.dumps([sqlite])}\n")
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE sunk (who TEXT PRIMARY KEY, total INTEGER)")
        database.commit()

    def sunk() -> Rows:
        with closing(sqlite3.connect(file)) as database:
            return database.execute("SELECT who, total FROM sunk").fetchall()

    server = start_server("--config", str(config))
    server.wait_for_engine()
    run_as(
        server,
        "root",
        *SETUP,
        f"CREATE CONNECTION lite TYPE jdbc OPTIONS (url 'jdbc:sqlite:{file}', "
        "driver 'org.sqlite.JDBC')",
        "CREATE TABLE sunk (who STRING, total BIGINT, PRIMARY KEY (who) NOT ENFORCED) WITH "
        "('connector' = 'jdbc', 'connection' = 'lite', 'table-name' = 'sunk')",
        "CREATE TABLE log (who STRING, kind STRING, version BIGINT)",
        "CREATE TABLE added (who STRING)",
        "CREATE TABLE shown (who STRING) WITH ('connector' = 'print')",
        "CREATE TABLE made (who STRING) WITH ('connector' = 'datagen')",
        EVERY_SECOND,
        "BEGIN STATEMENT SET",
        "INSERT INTO sunk SELECT who, total FROM STREAM totals WHERE total > 10",
        "INSERT INTO log SELECT who, _change_type, _commit_version FROM STREAM totals",
        "END",
        "INSERT INTO added SELECT who FROM STREAM totals WHERE total > 10",
        "INSERT INTO shown SELECT who FROM STREAM totals WITH ('startingVersion' = 'latest')",
    )
    follow(server, sunk)
    jobs = named_rows(server, "SHOW JOBS")
    [failed] = [job for job in jobs if job["status"] == "FAILED"]
    assert failed["job name"].endswith("added")
    assert "JOB_CHANGES_UNWRITABLE" in failed["message"]
    assert "updates or deletes rows" in failed["message"]
    assert "upsert-kafka" in failed["message"]
    added = {who for (who,) in run_as(server, "root", "SELECT who FROM added")}
    assert {"ann", "bob"} <= added
    kinds = "SELECT DISTINCT kind FROM log WHERE who = 'bob' ORDER BY 1"
    assert [kind for (kind,) in run_as(server, "root", kinds)][0] == "delete"
    printed = "".join(path.read_text("utf-8") for path in server.data.rglob("print.log"))
    assert "-D[bob]" in printed
    assert "+I[dan]" in printed
    for statement, words in (
        ("INSERT INTO sunk (total) SELECT total FROM STREAM totals", "by its key (who)"),
        ("INSERT INTO log SELECT *, _change_type, 1L FROM STREAM totals", "cannot be in one query"),
        ("INSERT INTO made SELECT who FROM STREAM totals", "of the connector datagen"),
        ("INSERT INTO added SELECT max(who) FROM STREAM totals", "an aggregate"),
        ("SELECT * FROM STREAM totals", "STREAM totals in this statement"),
        (f"CREATE MATERIALIZED TABLE m {DAILY} AS SELECT * FROM STREAM totals", "leave out STREAM"),
    ):
        with pytest.raises(tidegate.Error) as caught:
            run_as(server, "root", statement)
        assert words in str(caught.value)
    run_as(server, "root", *(f"STOP JOB '{job['job id']}'" for job in jobs))


@pytest.mark.spark
@pytest.mark.skipif(not FULL, reason="fetches Kafka's broker")
def test_a_compacted_topic_equals_a_table_though_the_engine_dies(
    start_server: StartServer, broker: str
) -> None:
    server = start_server("--set=engine.kafka=true")
    server.wait_for_engine()
    run_as(
        server,
        "root",
        *SETUP,
        "CREATE TABLE topic (who STRING, total BIGINT, PRIMARY KEY (who) NOT ENFORCED) WITH "
        f"('connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = '{broker}'"
        ", 'key.format' = 'json', 'value.format' = 'json')",
        "INSERT INTO topic VALUES ('ann', 0)",  # the topic begins to exist
        EVERY_SECOND,
        "INSERT INTO topic SELECT who, total FROM STREAM totals WHERE total > 10",
    )
    follow(server, lambda: run_as(server, "root", "SELECT who, total FROM topic"))
    nothing = f"read_kafka(bootstrapServers => '{broker}', subscribe => 't') WHERE value IS NULL"
    keys = f"SELECT DISTINCT CAST(key AS STRING) FROM {nothing}"
    assert ('{"who":"bob"}',) in run_as(server, "root", keys)


@pytest.mark.spark
def test_changes_are_read_with_the_right_to_select(guarded_server: Server) -> None:
    run_as(
        guarded_server,
        "root",
        "CREATE SCHEMA changes",
        "CREATE TABLE changes.t (id INT)",
        "CREATE TABLE changes.copy (id INT)",
        "INSERT INTO changes.t VALUES (1)",
        "GRANT USAGE ON SCHEMA changes TO USER ann",
        "GRANT MODIFY, SELECT ON TABLE changes.copy TO USER ann",
    )
    insert = "INSERT INTO changes.copy SELECT * FROM STREAM changes.t"
    with (
        closing(guarded_server.connect(user="ann")) as connection,
        connection.cursor() as cursor,
    ):
        with pytest.raises(tidegate.Error, match=r"changes\.t"):
            last_rows(cursor, EVERY_SECOND, insert)
        run_as(guarded_server, "root", "GRANT SELECT ON TABLE changes.t TO USER ann")
        last_rows(cursor, insert)
        run_as(
            guarded_server,
            "root",
            "INSERT INTO changes.t VALUES (2)",
            "ALTER TABLE changes.t ADD COLUMN more INT",
            "INSERT INTO changes.t VALUES (3, 3)",
        )
        wait_until(
            lambda: sorted(last_rows(cursor, "SELECT id FROM changes.copy")) == [(1,), (2,), (3,)],
            "no rows came",
        )
        last_rows(cursor, f"STOP JOB '{running_job(guarded_server, 'ann')}'")
    run_as(guarded_server, "root", "DROP SCHEMA changes CASCADE")
