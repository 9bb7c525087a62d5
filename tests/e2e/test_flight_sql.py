"""Arrow Flight SQL on a real server: statements, large results and rights."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import duckdb
import pytest

from tests.support.fixtures.server import Server, run_as

pytestmark = pytest.mark.spark

BASE = """CREATE TABLE base AS SELECT id, id % 7 AS k, cast(id AS DECIMAL(12, 2)) AS n,
timestamp_seconds(id) AS moment, CASE WHEN id % 3 > 0 THEN concat('x', id) END AS s
FROM range(300000)"""
SUMS = """CREATE MATERIALIZED TABLE sums FRESHNESS = INTERVAL '1' DAY
AS SELECT k, sum(n) AS n, max(moment) AS moment FROM base GROUP BY k"""


def connect(server: Server, user: str) -> Any:
    return adbc.connect(
        f"grpc://{server.host}:{server.ready_info()['flight_port']}",
        db_kwargs={"username": user, "password": ""},
        autocommit=True,
    )


def test_a_materialized_table_is_made_and_read(guarded_server: Server) -> None:
    run_as(guarded_server, "root", "CREATE SCHEMA flying", "GRANT ALL ON SCHEMA flying TO USER ann")
    with connect(guarded_server, "ann") as connection, connection.cursor() as cursor:
        for text in ("USE flying", BASE, SUMS):
            cursor.execute(text)
        cursor.execute("SELECT * FROM base")
        table = cursor.fetch_arrow_table()
        cursor.execute("SELECT * FROM sums ORDER BY k")
        sums = cursor.fetch_arrow_table()
        insert = "INSERT INTO base VALUES (?, 1, ?, ?, ?)"
        moment = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
        cursor.executemany(insert, [(-1, Decimal("0.10"), moment, "it's"), (-2, None, None, "?")])
        cursor.execute("SELECT n, moment, s FROM base WHERE id = ?", (-1,))
        inserted = cursor.fetchall()
        found = connection.adbc_get_objects(depth="tables", db_schema_filter="flying").read_all()
        [schema] = found.to_pylist()[0]["catalog_db_schemas"]
        kinds = {t["table_name"]: t["table_type"] for t in schema["db_schema_tables"]}
    assert kinds == {"base": "TABLE", "sums": "MATERIALIZED_TABLE"}
    assert table.num_rows == 300_000 and table["s"].null_count == 100_000
    assert inserted == [(Decimal("0.10"), moment, "it's")]
    same = "SELECT k, sum(n)::DECIMAL(22, 2) AS n, max(moment) AS moment FROM base GROUP BY ALL"
    wanted = duckdb.from_arrow(table).query("base", f"{same} ORDER BY k")
    assert sums.to_pylist() == wanted.to_arrow_table().to_pylist()
    with (
        connect(guarded_server, "eve") as connection,
        connection.cursor() as cursor,
        pytest.raises(adbc_driver_manager.Error, match="ACCESS_DENIED"),
    ):
        cursor.execute("SELECT * FROM flying.base")
    run_as(
        guarded_server,
        "root",
        "DROP MATERIALIZED TABLE flying.sums",
        "DROP SCHEMA flying CASCADE",
    )
