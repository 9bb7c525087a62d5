"""Materialized tables as records: the statements that are sent, and how answers are read."""

from __future__ import annotations

import asyncio
import inspect
import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import tidegate
from tests.driver.fake_server import Answer, FakeServer
from tidegate import aio
from tidegate.aio.materialized import MaterializedTables as AsyncMaterializedTables
from tidegate.materialized import (
    MaterializedTable,
    MaterializedTables,
    Refresh,
    TableColumn,
    statements,
)
from tidegate.materialized.records import read_refreshed, record
from tidegate.materialized.rows import aware_rows, aware_table_rows
from tidegate.wire.schema import WireColumn, WireType

DESCRIPTION = {
    "columns": [
        {"name": "ds", "type": "string", "nullable": False, "comment": None, "stored": True}
    ],
    "catalog": "spark_catalog",
    "schema": "sales",
    "table": "daily",
    "created_at": "2026-01-31 10:00:00 UTC",
    "primary_key": "ds, id",
    "partition_keys": None,
    "options": '{"a.b": "1"}',
    "refresh_mode": "FULL",
    "refresh_status": "ACTIVATED",
    "freshness": "1 HOUR",
    "definition_version": "3",
    "original_query": "SELECT 1",
    "of_a_newer_server": "x",
}


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (statements.show_tables(), "SHOW MATERIALIZED TABLES EXTENDED"),
        (
            statements.show_tables("sales", "it's%"),
            "SHOW MATERIALIZED TABLES EXTENDED IN `sales` LIKE 'it\\'s%'",
        ),
        (
            statements.describe("a.`b.c`.d", as_json=True),
            "DESCRIBE MATERIALIZED TABLE EXTENDED `a`.`b.c`.`d` AS JSON",
        ),
        (statements.refresh("t"), "ALTER MATERIALIZED TABLE `t` REFRESH SYNC"),
        (
            statements.refresh(
                "t", kind="FULL", partition={"d`s": "x"}, cascade="DOWNSTREAM", wait=False
            ),
            (
                "ALTER MATERIALIZED TABLE `t` REFRESH FULL PARTITION (`d``s` = 'x') "
                "CASCADE DOWNSTREAM ASYNC"
            ),
        ),
        (
            statements.refresh("t", where="n < 0"),
            "ALTER MATERIALIZED TABLE `t` REFRESH WHERE n < 0 SYNC",
        ),
        (statements.suspend("t", cascade=True), "ALTER MATERIALIZED TABLE `t` SUSPEND CASCADE"),
        (statements.resume("t"), "ALTER MATERIALIZED TABLE `t` RESUME"),
        (statements.drop("t", if_exists=True), "DROP MATERIALIZED TABLE IF EXISTS `t`"),
        (statements.show_history(limit=0), "SHOW REFRESH HISTORY LIMIT 0"),
        (
            statements.show_history("t", limit=5, errors=True),
            "SHOW REFRESH HISTORY FOR `t` LIMIT 5 ERRORS",
        ),
        (statements.show_lineage("t", columns=True), "SHOW LINEAGE `t` COLUMNS"),
        (statements.verify("t", version=0), "VERIFY MATERIALIZED TABLE `t` VERSION 0"),
    ],
)
def test_the_statements_quote_what_is_given(statement: str, expected: str) -> None:
    assert statement == expected


@pytest.mark.parametrize(
    "name", ["", "a.b.c.d", "a b", "t; DROP TABLE x", "`open", "a..b", "t -- "]
)
def test_what_is_no_name_is_never_sent(name: str) -> None:
    with pytest.raises(tidegate.ProgrammingError, match="expected") as refused:
        statements.quoted(name)
    assert refused.value.sqlstate == "42602"


def test_a_refresh_has_a_partition_or_a_condition() -> None:
    with pytest.raises(tidegate.ProgrammingError, match="not both"):
        statements.refresh("t", partition={"ds": "x"}, where="n < 0")


