"""Versions that assertions hold, through the whole server."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import tidegate
from tests.support import killed_gateway
from tests.support.fixtures.faults import Faults
from tests.support.fixtures.server import Server, StartServer, named_rows
from tests.support.full_run import FULL
from tests.support.waiting import wait_until
from tidegate_server.core.faults import Point

ENOUGH = "CONSTRAINT enough ASSERT (row_count > 0.5 * previous(row_count)) ON VIOLATION HOLD"
CREATE = "CREATE MATERIALIZED TABLE gated ({}) {} AS SELECT k, n FROM raw"


class Gated:
    """The table in a new schema."""

    def __init__(self, server: Server, schema: str) -> None:
        self.server, self.schema = server, schema

    def __call__(self, *statements: str) -> list[dict[str, object]]:
        return named_rows(self.server, f"USE {self.schema}", *statements)

    def rejection(self, statement: str) -> tidegate.Error:
        with pytest.raises(tidegate.Error) as caught:
            self(statement)
        return caught.value

    def keys(self) -> set[object]:
        return {row["k"] for row in self("SELECT k FROM gated")}

    def held_version(self) -> object:
        return self("SHOW MATERIALIZED TABLES EXTENDED LIKE 'gated'")[0]["held_version"]

    def lag(self) -> dict[str, object]:
        [found] = [row for row in self("SHOW LAG") if row["table"] == "gated"]
        return found

    def last(self) -> dict[str, object]:
        return self("SHOW REFRESH HISTORY FOR gated LIMIT 1")[0]


@pytest.fixture
def gated_table(server: Server) -> Iterator[Gated]:
    named_rows(
        server,
        "CREATE SCHEMA gating",
        "USE gating",
        "CREATE TABLE raw (k STRING, n INT) USING delta",
        "INSERT INTO raw VALUES ('a', 1), ('b', 2), ('c', 3), ('d', 4)",
    )
    yield Gated(server, "gating")
    named_rows(
        server,
        "DROP MATERIALIZED TABLE IF EXISTS gating.gated",
        "DROP SCHEMA gating CASCADE",
    )


@pytest.mark.spark
def test_assertions_that_cannot_be_judged_are_refused(gated_table: Gated) -> None:
    for condition, reason in (
        ("n > 0", "n"),
        ("sum(n)", "BIGINT, not BOOLEAN"),
        ("count(*) > (SELECT count(*) FROM raw)", "reads a table"),
        ("row_count > previous(sum(gone))", "gone"),
    ):
        said = gated_table.rejection(CREATE.format(f"CONSTRAINT c ASSERT ({condition})", ""))
        assert (said.code, reason in str(said)) == ("MT_COLUMN_EXPRESSION", True), str(said)
    assert gated_table("SHOW MATERIALIZED TABLES") == []


@pytest.mark.spark
def test_a_continuous_table_waits_while_a_version_is_held(gated_table: Gated) -> None:
    quarantine = "CONSTRAINT known EXPECT (k IS NOT NULL) ON VIOLATION QUARANTINE"
    # The shortest FRESHNESS: changes within a quarter of it, or a second, are collected.
    continuous = "FRESHNESS = INTERVAL '1' SECOND REFRESH_MODE = CONTINUOUS"
    gated_table(CREATE.format(f"{ENOUGH}, {quarantine}", continuous))
    wait_until(lambda: gated_table.keys() == {"a", "b", "c", "d"}, "the table was never filled")
    gated_table("DELETE FROM raw WHERE n < 4")
    wait_until(gated_table.held_version, "nothing was held")
    assert "row_count is 1, previously 4" in str(gated_table.held_version())
    wait_until(lambda: gated_table.last()["state"] == "FAILED", "the refresh never ended")
    failed = gated_table.last()
    assert failed["error_class"] == "MT_VERSION_HELD"
    # What came since would do, but it is not for the server to decide.
    gated_table("INSERT INTO raw VALUES ('e', 5), ('f', 6), (NULL, 7)")
    time.sleep(3)
    assert gated_table.last()["refresh_id"] == failed["refresh_id"]
    assert gated_table.keys() == {"a", "b", "c", "d"}
    # The longest phase since the change is the cause; at first that may be the refresh.
    wait_until(lambda: gated_table.lag()["cause"] == "HELD", "the table lags for another cause")
    told = [(row["decision"], row["reason_code"]) for row in gated_table("EXPLAIN REFRESH gated")]
    assert told[0] == ("HELD", "VERSION_HELD")
    assert ("CHECK", "ASSERTION") in told
    gated_table("ALTER MATERIALIZED TABLE gated PUBLISH HELD VERSION")
    assert gated_table.held_version() is None
    wait_until(lambda: gated_table.keys() == {"d", "e", "f"}, "the table does not go on")
    assert [row["n"] for row in gated_table("SELECT n FROM gated__quarantine")] == [7]
    shown = gated_table("SHOW VERSIONS gated")
    assert "PUBLISH" in {row["action"] for row in shown}
    # A manual refresh would empty the table: the result is held, and discarded.
    gated_table("ALTER MATERIALIZED TABLE gated SUSPEND", "DELETE FROM raw")
    said = gated_table.rejection("ALTER MATERIALIZED TABLE gated REFRESH")
    assert (said.code, "PUBLISH HELD VERSION" in str(said.hint)) == ("MT_VERSION_HELD", True)
    gated_table("ALTER MATERIALIZED TABLE gated DISCARD HELD VERSION")
    said = gated_table.rejection("ALTER MATERIALIZED TABLE gated PUBLISH HELD VERSION")
    assert said.code == "MT_NOTHING_HELD"
    gated_table("ALTER MATERIALIZED TABLE gated DROP CONSTRAINT enough")
    gated_table("ALTER MATERIALIZED TABLE gated REFRESH")
    assert gated_table.keys() == set()


@pytest.mark.faults
@pytest.mark.skipif(not FULL, reason="part of bin/test --full")
def test_a_death_neither_loses_a_held_version_nor_publishes_it_twice(
    start_server: StartServer, faults: Faults
) -> None:
    def die_at(server: Server, point: Point, statement: str) -> Server:
        again = killed_gateway.die_at(server, point, statement, start_server, faults)
        wait_until(
            lambda: Gated(again, "default").last()["finished_at"], "the run was never settled"
        )
        return again

    server = start_server()
    server.wait_for_engine()
    named_rows(
        server,
        "CREATE TABLE raw (k STRING, n INT) USING delta",
        "INSERT INTO raw VALUES ('a', 1), ('b', 2), ('c', 3)",
        CREATE.format(ENOUGH, "FRESHNESS = INTERVAL '1' DAY"),
        "ALTER MATERIALIZED TABLE gated REFRESH",
        "DELETE FROM raw WHERE n > 1",
    )
    server = die_at(server, Point.BEFORE_COMMIT, "ALTER MATERIALIZED TABLE gated REFRESH")
    gated = Gated(server, "default")
    assert (gated.last()["state"], gated.held_version()) == ("ABANDONED", None)

    server = die_at(server, Point.AFTER_COMMIT, "ALTER MATERIALIZED TABLE gated REFRESH")
    gated = Gated(server, "default")
    assert (gated.last()["error_class"], gated.keys()) == ("MT_VERSION_HELD", {"a", "b", "c"})
    assert "row_count is 1, previously 3" in str(gated.held_version())

    publish = "ALTER MATERIALIZED TABLE gated PUBLISH HELD VERSION"
    server = die_at(server, Point.BEFORE_COMMIT, publish)
    gated = Gated(server, "default")
    assert (gated.last()["state"], gated.keys()) == ("ABANDONED", {"a", "b", "c"})
    assert gated.held_version() is not None

    server = die_at(server, Point.AFTER_COMMIT, publish)
    gated = Gated(server, "default")
    last = gated.last()
    assert (last["state"], last["action"]) == ("SUCCEEDED", "PUBLISH")
    assert (gated.keys(), gated.held_version()) == ({"a"}, None)
    [proof] = gated("VERIFY MATERIALIZED TABLE gated")
    assert proof["equal"] is True
    assert gated.rejection(publish).code == "MT_NOTHING_HELD"
