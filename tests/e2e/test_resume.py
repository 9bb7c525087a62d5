"""Statements in Spark whose client loses its connection again and again."""

from __future__ import annotations

import asyncio
import itertools

import pytest

import tidegate
from tests.support.cutting_proxy import CuttingProxy, Where, cutting_proxy
from tests.support.fixtures.server import Server, named_rows
from tidegate import aio

pytestmark = pytest.mark.spark

ROWS = 400_000
"""More than the server holds in memory, so that pages are read from the spooled result."""
CALLS = ("ExecuteStatement", "GetOperationStatus", "GetResultSetMetadata", "FetchResults")


def cut_everywhere(proxy: CuttingProxy) -> int:
    for call, where in itertools.product(CALLS, Where):
        proxy.cut(call, where)
    return len(CALLS) * len(Where)


def test_rows_and_inserts_survive_cuts_at_every_call(server: Server) -> None:
    with (
        cutting_proxy(server.port) as proxy,
        tidegate.connect("127.0.0.1", proxy.port) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("CREATE SCHEMA resumed")
        cursor.execute("USE resumed")
        cursor.execute("CREATE TABLE t (id BIGINT) USING delta")
        cursor.execute("CREATE TEMPORARY VIEW mine AS SELECT 7 AS id")
        try:
            cuts = cut_everywhere(proxy)
            for number in range(4):
                cursor.execute("INSERT INTO t VALUES (?)", (number,))
            cursor.execute(f"SELECT id FROM range(0, {ROWS}, 1, 1)")
            assert [row[0] for row in cursor] == list(range(ROWS))
            cursor.execute("SELECT id FROM t ORDER BY id")
            assert cursor.fetchall() == [(n,) for n in range(4)]
            cut_everywhere(proxy)
            cursor.execute(f"SELECT id FROM range(0, {ROWS}, 1, 1)")
            table = cursor.fetch_arrow_table()
            assert table["id"].to_pylist() == list(range(ROWS))
            # It is still the same session.
            assert cursor.execute("SELECT id FROM mine").fetchall() == [(7,)]
            assert proxy.cuts >= cuts
            commits = named_rows(server, "DESCRIBE HISTORY resumed.t")
            assert [row["operation"] for row in commits].count("WRITE") == 4
        finally:
            cursor.execute("DROP SCHEMA resumed CASCADE")


def test_tasks_of_asyncio_are_resumed_too(server: Server) -> None:
    async def work(proxy: CuttingProxy) -> list[tuple[object, ...]]:
        async with (
            aio.connect("127.0.0.1", port=proxy.port) as connection,
            connection.cursor() as cursor,
        ):
            cut_everywhere(proxy)
            await cursor.execute("SELECT id FROM range(100)")
            return await cursor.fetchall()

    with cutting_proxy(server.port) as proxy:
        assert asyncio.run(work(proxy)) == [(n,) for n in range(100)]
        assert proxy.cuts >= 2