def test_a_description_becomes_typed() -> None:
    found = record(MaterializedTable, DESCRIPTION)
    assert found.created_at == datetime(2026, 1, 31, 10, tzinfo=UTC)
    assert found.primary_key == ("ds", "id")
    assert found.partition_keys == ()
    assert found.options == {"a.b": "1"}
    assert found.definition_version == 3
    assert found.columns == (TableColumn(name="ds", type="string", nullable=False),)
    assert found.full_name == "`spark_catalog`.`sales`.`daily`"
    assert found.last_success is None


def test_a_refresh_says_what_it_did() -> None:
    info = {"table": "s.d.t", "state": "QUEUED", "action": "", "server": "one"}
    found = read_refreshed({"job id": "7", "cluster info": json.dumps(info)})
    assert (found.job_id, found.table, found.state, found.action) == ("7", "s.d.t", "QUEUED", None)
    assert found.cluster_info == {"server": "one"}
    assert read_refreshed({"job id": "7", "cluster info": info | {"action": "FULL"}}).action == (
        "FULL"
    )


def test_the_history_reads_its_json() -> None:
    row = {
        "refresh_id": "1",
        "catalog": "c",
        "database": "d",
        "table": "t",
        "trigger": "MANUAL",
        "state": "SUCCEEDED",
        "partitions": '[{"ds": "x"}]',
        "expectations": '{"ok": 0}',
        "spark_job_ids": "[4, 5]",
    }
    found = record(Refresh, row)
    assert found.partitions == ({"ds": "x"},)
    assert found.expectations == {"ok": 0}
    assert found.spark_job_ids == (4, 5)


def test_times_are_in_utc_with_and_without_arrow() -> None:
    column = WireColumn("at", WireType("TIMESTAMP", zone="Europe/Berlin"))
    expected = datetime(2026, 7, 1, 10, tzinfo=UTC)
    assert aware_rows([column], [(datetime(2026, 7, 1, 12),), (None,)]) == [  # noqa: DTZ001
        {"at": expected},
        {"at": None},
    ]
    table = pa.table({"at": pa.array([expected], pa.timestamp("us", "Europe/Berlin"))})
    assert aware_table_rows(table) == [{"at": expected}]


def test_the_tables_are_read_by_statements_alone() -> None:
    shown = Answer(
        [("name", "STRING"), ("schema", "STRING"), ("refresh_mode", "STRING")]
        + [("refresh_status", "STRING"), ("freshness", "STRING")],
        [("daily", "sales", "FULL", "ACTIVATED", "1 HOUR")],
    )
    described = Answer([("json_metadata", "STRING")], [(json.dumps(DESCRIPTION),)])
    answers = {
        statements.show_tables("sales"): shown,
        statements.describe("`sales`.`daily`", as_json=True): described,
    }

    async def work(port: int) -> None:
        async with aio.connect("127.0.0.1", port=port) as connection:
            (summary,) = await connection.materialized_tables.list("sales")
            found = await connection.materialized_tables.get(summary.full_name)
            assert found.table == "daily"
            await connection.materialized_tables.suspend("daily")

    with (
        FakeServer(answers) as server,
        tidegate.connect("127.0.0.1", server.port, row_factory=tidegate.dict_row) as connection,
    ):
        (summary,) = connection.materialized_tables.list("sales")
        assert connection.materialized_tables.get(summary.full_name).table == "daily"
        connection.materialized_tables.resume("daily")
        asyncio.run(work(server.port))
        sent = [request.statement for request in server.requests("ExecuteStatement")]
        assert sent[2] == "ALTER MATERIALIZED TABLE `daily` RESUME"
        assert sent[-1] == "ALTER MATERIALIZED TABLE `daily` SUSPEND"


def test_both_drivers_offer_the_same() -> None:
    for name, method in inspect.getmembers(MaterializedTables, inspect.isfunction):
        if not name.startswith("_"):
            other = getattr(AsyncMaterializedTables, name)
            assert inspect.iscoroutinefunction(other)
            assert inspect.signature(other) == inspect.signature(method)
