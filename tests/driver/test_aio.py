"""The driver for asyncio: as the blocking one, with cancellation, and without threads left."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

import tidegate
from tests.driver.fake_server import Answer, FakeServer, failure
from tests.support.waiting import wait_until
from tidegate import aio

NUMBERS = Answer([("n", "INT")], [(n,) for n in range(25)], page=10)
ENDLESS = Answer(endless=True)


def run(work: Coroutine[Any, Any, Any]) -> None:
    """Run a test's coroutine; no thread of the driver is left."""
    asyncio.run(asyncio.wait_for(work, 60))
    # A thread ends a moment after the call that it made.
    wait_until(lambda: not drivers_threads(), "a thread of the driver is left")


def drivers_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tidegate")]


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_it_offers_what_the_blocking_driver_offers() -> None:
    outside = {"columns_info", "settled", "row_ready", "conclude", "discard"}
    assert public(tidegate.Cursor) - public(aio.Cursor) <= outside
    exceptions = {name for name in tidegate.__all__ if inspect.isclass(getattr(tidegate, name))}
    inner = {"call", "call_aside", "max_batch_bytes", "query_timeout", "session_handle"}
    assert public(tidegate.Connection) - public(aio.Connection) <= inner | exceptions


def test_connect_takes_the_arguments_of_the_blocking_one() -> None:
    names = set(inspect.signature(tidegate.connect).parameters)
    assert names - {"host", "row_factory"} == set(aio.ConnectArguments.__annotations__)


def test_rows_are_fetched_in_each_way() -> None:
    async def work(port: int) -> None:
        async with (
            aio.connect("127.0.0.1", port=port, fetch_size=10) as connection,
            connection.cursor() as cursor,
        ):
            await cursor.execute("q")
            assert cursor.description is not None
            assert [column[0] for column in cursor.description] == ["n"]
            assert await cursor.fetchone() == (0,)
            assert await cursor.fetchmany(11) == [(n,) for n in range(1, 12)]
            assert await cursor.fetchall() == [(n,) for n in range(12, 25)]
            assert await cursor.fetchone() is None
            assert [row async for row in await cursor.execute("q")] == [(n,) for n in range(25)]
            await cursor.execute_async("q")
            assert len((await cursor.fetch_arrow_table())["n"]) == 25
            assert (await cursor.query_id() or "").startswith("query-")

    with FakeServer({"q": NUMBERS}) as server:
        run(work(server.port))
        assert len(server.requests("CloseSession")) == 1


def test_a_row_factory_makes_the_rows() -> None:
    async def work(port: int) -> None:
        connection = await aio.connect("127.0.0.1", port=port, row_factory=tidegate.dict_row)
        cursor = connection.cursor()
        row: dict[str, Any] | None = await (await cursor.execute("q")).fetchone()
        assert row == {"n": 0}
        plain = connection.cursor(tidegate.tuple_row)
        assert await (await plain.execute("q")).fetchone() == (0,)
        await connection.close()
        await cursor.close()

    with FakeServer({"q": NUMBERS}) as server:
        run(work(server.port))


def test_errors_are_those_of_the_blocking_driver() -> None:
    async def work(port: int) -> None:
        async with aio.connect("127.0.0.1", port=port) as connection:
            cursor = connection.cursor()
            with pytest.raises(tidegate.ProgrammingError, match="no such table"):
                await cursor.execute("bad")
            with pytest.raises(tidegate.ProgrammingError, match="no such table"):
                async for _ in (await cursor.execute_async("bad")).logs():
                    pass
            with pytest.raises(tidegate.ProgrammingError, match="no statement"):
                await connection.cursor().fetchone()
        with pytest.raises(tidegate.InterfaceError, match="closed"):
            await cursor.execute("q")
        with pytest.raises(tidegate.InterfaceError, match="closed"):
            connection.cursor()
        assert connection.closed
        assert not await connection.is_alive()

    answer = Answer(error=failure("no such table", "42S02"))
    with FakeServer({"bad": answer}) as server:
        run(work(server.port))


def test_a_failed_connect_leaves_no_thread() -> None:
    async def work() -> None:
        with pytest.raises(tidegate.OperationalError, match="refused"):
            await aio.connect("127.0.0.1", port=9)

    run(work())


def test_executemany_sums_its_batches() -> None:
    async def work(port: int) -> None:
        async with aio.connect("127.0.0.1", port=port) as connection:
            cursor = connection.cursor()
            await cursor.executemany("INSERT INTO t VALUES (%s)", [(n,) for n in range(2500)])
            assert cursor.rowcount == 3000

    with FakeServer(lambda statement: Answer(modified=1000)) as server:
        run(work(server.port))
        assert len(server.requests("ExecuteStatement")) == 3


def test_the_log_comes_line_by_line() -> None:
    async def work(port: int) -> None:
        async with aio.connect("127.0.0.1", port=port) as connection:
            cursor = connection.cursor()
            await cursor.execute_async("q")
            assert [line async for line in cursor.logs()] == ["one", "two"]

    with FakeServer({"q": Answer(log=["one", "two"], polls=2)}) as server:
        run(work(server.port))


