"""Sources that are dropped and created again, and views that come to read something else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

import tidegate
from tests.support.fixtures.server import Run, Server, last_rows
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

DAILY = "FRESHNESS = INTERVAL '1' DAY REFRESH_MODE = FULL AS"


@pytest.fixture
def run(server: Server) -> Iterator[Run]:
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        execute = partial(last_rows, cursor)
        execute("CREATE SCHEMA replaced", "USE replaced", "CREATE TABLE ev (n INT) USING delta")
        execute("INSERT INTO ev VALUES (1)")
        try:
            yield execute
        finally:
            execute("RESET 'materialized-table.read.max-staleness'")
            for table in ("top", "mt"):
                execute(f"DROP MATERIALIZED TABLE IF EXISTS replaced.{table}")
            execute("DROP SCHEMA replaced CASCADE")


def sources(run: Run, table: str = "mt") -> list[str]:
    found = run(
        "SELECT source_name FROM information_schema.materialized_table_lineage "
        f"WHERE table_schema = 'replaced' AND table_name = '{table}' ORDER BY 1"
    )
    return [name for (name,) in found]


def test_what_a_table_created_again_lacks_makes_its_consumer_too_old(run: Run) -> None:
    run(
        f"CREATE MATERIALIZED TABLE mt {DAILY} SELECT n FROM ev",
        f"CREATE MATERIALIZED TABLE top {DAILY} SELECT max(n) AS n FROM mt",
        "ALTER MATERIALIZED TABLE top REFRESH CASCADE",
        "DROP MATERIALIZED TABLE mt",
        f"CREATE MATERIALIZED TABLE mt {DAILY} SELECT n FROM ev",
        "ALTER MATERIALIZED TABLE mt REFRESH",
        "INSERT INTO ev VALUES (2)",
    )
    time.sleep(2)
    run(
        "ALTER MATERIALIZED TABLE top REFRESH",
        "SET 'materialized-table.read.max-staleness' = '1 s FAIL'",
    )
    with pytest.raises(tidegate.Error, match="MT_TOO_STALE"):
        run("SELECT n FROM top")
    run("SET 'materialized-table.read.max-staleness' = '1 s REFRESH'")
    assert run("SELECT n FROM top") == [(2,)]


def test_a_view_may_come_to_read_another_table(run: Run) -> None:
    run(
        "CREATE VIEW seen AS SELECT n FROM ev",
        "CREATE TABLE other (n INT) USING delta",
        "INSERT INTO other VALUES (7)",
        f"CREATE MATERIALIZED TABLE mt {DAILY} SELECT n FROM seen",
        "ALTER MATERIALIZED TABLE mt REFRESH",
    )
    assert sources(run) == ["ev"]
    run(
        "CREATE OR REPLACE VIEW seen AS SELECT n FROM other",
        "DROP TABLE ev",
        "ALTER MATERIALIZED TABLE mt REFRESH",
    )
    assert run("SELECT n FROM mt") == [(7,)]
    assert sources(run) == ["other"]


def test_a_table_that_follows_its_sources_follows_what_a_view_reads_now(run: Run) -> None:
    run(
        "CREATE VIEW seen AS SELECT n FROM ev",
        "CREATE TABLE other (n INT) USING delta",
        "INSERT INTO other VALUES (7)",
        "CREATE MATERIALIZED TABLE mt FRESHNESS = INTERVAL '1' SECOND REFRESH_MODE = CONTINUOUS "
        "AS SELECT n FROM seen",
    )
    wait_until(lambda: run("SELECT n FROM mt") == [(1,)], "the first rows never came")
    run("CREATE OR REPLACE VIEW seen AS SELECT n FROM other", "INSERT INTO ev VALUES (2)")
    wait_until(lambda: run("SELECT n FROM mt") == [(7,)], "the rows of the other table never came")
    run("INSERT INTO other VALUES (8)")
    wait_until(
        lambda: run("SELECT n FROM mt ORDER BY n") == [(7,), (8,)], "a change was not followed"
    )


def test_an_excluded_source_that_was_created_again_stays_excluded(run: Run) -> None:
    run(
        "CREATE TABLE quiet (n INT) USING delta",
        "CREATE MATERIALIZED TABLE mt WITH ('materialized-table.trigger.exclude' = 'quiet') "
        "FRESHNESS = INTERVAL '1' SECOND REFRESH_MODE = CONTINUOUS "
        "AS SELECT n FROM ev UNION ALL SELECT n FROM quiet",
    )
    wait_until(lambda: run("SELECT n FROM mt") == [(1,)], "the first rows never came")
    run(
        "DROP TABLE quiet",
        "CREATE TABLE quiet (n INT) USING delta",
        "INSERT INTO ev VALUES (2)",
    )
    wait_until(lambda: run("SELECT count(*) FROM mt") == [(2,)], "a change was not followed")
    run("INSERT INTO quiet VALUES (3)")
    time.sleep(5)
    assert run("SELECT count(*) FROM mt") == [(2,)]
    run("INSERT INTO ev VALUES (4)")
    wait_until(
        lambda: run("SELECT count(*) FROM mt") == [(4,)], "it was not read with the next change"
    )


def test_files_may_become_a_delta_table(run: Run) -> None:
    run(
        "CREATE TABLE files (n INT) USING parquet",
        "INSERT INTO files VALUES (1)",
        f"CREATE MATERIALIZED TABLE mt {DAILY} SELECT n FROM files",
        "ALTER MATERIALIZED TABLE mt REFRESH",
        "DROP TABLE files",
        "CREATE TABLE files (n INT) USING delta",
        "INSERT INTO files VALUES (2)",
        "ALTER MATERIALIZED TABLE mt REFRESH",
    )
    assert run("SELECT n FROM mt") == [(2,)]
    run("INSERT INTO files VALUES (3)", "ALTER MATERIALIZED TABLE mt REFRESH INCREMENTAL")
    assert run("SELECT n FROM mt ORDER BY n") == [(2,), (3,)]
