"""INSERTs over streams: jobs that go on without their client, each row once, until stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import tidegate
from tests.support.fixtures.server import (
    Server,
    last_rows,
    run_as,
    running_job,
    running_tasks,
)
from tests.support.waiting import wait_until

ROWS = 40
GENERATOR = """CREATE TEMPORARY TABLE log (id INT, title STRING, day AS current_date()) WITH (
  'connector' = 'faker', 'rows-per-second' = '20',
  'fields.id.expression' = '#{number.numberBetween ''0'',''1000''}',
  'fields.title.expression' = '#{book.title}'
)"""


def arrive(folder: Path, number: int) -> None:
    """Let a file arrive, with ROWS rows that no other file has."""
    rows = (f'{{"id": {number * ROWS + n}}}\n' for n in range(ROWS))
    hidden = folder / f".{number}"
    hidden.write_text("".join(rows))
    hidden.rename(folder / f"{number}.json")


def count_and_distinct(server: Server, table: str) -> tuple[int, int]:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        try:
            [row] = last_rows(cursor, f"SELECT count(*), count(DISTINCT id) FROM {table}")
        except tidegate.Error as problem:
            if problem.code in ("ENGINE_LOST", "ENGINE_UNAVAILABLE"):
                return (-1, -1)
            raise
    return row


@pytest.mark.faults
def test_each_row_arrives_once_though_engine_and_gateway_die(
    start_server: Callable[..., Server], tmp_path: Path
) -> None:
    """INSERTs over streams go on, those over tables are not repeated."""
    folder = tmp_path / "arriving"
    folder.mkdir()
    server = start_server()

    def all_there(files: int) -> None:
        wanted = (files * ROWS, files * ROWS)
        wait_until(lambda: count_and_distinct(server, "target") == wanted, f"{files} files", 120)

    def submit_endless() -> str:
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            last_rows(cursor, "SET 'table.dml-sync' = 'false'")
            [(job,)] = last_rows(cursor, ENDLESS.format(table="once"))
        wait_until(lambda: running_tasks(server) > 0, "no task", 60)
        return str(job)

    arrive(folder, 0)
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        last_rows(
            cursor,
            "SET 'execution.checkpointing.interval' = '1 s'",
            "CREATE TABLE target (id INT) USING delta",
            "CREATE TABLE once (n BIGINT) USING delta",
            f"INSERT INTO target SELECT id FROM STREAM read_files('{folder}', format => 'json')",
        )
    all_there(1)
    first = submit_endless()
    engine = server.wait_for_engine()
    arrive(folder, 1)
    for pid in (engine["pid"], engine["jvm_pid"]):
        os.kill(pid, signal.SIGKILL)
    arrive(folder, 2)
    all_there(3)
    second = submit_endless()
    arrive(folder, 3)
    server.kill()
    server = start_server()
    arrive(folder, 4)
    all_there(5)
    for interrupted in (first, second):
        status, message = status_of(server, "root", interrupted)
        assert (status, message[:17]) == ("FAILED", "[JOB_INTERRUPTED]")
    assert run_as(server, "root", "SELECT count(*) FROM once") == [(0,)]
    job = running_job(server, "root")
    run_as(server, "root", f"STOP JOB '{job}'")
    arrive(folder, 5)
    assert status_of(server, "root", job)[0] == "STOPPED"
    assert count_and_distinct(server, "target") == (5 * ROWS, 5 * ROWS)


@pytest.mark.spark
def test_a_job_has_the_privileges_of_its_owner(guarded_server: Server) -> None:
    run_as(
        guarded_server,
        "root",
        "CREATE SCHEMA jobs",
        "CREATE TABLE jobs.logged (id INT, title STRING) USING delta",
        "CREATE TABLE jobs.counted (id INT) USING delta",
        "GRANT USAGE ON SCHEMA jobs TO USER ann",
    )
    with (
        closing(guarded_server.connect(user="ann")) as connection,
        connection.cursor() as cursor,
    ):
        insert = "INSERT INTO jobs.logged SELECT id, title FROM log"
        last_rows(cursor, "SET 'execution.checkpointing.interval' = '3 s'", GENERATOR)
        with pytest.raises(tidegate.Error, match="jobs.logged"):
            cursor.execute(insert)
        assert last_rows(cursor, "SHOW JOBS") == []
        run_as(guarded_server, "root", "GRANT MODIFY, SELECT ON TABLE jobs.logged TO USER ann")
        for text, place in (
            ("INSERT INTO jobs.logged\n SELECT id, nope FROM log", "(line 2, column 13)"),
            ("INSERT INTO jobs.nothing SELECT id FROM log", "(line 1, column 13)"),
            ("INSERT INTO jobs.logged (id, nope) SELECT id, title FROM log", "nope"),
        ):
            with pytest.raises(tidegate.Error) as wrong:
                cursor.execute(text)
            assert place in str(wrong.value)
        last_rows(cursor, "BEGIN STATEMENT SET", insert)
        cursor.execute("INSERT INTO jobs.counted SELECT id FROM log WHERE id < 500")
        with pytest.raises(tidegate.Error, match="jobs.counted"):
            cursor.execute("END")
        assert last_rows(cursor, "SHOW JOBS") == []
        run_as(guarded_server, "root", "GRANT MODIFY, SELECT ON TABLE jobs.counted TO USER ann")
        last_rows(
            cursor,
            "BEGIN STATEMENT SET",
            insert,
            "INSERT INTO jobs.counted SELECT id FROM log WHERE id < 500",
            "END",
        )
        [(job, *_)] = last_rows(cursor, "SHOW JOBS")
    # The client and its temporary table are gone; the job is not.
    counts = "SELECT (SELECT count(*) FROM jobs.logged), (SELECT count(*) FROM jobs.counted)"
    wait_until(lambda: all(run_as(guarded_server, "ann", counts)[0]), "no rows came", 60)
    assert run_as(guarded_server, "bob", "SHOW JOBS") == []
    with pytest.raises(tidegate.Error, match="There is no job"):
        run_as(guarded_server, "bob", f"STOP JOB '{job}'")
    run_as(guarded_server, "ann", f"STOP JOB '{job}'")
    run_as(guarded_server, "root", "DROP SCHEMA jobs CASCADE")


ENDLESS = """INSERT INTO {table} SELECT count(*)
FROM range(0, 100000000, 1, 1) CROSS JOIN range(0, 100000000, 1, 1)"""
"""One task, which leaves cores to others."""


def status_of(server: Server, user: str, job: str) -> tuple[str, str]:
    """Return the status and the message of a job."""
    [found] = [row for row in run_as(server, user, "SHOW JOBS") if row[0] == job]
    return found[2], found[5] or ""


@pytest.mark.spark
def test_an_insert_outlives_its_session(guarded_server: Server) -> None:
    server = guarded_server
    run_as(
        server,
        "root",
        "CREATE SCHEMA later",
        "CREATE TABLE later.t (n BIGINT) USING delta",
        "CREATE MATERIALIZED TABLE later.kept FRESHNESS = INTERVAL '1' DAY "
        "AS SELECT n FROM later.t",
        "GRANT USAGE ON SCHEMA later TO USER abe",
        "GRANT ALL PRIVILEGES ON MATERIALIZED TABLE later.kept TO USER abe",
    )
    with closing(server.connect(user="abe")) as connection, connection.cursor() as cursor:
        last_rows(
            cursor,
            "SET 'table.dml-sync' = 'false'",
            "SET spark.sql.shuffle.partitions = 3",
            "CREATE TEMPORARY VIEW numbers AS SELECT id FROM range(7)",
            "DECLARE VARIABLE least INT DEFAULT 2",
        )
        insert = "INSERT INTO t SELECT id FROM numbers WHERE id >= least"
        with pytest.raises(tidegate.Error, match="later.t"):
            cursor.execute(insert.replace("INTO t", "INTO later.t"))
        assert last_rows(cursor, "SHOW JOBS") == []
        run_as(server, "root", "GRANT MODIFY, SELECT ON TABLE later.t TO USER abe")
        last_rows(cursor, "USE later")
        with pytest.raises(tidegate.Error, match="nope"):
            cursor.execute("INSERT INTO t SELECT nope FROM numbers")
        with pytest.raises(tidegate.Error, match="is a materialized table"):
            cursor.execute("INSERT INTO kept SELECT id FROM numbers")
        [(good,)] = last_rows(cursor, insert)
        [(bad,)] = last_rows(cursor, "INSERT INTO t SELECT raise_error('of the day') FROM numbers")
        last_rows(cursor, "DROP VIEW numbers", "USE default")
    # The session is gone; the jobs are not.
    wait_until(lambda: status_of(server, "abe", good)[0] == "FINISHED", "it does not finish", 60)
    assert sorted(run_as(server, "abe", "SELECT n FROM later.t")) == [(n,) for n in range(2, 7)]
    assert dict(run_as(server, "abe", f"DESCRIBE JOB '{good}'"))["rows"] == "5"
    wait_until(lambda: status_of(server, "abe", bad)[0] == "FAILED", "it does not fail", 60)
    assert "of the day" in status_of(server, "abe", bad)[1]
    assert run_as(server, "bob", "SHOW JOBS") == []
    [(long,)] = run_as(
        server, "abe", "SET 'table.dml-sync' = 'false'", ENDLESS.format(table="later.t")
    )
    wait_until(
        lambda: "tasks" in dict(run_as(server, "abe", f"DESCRIBE JOB '{long}'")), "no task", 60
    )
    run_as(server, "abe", f"STOP JOB '{long}'")
    assert status_of(server, "abe", long)[0] == "STOPPED"
    wait_until(lambda: running_tasks(server) == 0, "its tasks go on", 30)
    assert run_as(server, "abe", "SELECT count(*) FROM later.t") == [(5,)]
    run_as(server, "root", "DROP MATERIALIZED TABLE later.kept", "DROP SCHEMA later CASCADE")
