"""What is brought back when store or metastore are lost and the warehouse is not."""

from __future__ import annotations

import shutil
from contextlib import closing

import pytest

from tests.support.fixtures.server import Rows, Server, StartServer, sorted_rows
from tests.support.full_run import FULL
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.thorough(4)]

QUERIES: dict[str, Rows] = {
    "SELECT * FROM sales.orders": [(1, "a"), (2, "b")],
    "SELECT * FROM sales.by_kind": [("a", 1), ("b", 1)],
    "SELECT * FROM sales.shown": [("A", 1, "a"), ("B", 2, "b")],
    "SELECT * FROM plain_one": [(7,)],
}


def run(server: Server, *statements: str) -> Rows:
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        return sorted_rows(cursor, *statements)


def start_with_data(start_server: StartServer) -> Server:
    server = start_server()
    server.wait_for_engine()
    run(
        server,
        "CREATE SCHEMA sales",
        "CREATE TABLE sales.orders (id INT, kind STRING) USING delta",
        "INSERT INTO sales.orders VALUES (1, 'a'), (2, 'b')",
        "CREATE TABLE plain_one USING delta AS SELECT 7 AS n",
        "CREATE MATERIALIZED TABLE sales.first_name FRESHNESS = INTERVAL '5' SECOND "
        "AS SELECT kind, count(*) AS n FROM sales.orders GROUP BY kind",
        "ALTER MATERIALIZED TABLE sales.first_name RENAME TO by_kind",
        "CREATE MATERIALIZED TABLE sales.shown (loud AS upper(kind)) "
        "FRESHNESS = INTERVAL '1' DAY REFRESH_MODE = FULL AS SELECT id, kind FROM sales.orders",
        "ALTER MATERIALIZED TABLE sales.by_kind REFRESH",
        "ALTER MATERIALIZED TABLE sales.shown REFRESH",
    )
    assert run(server, "SELECT * FROM sales.by_kind") == QUERIES["SELECT * FROM sales.by_kind"]
    assert server.stop() == 0
    return server


@pytest.mark.parametrize("store_too", [False, True] if FULL else [True])
def test_a_lost_metastore_comes_back_from_the_warehouse(
    start_server: StartServer, store_too: bool
) -> None:
    lost = start_with_data(start_server)
    shutil.rmtree(lost.data / "metastore")
    if store_too:
        for each in lost.data.glob("store.db*"):
            each.unlink()
    server = start_server("--recover-catalog")
    server.wait_for_engine()
    wait_until(
        lambda: "they are suspended" in server.output.read_text(),
        "the tables were not brought back",
    )
    said = server.output.read_text()
    assert "2 materialized and 2 other Delta tables of the warehouse in the metastore" in said
    for query, rows in QUERIES.items():
        assert run(server, query) == rows
    if store_too:
        run(server, "ALTER MATERIALIZED TABLE sales.by_kind RESUME")
    run(
        server,
        "INSERT INTO sales.orders VALUES (3, 'b')",
        "ALTER MATERIALIZED TABLE sales.by_kind REFRESH",
    )
    assert run(server, "SELECT * FROM sales.by_kind") == [("a", 1), ("b", 2)]
    warehouse = server.data / "warehouse" / "sales.db"
    before = {path.name for path in warehouse.iterdir()}
    run(server, "DROP MATERIALIZED TABLE sales.by_kind")
    assert len(before - {path.name for path in warehouse.iterdir()}) == 1
    # What was not ours is not deleted with its entry.
    run(server, "DROP TABLE sales.orders")
    assert (warehouse / "orders" / "_delta_log").is_dir()
