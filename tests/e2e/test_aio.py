"""The driver for asyncio against a server with Spark."""

from __future__ import annotations

import asyncio
import threading

import pytest

import tidegate
from tests.support.fixtures.server import Server, running_tasks
from tests.support.waiting import wait_until
from tidegate import aio

pytestmark = pytest.mark.spark

ENDLESS = "SELECT count(*) AS n FROM range(0, 100000000, 1, 1) a CROSS JOIN range(100000000) b"


def test_statements_of_many_tasks_run_at_once_and_rows_arrive(server: Server) -> None:
    async def one(number: int) -> int:
        async with (
            aio.connect(server.host, port=server.port) as connection,
            connection.cursor() as cursor,
        ):
            await cursor.execute("SELECT id, id * %s AS m FROM range(1000)", (number,))
            total = 0
            async for _, product in cursor:
                total += product
            return total

    async def work() -> list[int]:
        return await asyncio.gather(*map(one, range(12)))

    assert asyncio.run(work()) == [number * 499_500 for number in range(12)]
    assert not [t for t in threading.enumerate() if t.name.startswith("tidegate")]


def test_a_timeout_ends_the_statement_on_the_server(server: Server) -> None:
    async def work() -> None:
        async with (
            aio.connect(server.host, port=server.port) as connection,
            connection.cursor() as cursor,
        ):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3):
                    await cursor.execute(ENDLESS)
            await cursor.execute("SELECT 1 AS one")
            assert await cursor.fetchall() == [(1,)]

    asyncio.run(work())
    wait_until(lambda: not running_tasks(server), "the statement of a task out of time still runs")


def test_logs_and_arrow_arrive(server: Server) -> None:
    async def work() -> None:
        async with (
            aio.connect(server.host, port=server.port) as connection,
            connection.cursor() as cursor,
        ):
            await cursor.execute_async("SELECT id FROM range(30000)")
            lines = [line async for line in cursor.logs()]
            assert lines
            table = await cursor.fetch_arrow_table()
            assert table.num_rows == 30_000
            with pytest.raises(tidegate.ProgrammingError) as failed:
                await cursor.execute("SELECT * FROM nowhere_to_be_found")
            assert failed.value.sqlstate == "42P01"

    asyncio.run(work())


def test_metadata_is_listed(server: Server) -> None:
    async def work() -> None:
        async with aio.connect(server.host, port=server.port) as connection:
            cursor = await connection.cursor().schemas("default")
            assert [row[0] for row in await cursor.fetchall()] == ["default"]

    asyncio.run(work())
