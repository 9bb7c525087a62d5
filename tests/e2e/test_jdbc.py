"""Hive's JDBC drivers 3.1 to 4.1 take this server for the real one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.fixtures.jdbc import Ask
from tests.support.fixtures.server import Server

pytestmark = [pytest.mark.spark, pytest.mark.jdbc]

VALUES = (
    "SELECT 1 AS i, 'x' AS s, CAST(1.5 AS DECIMAL(10,2)) AS d, CAST(0.1 AS FLOAT) AS f, "
    "array(1, 2) AS a, map(1, 'v') AS m, named_struct('k', null) AS st, "
    "TIMESTAMP'2024-01-01 00:00:00.25' AS ts, DATE'2024-02-29' AS dt, INTERVAL '1' DAY AS iv, "
    "INTERVAL '1' YEAR AS iy, true AS b, CAST(NULL AS INT) AS nothing"
)


@pytest.fixture(scope="module")
def table(server: Server) -> Iterator[str]:
    """A materialized table with a key and a comment, over a source, in a new schema; no test
    refreshes it."""
    name = f"jdbc_{uuid.uuid4().hex[:8]}"
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(f"CREATE SCHEMA {name}")
        cursor.execute(f"CREATE TABLE {name}.src (id INT NOT NULL, v STRING) USING DELTA")
        cursor.execute(
            f"CREATE MATERIALIZED TABLE {name}.mt (PRIMARY KEY (id) NOT ENFORCED) COMMENT 'told' "
            f"FRESHNESS = INTERVAL '1' DAY AS SELECT id, v FROM {name}.src"
        )
        yield name
        cursor.execute(f"DROP MATERIALIZED TABLE {name}.mt")
        cursor.execute(f"DROP SCHEMA {name} CASCADE")


def test_values_arrive_as_hive_writes_them(jdbc: Ask) -> None:
    got = jdbc(("row", "query", VALUES), ("types", "types", VALUES))
    assert got["row"][1] == [
        *("1", "x", "1.50", "0.1", "[1,2]", '{"1":"v"}', '{"k":null}'),
        *("2024-01-01 00:00:00.25", "2024-02-29", "1 00:00:00.000000000", "1-0", "true", None),
    ]
    assert [kind.upper() for _, kind, _ in got["types"]][:4] == [
        "INT",
        "STRING",
        "DECIMAL",
        "FLOAT",
    ]


def test_metadata_shows_the_materialized_table_once(jdbc: Ask, table: str) -> None:
    got = jdbc(
        ("all", "getTables", None, table, "%", None),
        ("plain", "getTables", None, table, "%", ["TABLE"]),
        ("own", "getTables", None, table, "%", ["MATERIALIZED_TABLE"]),
        ("views", "getTables", None, table, "%", ["VIEW"]),
        ("columns", "getColumns", None, table, "mt", "%"),
        ("keys", "getPrimaryKeys", None, table, "mt"),
        ("kinds", "getTableTypes"),
        ("schemas", "getSchemas"),
        ("functions", "getFunctions", None, "%", "abs"),
    )
    listed = {step: [row[2:5] for row in got[step][1:]] for step in ("all", "plain", "own")}
    assert listed["all"] == [["mt", "MATERIALIZED_TABLE", "told"], ["src", "TABLE", ""]]
    assert listed["plain"] == [["mt", "TABLE", "told"], ["src", "TABLE", ""]]
    assert listed["own"] == [["mt", "MATERIALIZED_TABLE", "told"]]
    assert got["views"][1:] == []
    assert [(row[3], row[5]) for row in got["columns"][1:]] == [("id", "INT"), ("v", "STRING")]
    assert [row[3:5] for row in got["keys"][1:]] == [["id", "1"]]
    assert ["MATERIALIZED_TABLE"] in got["kinds"]
    assert table in [row[0] for row in got["schemas"][1:]]
    assert [row[2] for row in got["functions"][1:]] == ["abs"]


def test_many_rows_come_in_order_also_by_parallel_fetches(jdbc: Ask) -> None:
    many = ("many", "count", "SELECT id, repeat('x', 50) FROM range(120000)")
    assert jdbc(many)["many"] == [120_000, 120_000, 1]
    assert jdbc(many, url="default;fetchThreads=4;fetchSize=500")["many"] == [120_000, 120_000, 1]


def test_errors_have_their_code_state_and_place(jdbc: Ask) -> None:
    got = jdbc(("missing", "query", "SELECT *\nFROM nope"), ("after", "query", "SELECT 1"))
    assert got["missing"]["state"] == "42P01"
    assert "[TABLE_OR_VIEW_NOT_FOUND]" in got["missing"]["error"]
    assert "line 2, column 6" in got["missing"]["error"]
    assert got["after"] == [["1"], ["1"]]


def test_the_rest_of_the_surface_answers(jdbc: Ask, table: str) -> None:
    got = jdbc(
        ("prepared", "prepared", "SELECT ? + 1 AS n, ? AS s", 4, "it's"),
        ("schema", "schema", table),
        ("here", "query", "SELECT count(*) AS n FROM mt"),
        ("id", "query_id", "SELECT 1"),
        ("info", "client_info", "ApplicationName", "tests"),
        ("valid", "valid"),
        ("keywords", "getSQLKeywords"),
        ("types", "getTypeInfo"),
        ("inserted", "update", "INSERT INTO src VALUES (1, 'a'), (2, 'b')"),
    )
    assert got["prepared"] == [["n", "s"], ["5", "it's"]]
    assert got["schema"] == table
    assert got["here"] == [["n"], ["0"]]
    assert got["id"]
    assert got["valid"] is True
    assert "SELECT" not in got["types"][1]
    assert len(got["types"]) == 18
    assert "ANALYZE" in got["keywords"].split(",")


def test_what_a_statement_notes_is_in_its_log(jdbc: Ask, table: str) -> None:
    create = f"CREATE MATERIALIZED TABLE IF NOT EXISTS {table}.mt AS SELECT id, v FROM {table}.src"
    log = jdbc(("log", "log", create))["log"]
    said = f"Materialized table spark_catalog.{table}.mt exists already; nothing was changed."
    assert f"INFO  : {said}" in log


def test_drivers_of_hive_4_are_told_how_many_rows_an_insert_made(
    jdbc: Ask, table: str, request: pytest.FixtureRequest
) -> None:
    count = jdbc(("n", "update", f"INSERT INTO {table}.src VALUES (1, 'a'), (2, 'b')"))["n"]
    assert count == (2 if request.node.callspec.params["jdbc"] >= "4" else 0)
