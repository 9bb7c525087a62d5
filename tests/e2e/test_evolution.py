"""Definitions that change, through a real server: data kept, consumers kept, nothing half done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

import tidegate
from tests.support import full_run
from tests.support.fixtures.server import Run, StartServer, last_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.thorough]

FULL = "FRESHNESS = INTERVAL '1' DAY REFRESH_MODE = FULL"
TOTALS = "SELECT k, sum(n) AS total FROM src GROUP BY k"


@pytest.fixture
def sql(server: Any) -> Iterator[Run]:
    """Executes statements in a schema of its own and returns the rows of the last one."""
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        run = partial(last_rows, cursor)
        run("CREATE SCHEMA evolution", "USE evolution")
        run("CREATE TABLE src (k STRING, n INT) USING delta")
        run("INSERT INTO src VALUES ('a', 1), ('a', 2), ('b', 3)")
        yield run
        run("USE default")
        for row in run("SHOW MATERIALIZED TABLES FROM evolution"):
            run(f"DROP MATERIALIZED TABLE evolution.{row[0]}")
        run("DROP SCHEMA evolution CASCADE")


def wait_until(expected: Any, look: Callable[[], Any], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while (found := look()) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def test_a_source_that_was_created_again_is_a_matter_of_the_data(sql: Callable[..., Any]) -> None:
    words = f"CREATE OR ALTER MATERIALIZED TABLE m {FULL} AS {TOTALS}"
    sql(words, "ALTER MATERIALIZED TABLE m REFRESH")
    sql("DROP TABLE src", "CREATE TABLE src (k STRING, n INT) USING delta")
    sql("INSERT INTO src VALUES ('c', 4)")
    assert sql(f"EXPLAIN {words}") == []
    sql("ALTER MATERIALIZED TABLE m REFRESH")
    assert sql("SELECT * FROM m") == [("c", 4)]
    versions = sql("SHOW VERSIONS m")
    assert sql(f"EXPLAIN {words}") == []
    sql(words, "ALTER MATERIALIZED TABLE m REFRESH")
    assert sql("SHOW VERSIONS m") == versions
    assert len(sql("SHOW VERSIONS m DEFINITION")) == 1


def test_a_full_table_keeps_its_rows_until_it_is_refreshed(sql: Callable[..., Any]) -> None:
    sql(f"CREATE MATERIALIZED TABLE m {FULL} AS {TOTALS}", "ALTER MATERIALIZED TABLE m REFRESH")
    wider = TOTALS.replace("AS total", "AS total, count(*) AS c")
    explained = sql(f"EXPLAIN ALTER MATERIALIZED TABLE m AS {wider}")
    assert [row[3] for row in explained[:-1]] == ["NEXT_REFRESH", "NEXT_REFRESH"]
    assert explained[-1][3] == "DEFINITION_CHANGED"
    assert explained[-1][5] > 0  # seconds, by the refresh before
    sql(f"ALTER MATERIALIZED TABLE m AS {wider}")
    assert sorted(sql("SELECT * FROM m")) == [("a", 3, None), ("b", 3, None)]
    sql("ALTER MATERIALIZED TABLE m REFRESH")
    assert sorted(sql("SELECT * FROM m")) == [("a", 3, 2), ("b", 3, 1)]
    with pytest.raises(tidegate.Error, match="MT_EVOLUTION_UNSUPPORTED"):
        sql(f"ALTER MATERIALIZED TABLE m AS {TOTALS}")
    sql(f"CREATE OR ALTER MATERIALIZED TABLE m {FULL} AS {wider}")
    assert sql(f"EXPLAIN CREATE OR ALTER MATERIALIZED TABLE m {FULL} AS {wider}") == []
    [(printed,)] = sql("SHOW CREATE OR ALTER MATERIALIZED TABLE m")
    assert sql(f"EXPLAIN {printed}") == []


def test_a_continuous_table_serves_the_old_content_until_the_new_is_there(
    sql: Callable[..., Any],
) -> None:
    create = "CREATE OR ALTER MATERIALIZED TABLE m FRESHNESS = INTERVAL '2' SECOND AS "
    sql(create + TOTALS)
    wait_until([("a", 3), ("b", 3)], lambda: sorted(sql("SELECT * FROM m")))
    sql(create + TOTALS.replace("AS total", "AS total, max(n) AS most"))
    assert len(sql("SELECT * FROM m")) == 2
    wait_until([("a", 3, 2), ("b", 3, 3)], lambda: sorted(sql("SELECT * FROM m")))
    sql("ALTER MATERIALIZED TABLE m SET ('k' = 'v')", "INSERT INTO src VALUES ('c', 4)")
    wait_until([("a", 3), ("b", 3), ("c", 4)], lambda: sorted(sql("SELECT k, total FROM m")))


def test_columns_evaluated_on_read_come_and_go_under_a_reader(sql: Callable[..., Any]) -> None:
    sql(f"CREATE MATERIALIZED TABLE m {FULL} AS {TOTALS}", "ALTER MATERIALIZED TABLE m REFRESH")
    sql(f"CREATE MATERIALIZED TABLE reader {FULL} AS SELECT k, total FROM m")
    sql("ALTER MATERIALIZED TABLE m ADD (loud AS upper(k) AFTER k)")
    assert sorted(sql("SELECT * FROM m")) == [("a", "A", 3), ("b", "B", 3)]
    sql("INSERT INTO src VALUES ('b', 10)", "ALTER MATERIALIZED TABLE m REFRESH")
    sql("ALTER MATERIALIZED TABLE reader REFRESH")
    assert sorted(sql("SELECT * FROM reader")) == [("a", 3), ("b", 13)]
    assert "spark_catalog.evolution.m" in {row[1] for row in sql("SHOW LINEAGE reader")}
    sql("ALTER MATERIALIZED TABLE m DROP loud")
    assert sorted(sql("SELECT * FROM m")) == [("a", 3), ("b", 13)]
    sql("INSERT INTO src VALUES ('c', 1)", "ALTER MATERIALIZED TABLE m REFRESH CASCADE")
    assert sorted(sql("SELECT * FROM reader")) == [("a", 3), ("b", 13), ("c", 1)]


def test_a_renamed_table_is_followed_by_its_reader(sql: Callable[..., Any]) -> None:
    sql(f"CREATE MATERIALIZED TABLE m (x AS total + 1) {FULL} AS {TOTALS}")
    sql(f"CREATE MATERIALIZED TABLE reader {FULL} AS SELECT m.k, m.x FROM m")
    sql("ALTER MATERIALIZED TABLE m REFRESH", "ALTER MATERIALIZED TABLE reader REFRESH")
    sql("ALTER MATERIALIZED TABLE m RENAME TO renamed", "INSERT INTO src VALUES ('a', 7)")
    sql("ALTER MATERIALIZED TABLE renamed REFRESH CASCADE")
    assert sorted(sql("SELECT * FROM reader")) == [("a", 11), ("b", 4)]
    with pytest.raises(tidegate.Error, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("SELECT * FROM m")


def test_stored_columns_move_and_widen(sql: Callable[..., Any]) -> None:
    sql(f"CREATE MATERIALIZED TABLE m {FULL} AS SELECT k, n FROM src")
    sql("ALTER MATERIALIZED TABLE m REFRESH", "ALTER MATERIALIZED TABLE m MODIFY n BIGINT FIRST")
    assert sorted(sql("SELECT * FROM m")) == [(1, "a"), (2, "a"), (3, "b")]
    sql("INSERT INTO src VALUES ('c', 4)", "ALTER MATERIALIZED TABLE m REFRESH")
    assert sorted(sql("SELECT * FROM m")) == [(1, "a"), (2, "a"), (3, "b"), (4, "c")]
    assert [row[:2] for row in sql("DESCRIBE m")[:2]] == [("n", "bigint"), ("k", "string")]


def test_a_first_load_begins_where_it_was_told(sql: Callable[..., Any]) -> None:
    sql(
        "CREATE MATERIALIZED TABLE m PARTITIONED BY (ds) WITH ("
        "'partition.fields.ds.date-formatter' = 'yyyy-MM-dd', "
        "'materialized-table.initialize' = 'ON_CREATE') START_MODE = FROM_NOW "
        f"{FULL} AS SELECT 1 AS n, date_format(d, 'yyyy-MM-dd') AS ds FROM VALUES "
        "(current_date()), (current_date() - INTERVAL '40' DAY) AS t(d)"
    )
    assert sql("SELECT count(*) FROM m WHERE ds = date_format(current_date(), 'yyyy-MM-dd')") == [
        (1,)
    ]
    assert sql("SELECT count(*) FROM m") == [(1,)]


@pytest.mark.skipif(not full_run.FULL, reason="for the long run; test_recover loses the store, too")
def test_a_lost_store_is_made_anew_from_the_warehouse(start_server: StartServer) -> None:
    server = start_server()
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("CREATE TABLE src USING delta AS SELECT 'a' AS k, 1 AS n")
        cursor.execute(f"CREATE MATERIALIZED TABLE m (x AS total + 1) {FULL} AS {TOTALS}")
        cursor.execute("ALTER MATERIALIZED TABLE m REFRESH")
    server.stop()
    for file in server.data.glob("store.db*"):
        file.unlink()
    server = start_server("--recover-catalog")
    server.wait_for_engine()
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SHOW MATERIALIZED TABLES")
        assert [row[0] for row in cursor.fetchall()] == ["m"]
        cursor.execute("INSERT INTO src VALUES ('a', 2)")
        cursor.execute("ALTER MATERIALIZED TABLE m RESUME")
        cursor.execute("ALTER MATERIALIZED TABLE m REFRESH")
        cursor.execute("SELECT * FROM m")
        assert [tuple(row) for row in cursor.fetchall()] == [(4, "a", 3)]
