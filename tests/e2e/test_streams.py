"""Streams through the whole server: taken in as the freshness says, read by other tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tidegate
from tests.support import killed_gateway
from tests.support.fixtures.faults import Faults
from tests.support.fixtures.server import Server, StartServer, named_rows
from tests.support.full_run import FULL
from tests.support.waiting import wait_until
from tidegate_server.core.faults import Point


def arrive(folder: Path, name: str, *values: int) -> None:
    hidden = folder / f".{name}"
    hidden.write_text("\n".join(json.dumps({"a": value}) for value in values))
    hidden.rename(folder / f"{name}.json")


def files(folder: Path) -> str:
    return f"STREAM read_files('{folder}', format => 'json', schema => 'a INT')"


def rejection(server: Server, statement: str) -> tidegate.Error:
    with pytest.raises(tidegate.Error) as caught:
        named_rows(server, statement)
    return caught.value


def last(server: Server, table: str) -> dict[str, object]:
    return named_rows(server, f"SHOW REFRESH HISTORY FOR {table} LIMIT 1")[0]


@pytest.mark.spark
def test_files_are_taken_in_and_read_by_others(server: Server, tmp_path: Path) -> None:
    arrive(tmp_path, "one", 1, 2)

    def total() -> object:
        return named_rows(server, "SELECT n, s FROM arriving.total")

    named_rows(
        server,
        "CREATE SCHEMA arriving",
        "USE arriving",
        "CREATE MATERIALIZED TABLE raw (CONSTRAINT known EXPECT (a <> 7) ON VIOLATION DROP ROW) "
        f"FRESHNESS = INTERVAL '1' SECOND AS SELECT * FROM {files(tmp_path)}",
        "CREATE MATERIALIZED TABLE total FRESHNESS = INTERVAL '1' SECOND "
        "AS SELECT count(*) AS n, sum(a) AS s FROM raw",
    )
    try:
        wait_until(lambda: total() == [{"n": 2, "s": 3}], "nothing was taken in")
        arrive(tmp_path, "two", 4, 7)
        wait_until(lambda: total() == [{"n": 3, "s": 7}], "what arrived later was not taken in")
        named_rows(server, "ALTER MATERIALIZED TABLE arriving.raw SUSPEND")
        wait_until(lambda: last(server, "arriving.raw")["finished_at"], "a refresh never ended")
        arrive(tmp_path, "three", 8)
        [plan] = [
            row
            for row in named_rows(server, "EXPLAIN REFRESH arriving.raw")
            if row["strategy"] == "INGEST"
        ]
        assert plan["reason_code"] == "STREAM"
        named_rows(
            server,
            "ALTER MATERIALIZED TABLE arriving.raw AS SELECT a, a * 2 AS b "
            f"FROM {files(tmp_path)} WHERE a > 0",
        )
        named_rows(server, "ALTER MATERIALIZED TABLE arriving.raw REFRESH")
        assert last(server, "arriving.raw")["action"] == "INGEST"
        rows = named_rows(server, "SELECT * FROM arriving.raw ORDER BY a")
        assert [(row["a"], row["b"]) for row in rows] == [(1, None), (2, None), (4, None), (8, 16)]
        named_rows(server, "ALTER MATERIALIZED TABLE arriving.raw REFRESH")
        assert last(server, "arriving.raw")["action"] == "NO_DATA"
        [shown] = named_rows(server, "SHOW CREATE MATERIALIZED TABLE arriving.raw")
        assert "FROM STREAM read_files(" in str(next(iter(shown.values())))
        lineage = named_rows(server, "SHOW LINEAGE arriving.raw")
        assert any("read_files" in str(row) for row in lineage), lineage
        assert named_rows(server, "DESCRIBE EXTENDED arriving.raw")
        assert named_rows(
            server,
            "EXPLAIN CREATE MATERIALIZED TABLE arriving.other FRESHNESS = INTERVAL '1' DAY "
            f"AS SELECT a FROM {files(tmp_path)}",
        )
        creating = "CREATE MATERIALIZED TABLE arriving.m {} FRESHNESS = INTERVAL '1' DAY AS {}"
        kafka = "STREAM read_kafka(bootstrapServers => 'h:1', subscribe => 't')"
        asserting = "(CONSTRAINT c ASSERT (row_count > 0))"
        for statement, code in (
            ("ALTER MATERIALIZED TABLE arriving.raw REFRESH FULL", "MT_STREAM_UNSUPPORTED"),
            ("ALTER MATERIALIZED TABLE arriving.raw REFRESH WHERE a = 1", "MT_STREAM_UNSUPPORTED"),
            ("VERIFY MATERIALIZED TABLE arriving.raw", "MT_VERIFY_IMPOSSIBLE"),
            ("ALTER MATERIALIZED TABLE arriving.raw AS SELECT 1 AS a, 2 AS b", "MT_STREAM_CHANGED"),
            (creating.format("", f"SELECT max(a) FROM {files(tmp_path)}"), "MT_STREAM_QUERY"),
            (
                creating.format("", "SELECT * FROM read_files('/x', format => 'csv')"),
                "MT_STREAM_UNUSABLE",
            ),
            (creating.format("", f"SELECT * FROM {kafka}"), "MT_STREAM_SOURCE"),
            (
                creating.format(asserting, f"SELECT a FROM {files(tmp_path)}"),
                "MT_STREAM_UNSUPPORTED",
            ),
        ):
            assert rejection(server, statement).code == code, statement
    finally:
        named_rows(
            server,
            "DROP MATERIALIZED TABLE IF EXISTS arriving.total",
            "DROP MATERIALIZED TABLE IF EXISTS arriving.raw",
            "DROP SCHEMA arriving CASCADE",
        )


@pytest.mark.faults
@pytest.mark.skipif(not FULL, reason="part of bin/test --full")
def test_a_death_around_the_commit_loses_and_doubles_nothing(
    start_server: StartServer, faults: Faults, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    arrive(folder, "one", 1)
    server = start_server()
    server.wait_for_engine()
    refresh = "ALTER MATERIALIZED TABLE raw REFRESH"
    named_rows(
        server,
        "CREATE MATERIALIZED TABLE raw FRESHNESS = INTERVAL '1' DAY "
        f"AS SELECT a FROM {files(folder)}",
        refresh,
    )
    for value, point in ((2, Point.BEFORE_COMMIT), (4, Point.AFTER_COMMIT)):
        arrive(folder, str(value), value)
        server = killed_gateway.die_at(server, point, refresh, start_server, faults)
        arrive(folder, str(value + 1), value + 1)
        named_rows(server, refresh)
        rows = named_rows(server, "SELECT a FROM raw ORDER BY a")
        assert [row["a"] for row in rows] == list(range(1, value + 2))
    found = {str(row["state"]) for row in named_rows(server, "SHOW REFRESH HISTORY FOR raw")}
    assert found <= {"SUCCEEDED", "ABANDONED"}  # an orphaned engine may still come to its commit
