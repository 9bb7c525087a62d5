"""The dialect on asyncio, with an engine of ``create_async_engine``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from tests.driver.fake_server import Answer, FakeServer, failure
from tests.support.waiting import wait_until
from tidegate import aio

registry.register("tidegate.aio", "tidegate_sqlalchemy.aio", "TidegateAsyncDialect")

ROWS = [(number,) for number in range(25)]
ANSWERS = {
    "SELECT version()": Answer([("v", "STRING")], [("4.1.4",)]),
    "SELECT current_database()": Answer([("d", "STRING")], [("default",)]),
    "q": Answer([("n", "INT")], ROWS, page=10),
    "endless": Answer(endless=True),
    "wrong": Answer(error=failure("no such table", "42P01")),
    "GetTables": Answer(
        [(name, "STRING") for name in ("TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE")],
        [("spark_catalog", "default", "orders", "TABLE")],
    ),
}


def run(work: Callable[[AsyncEngine], Awaitable[None]], **options: object) -> FakeServer:
    """Run a coroutine on an engine of its own; the driver leaves no thread."""

    async def whole(port: int) -> None:
        engine = create_async_engine(f"tidegate+aio://ada@127.0.0.1:{port}/default", **options)
        try:
            await work(engine)
        finally:
            await engine.dispose()

    with FakeServer(ANSWERS) as server:
        asyncio.run(asyncio.wait_for(whole(server.port), 60))
    # A thread ends a moment after the call that it made.
    wait_until(lambda: not _threads(), "a thread of the driver is left")
    return server


def _threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("tidegate")]


def test_results_are_read_at_once_or_streamed() -> None:
    async def work(engine: AsyncEngine) -> None:
        async with engine.connect() as connection:
            assert (await connection.execute(sa.text("q"))).all() == ROWS
            streamed = await connection.stream(sa.text("q"))
            assert await streamed.fetchmany(3) == ROWS[:3]
            assert [row async for row in streamed] == ROWS[3:]
            raw = await connection.get_raw_connection()
            assert isinstance(raw.driver_connection, aio.Connection)
        assert isinstance(engine.pool, AsyncAdaptedQueuePool)

    run(work)


def test_errors_are_those_of_sqlalchemy_and_the_connection_lives() -> None:
    async def work(engine: AsyncEngine) -> None:
        async with engine.connect() as connection:
            with pytest.raises(ProgrammingError, match="no such table"):
                await connection.execute(sa.text("wrong"))
            assert len((await connection.execute(sa.text("q"))).all()) == 25

    run(work)


def test_a_statement_is_canceled_with_its_task() -> None:
    async def work(engine: AsyncEngine) -> None:
        async with engine.connect() as connection:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await connection.execute(sa.text("endless"))
        async with engine.connect() as connection:
            assert len((await connection.execute(sa.text("q"))).all()) == 25

    assert len(run(work).requests("CancelOperation")) == 1


def test_tables_are_reflected() -> None:
    async def work(engine: AsyncEngine) -> None:
        async with engine.connect() as connection:
            names = await connection.run_sync(lambda sync: sa.inspect(sync).get_table_names())
        assert names == ["orders"]

    run(work)


def test_tasks_have_connections_of_their_own_which_are_checked_and_used_again() -> None:
    async def work(engine: AsyncEngine) -> None:
        async def query() -> int:
            async with engine.connect() as connection:
                return len((await connection.execute(sa.text("q"))).all())

        assert await asyncio.gather(*(query() for _ in range(8))) == [25] * 8
        assert await asyncio.gather(*(query() for _ in range(8))) == [25] * 8

    server = run(work, pool_size=4, max_overflow=0, pool_pre_ping=True)
    assert len(server.requests("OpenSession")) <= 4
    assert len(server.requests("CloseSession")) == len(server.requests("OpenSession"))