def test_a_canceled_task_cancels_its_statement_and_the_cursor_goes_on() -> None:
    async def work(server: FakeServer) -> None:
        async with aio.connect("127.0.0.1", port=server.port) as connection:
            cursor = connection.cursor()
            task = asyncio.create_task(cursor.execute("forever"))
            while not server.operations:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(server.requests("CancelOperation")) == 1
            assert all(operation.canceled.is_set() for operation in server.operations.values())
            assert await (await cursor.execute("q")).fetchone() == (0,)

    with FakeServer({"forever": ENDLESS, "q": NUMBERS}) as server:
        run(work(server))


def test_a_timeout_cancels_the_statement() -> None:
    async def work(server: FakeServer) -> None:
        async with aio.connect("127.0.0.1", port=server.port) as connection:
            cursor = connection.cursor()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await cursor.execute("forever")
            await cursor.execute_async("forever")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(cursor.fetchall(), 1)
            assert len(server.requests("CancelOperation")) == 2
            assert not connection.closed

    with FakeServer({"forever": ENDLESS}) as server:
        run(work(server))


def test_a_statement_canceled_while_it_is_sent_is_closed_on_the_server() -> None:
    sent, go_on = threading.Event(), threading.Event()

    def answer(statement: str) -> Answer:
        sent.set()
        assert go_on.wait(10)
        return ENDLESS

    async def work(server: FakeServer) -> None:
        async with aio.connect("127.0.0.1", port=server.port) as connection:
            task = asyncio.create_task(connection.cursor().execute("q"))
            await asyncio.to_thread(sent.wait, 10)
            task.cancel()
            await asyncio.sleep(0.05)
            assert not task.done()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            (operation,) = server.operations.values()
            assert operation.canceled.is_set()

    with FakeServer(answer) as server:
        run(work(server))


def test_a_server_that_does_not_cancel_loses_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = threading.Event()
    monkeypatch.setattr("tidegate.aio.worker.GRACE", 0.3)

    def answer(statement: str) -> Answer:
        silent.wait(20)
        return NUMBERS

    async def work(server: FakeServer) -> None:
        connection = await aio.connect("127.0.0.1", port=server.port)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connection.cursor().execute("q"), 0.2)
        assert connection.closed
        await connection.close()
        while drivers_threads():
            await asyncio.sleep(0.01)

    with FakeServer(answer) as server:
        run(work(server))
        silent.set()


def test_another_task_cancels_a_statement() -> None:
    async def work(server: FakeServer) -> None:
        async with aio.connect("127.0.0.1", port=server.port) as connection:
            cursor = connection.cursor()
            task = asyncio.create_task(cursor.execute("forever"))
            while not server.operations:
                await asyncio.sleep(0.01)
            await cursor.cancel()
            with pytest.raises(tidegate.DatabaseError, match="canceled by a test"):
                await task

    with FakeServer({"forever": ENDLESS}) as server:
        run(work(server))


def test_many_connections_wait_at_once() -> None:
    async def one(port: int) -> None:
        async with aio.connect("127.0.0.1", port=port) as connection:
            await connection.cursor().execute("forever")

    async def work(server: FakeServer) -> None:
        tasks = [asyncio.create_task(one(server.port)) for _ in range(80)]
        while len(server.operations) < 80:
            await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended)

    with FakeServer({"forever": ENDLESS}) as server:
        run(work(server))
        assert len(server.requests("CancelOperation")) == 80


def test_cursors_of_one_connection_take_turns() -> None:
    async def work(server: FakeServer) -> None:
        async with aio.connect("127.0.0.1", port=server.port) as connection:
            slow = asyncio.create_task(connection.cursor().execute("slow"))
            cursor = connection.cursor()
            for _ in range(3):
                assert len(await (await cursor.execute("q")).fetchall()) == 25
            assert not slow.done()
            await slow

    with FakeServer({"slow": Answer(polls=60), "q": NUMBERS}) as server:
        run(work(server))


def test_a_connection_whose_opening_was_canceled_is_closed() -> None:
    async def work(server: FakeServer) -> None:
        opening = asyncio.ensure_future(aio.connect("127.0.0.1", port=server.port).__aenter__())
        while not server.connections:
            await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        while drivers_threads():
            await asyncio.sleep(0.01)

    with FakeServer() as server:
        run(work(server))
        assert len(server.requests("OpenSession")) == len(server.requests("CloseSession"))


def test_a_lost_connection_is_reported_and_counts_as_closed() -> None:
    async def work(server: FakeServer) -> None:
        async with aio.connect("127.0.0.1", port=server.port) as connection:
            server.drop_connections()
            with pytest.raises(tidegate.OperationalError, match="connection lost"):
                await connection.ping()
            assert connection.closed

    with FakeServer() as server:
        run(work(server))
