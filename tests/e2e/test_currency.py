"""Rows that are too old, and tables that follow their sources, on real tables."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from functools import partial

import pytest

import tidegate
from tests.support.fixtures.server import Rows, Run, Server, last_rows

pytestmark = [pytest.mark.spark, pytest.mark.thorough(4)]

BOUND = "SET 'materialized-table.read.max-staleness' = '{}'"


@pytest.fixture
def run(server: Server) -> Iterator[Run]:
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        execute = partial(last_rows, cursor)
        execute("CREATE SCHEMA currency", "USE currency", "CREATE TABLE ev (n INT) USING DELTA")
        execute("INSERT INTO ev VALUES (1)")
        try:
            yield execute
        finally:
            execute("RESET 'materialized-table.read.max-staleness'")
            for table in ("follows", "top", "mt"):
                execute(f"DROP MATERIALIZED TABLE IF EXISTS currency.{table}")
            execute("DROP SCHEMA currency CASCADE")


def rejection(run: Run, statement: str) -> str:
    """Run a statement until it is refused, and return why."""
    for _ in range(300):
        try:
            run(statement)
        except tidegate.Error as problem:
            assert "MT_TOO_STALE" in str(problem), problem
            return str(problem)
        time.sleep(0.1)
    raise AssertionError(f"{statement} was never refused")


def test_every_way_to_read_keeps_the_bound(run: Run) -> None:
    run(
        "CREATE MATERIALIZED TABLE mt FRESHNESS = INTERVAL '1' DAY AS SELECT n, n + 0 AS m FROM ev",
        "CREATE MATERIALIZED TABLE top FRESHNESS = INTERVAL '1' DAY AS SELECT max(n) AS n FROM mt",
        "CREATE VIEW seen AS SELECT * FROM mt",
        "CREATE TABLE copied (n INT) USING DELTA",
        "ALTER MATERIALIZED TABLE mt REFRESH CASCADE",
    )
    refreshed = time.monotonic()
    time.sleep(3)
    run(BOUND.format("1 s FAIL"))
    assert run("SELECT n FROM top") == [(1,)]
    inserted = time.monotonic()
    run("INSERT INTO ev VALUES (2)")
    reason = rejection(run, "SELECT n FROM mt")
    age = re.search(r"up to (\d+) s ago", reason)
    assert age is not None
    # Counted from the change, not from the refresh before it.
    assert int(age[1]) <= time.monotonic() - inserted + 1 < time.monotonic() - refreshed
    for statement in (
        "SELECT * FROM seen",
        "SELECT n FROM top",
        "WITH w AS (SELECT max(n) AS x FROM mt) SELECT 1 WHERE 1 IN (SELECT x FROM w)",
        "INSERT INTO copied SELECT n FROM seen",
        "CREATE TABLE made USING DELTA AS SELECT n FROM mt",
        "MERGE INTO copied USING mt ON copied.n = mt.n WHEN NOT MATCHED THEN INSERT *",
        "CACHE TABLE kept AS SELECT n FROM mt",
    ):
        rejection(run, statement)
    assert run("SELECT n FROM copied") == []
    run("EXPLAIN SELECT * FROM mt", "CREATE TEMPORARY VIEW other AS SELECT * FROM mt")
    run(BOUND.format("1 s SERVE"))
    assert run("SELECT count(*) FROM seen") == [(1,)]
    run(BOUND.format("1 s REFRESH"), "INSERT INTO copied SELECT n FROM top")
    run("RESET 'materialized-table.read.max-staleness'")
    assert run("SELECT n FROM copied") == [(2,)]
    assert run("SELECT count(*) FROM mt") == [(2,)]


def test_what_is_too_old_is_computed_instead(run: Run) -> None:
    run(
        """CREATE MATERIALIZED TABLE mt FRESHNESS = INTERVAL '1' DAY
        AS SELECT n, CAST(n AS DECIMAL(4,1)) / 2 AS half FROM ev -- all of them""",
        "CREATE MATERIALIZED TABLE top FRESHNESS = INTERVAL '1' DAY AS "
        "SELECT max(n) AS n, count(*) AS c FROM mt",
        "CREATE VIEW seen AS SELECT half AS h FROM mt",
        "CREATE TEMPORARY VIEW mine AS SELECT * FROM mt",
        "CREATE TABLE copied (n INT) USING DELTA",
        "ALTER MATERIALIZED TABLE mt REFRESH CASCADE",
        BOUND.format("1 s FAIL"),
        "INSERT INTO ev VALUES (2)",
    )
    rejection(run, "SELECT n FROM top")
    run(BOUND.format("1 s INLINE"))
    assert run("SELECT * FROM top") == [(2, 2)]
    assert sorted(run("SELECT h FROM seen")) == [(Decimal("0.5"),), (Decimal("1.0"),)]
    assert run("SELECT sum(mt.n) FROM currency.mt JOIN top t ON mt.n = t.n") == [(2,)]
    assert run("WITH mt AS (SELECT 7 AS n) SELECT n FROM mt") == [(7,)]
    place = run("DESCRIBE DETAIL mt")[0][4]
    for statement in (
        "SELECT * FROM mine",
        "INSERT INTO copied SELECT n FROM mt",
        f"SELECT n FROM delta.`{place}`",
    ):
        with pytest.raises(tidegate.NotSupportedError, match="INLINE"):
            run(statement)
    run("RESET 'materialized-table.read.max-staleness'")
    assert run("SELECT * FROM top") == [(1, 1)]
    assert run("SELECT * FROM copied") == []


def test_a_table_with_a_trigger_follows_its_source(run: Run) -> None:
    run(
        "CREATE MATERIALIZED TABLE follows REFRESH_MODE = FULL REFRESH_TRIGGER = ON UPDATE "
        "AT MOST EVERY INTERVAL '2' SECOND AS SELECT sum(n) AS total FROM ev"
    )
    wait_until(run, "SELECT total FROM follows", [(1,)])
    run("INSERT INTO ev VALUES (2)")
    wait_until(run, "SELECT total FROM follows", [(3,)])
    history = run("SHOW REFRESH HISTORY FOR follows")
    assert len(history) == 2
    assert sum("UPSTREAM_CHANGE" in row for row in history) == 1


def wait_until(run: Run, query: str, wanted: Rows) -> None:
    for _ in range(600):
        if run(query) == wanted:
            return
        time.sleep(0.1)
    raise AssertionError(f"{query} is {run(query)}")
