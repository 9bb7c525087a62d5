"""``connection.materialized_tables`` against a server with Spark, blocking and awaited."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import tidegate
from tests.support.fixtures.server import Server
from tidegate import aio

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def schema(server: Server) -> Iterator[str]:
    name = f"records_{uuid.uuid4().hex[:8]}"
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in (
            f"CREATE SCHEMA {name}",
            f"CREATE TABLE {name}.orders (ds STRING, amount INT) USING delta",
            f"INSERT INTO {name}.orders VALUES ('a', 1), ('b', 2)",
            (
                f"CREATE MATERIALIZED TABLE {name}.daily COMMENT 'by day' PARTITIONED BY (ds) "
                f"FRESHNESS = INTERVAL '1' HOUR AS SELECT ds, sum(amount) AS total "
                f"FROM {name}.orders GROUP BY ds"
            ),
        ):
            cursor.execute(statement)
        yield name
        connection.materialized_tables.drop(f"{name}.daily")
        cursor.execute(f"DROP SCHEMA {name} CASCADE")


def test_a_table_lives_through_typed_calls(server: Server, schema: str) -> None:
    zone = {"spark.sql.session.timeZone": "Asia/Kolkata"}
    with server.connect(schema=schema, settings=zone) as connection:
        tables = connection.materialized_tables
        (summary,) = tables.list(like="dai%")
        assert (summary.name, summary.schema, summary.freshness) == ("daily", schema, "1 HOUR")
        assert tables.list("default", like="no_such_table%") == ()

        (refreshed,) = tables.refresh("daily", kind="FULL")
        assert (refreshed.state, refreshed.action) == ("SUCCEEDED", "FULL")
        newest = tables.history("daily", limit=1)[0]
        assert newest.refresh_id == refreshed.job_id
        assert newest.rows_written == 2
        assert newest.finished_at is not None
        assert abs(datetime.now(UTC) - newest.finished_at) < timedelta(minutes=5)

        table = tables.get(f"{schema}.daily")
        assert (table.comment, table.refresh_mode, table.partition_keys) == (
            "by day",
            "FULL",
            ("ds",),
        )
        assert [(c.name, c.type) for c in table.columns] == [("ds", "string"), ("total", "bigint")]
        assert table.last_success is not None
        assert abs(datetime.now(UTC) - table.last_success) < timedelta(minutes=5)
        assert "SELECT ds" in table.original_query
        assert tables.definition(table.full_name).startswith("CREATE MATERIALIZED TABLE")

        tables.suspend("daily")
        assert tables.get("daily").refresh_status == "SUSPENDED"
        tables.resume("daily")
        assert tables.get("daily").refresh_status == "ACTIVATED"
        (edge,) = tables.lineage("daily")
        assert (edge.source, edge.kind) == (f"spark_catalog.{schema}.orders", "TABLE")
        assert {edge.column for edge in tables.column_lineage("daily")} == {"ds", "total"}
        assert tables.verify("daily").equal
        assert [lag.breached for lag in tables.lag() if lag.database == schema] == [False]


def test_the_awaited_form_does_the_same(server: Server, schema: str) -> None:
    async def work() -> None:
        async with aio.connect(server.host, port=server.port, schema=schema) as connection:
            tables = connection.materialized_tables
            assert [each.name for each in await tables.list()] == ["daily"]
            (began,) = await tables.refresh("daily", partition={"ds": "a"}, wait=False)
            assert began.state in ("QUEUED", "RUNNING")
            assert began.action is None
            assert (await tables.get("daily")).original_query.startswith("SELECT ds")
            for name in ("nowhere", "orders"):
                with pytest.raises(tidegate.ProgrammingError) as failed:
                    await tables.get(name)
                assert failed.value.code == (
                    "MT_NOT_FOUND" if name == "nowhere" else "MT_WRONG_KIND"
                )
            await tables.drop("nowhere", if_exists=True)

    asyncio.run(work())
