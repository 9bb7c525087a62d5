"""Pages made ahead change nothing but the time: every client gets what it would get without."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.protocol.gateway import BatchResult
from tests.gateway.session.test_cursor import SCHEMA, numbers, size, values
from tests.gateway.session.test_operation import running_operation
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.result import Result
from tidegate_server.gateway.protocol.ahead import LARGEST, Fetched, PagesAhead
from tidegate_server.gateway.session.cursor import FetchOrientation, ResultCursor
from tidegate_server.gateway.session.operation import Operation

NEXT = FetchOrientation.NEXT
BIG = 1 << 30
ORIENTATIONS = st.sampled_from(
    [NEXT, NEXT, NEXT, FetchOrientation.PRIOR, FetchOrientation.FIRST, FetchOrientation.ABSOLUTE]
)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


class Client:
    """Fetches from one operation."""

    def __init__(self, pool: ThreadPoolExecutor, result: Result, response: bytes = b"") -> None:
        self.pages = PagesAhead(pool)
        self.operation: Operation = running_operation()
        assert self.operation.finish(result)
        self.response = response
        self.made = 0

    def work(self, orientation: FetchOrientation, rows: int, start_row: int) -> Fetched:
        self.made += 1
        page = self.operation.fetch(orientation, rows, BIG, size, start_row=start_row)
        return Fetched(page, self.response)

    async def fetch(self, orientation: FetchOrientation, rows: int, start_row: int = 0) -> Fetched:
        return await self.pages.fetch(
            self.operation, orientation, rows, self.work, start_row=start_row
        )


@given(
    sizes=st.lists(st.integers(0, 9), max_size=5),
    asked=st.lists(st.tuples(ORIENTATIONS, st.integers(1, 3), st.integers(0, 12)), max_size=12),
)
def test_pages_are_those_of_the_cursor_alone(
    pool: ThreadPoolExecutor, sizes: list[int], asked: list[tuple[FetchOrientation, int, int]]
) -> None:
    client, alone = Client(pool, numbers(*sizes)), ResultCursor(numbers(*sizes))

    async def read() -> None:
        for orientation, rows, start_row in asked:
            found = (await client.fetch(orientation, rows, start_row)).page
            expected = alone.fetch(orientation, rows, BIG, size, start_row=start_row)
            assert (found.start_row, values(found), found.has_more) == (
                expected.start_row,
                values(expected),
                expected.has_more,
            )

    asyncio.run(read())


@given(st.lists(st.integers(1, 3), min_size=1, max_size=12))
def test_concurrent_fetches_share_the_rows_out(pool: ThreadPoolExecutor, counts: list[int]) -> None:
    client = Client(pool, numbers(5, 5))

    async def read() -> list[Fetched]:
        return await asyncio.gather(*(client.fetch(NEXT, rows) for rows in counts))

    found = [row for fetched in asyncio.run(read()) for row in values(fetched.page)]
    assert sorted(found) == list(range(min(sum(counts), 10)))


def test_what_goes_wrong_ahead_is_raised_when_it_is_asked_for(pool: ThreadPoolExecutor) -> None:
    broken = [True]

    class Breaking(BatchResult):
        def batches(self, start_row: int) -> Iterator[pa.RecordBatch]:
            for batch in super().batches(start_row):
                yield batch
                if broken[0]:
                    raise error(Code.ENGINE_LOST)

    whole = numbers(4, 4)
    client = Client(pool, Breaking(SCHEMA, list(whole.batches(0))))

    async def read() -> None:
        assert values((await client.fetch(NEXT, 3)).page) == [0, 1, 2]
        with pytest.raises(ServerError) as caught:
            await client.fetch(NEXT, 3)
        assert caught.value.code == Code.ENGINE_LOST.name
        broken[0] = False
        assert values((await client.fetch(NEXT, 3)).page) == [3, 4, 5]

    asyncio.run(read())


@pytest.mark.parametrize(("length", "made"), [(LARGEST, 2), (LARGEST + 1, 1)])
def test_large_pages_are_made_when_they_are_asked_for(
    pool: ThreadPoolExecutor, length: int, made: int
) -> None:
    client = Client(pool, numbers(9), bytes(length))

    async def read() -> None:
        await client.fetch(NEXT, 3)
        await asyncio.sleep(0.05)

    asyncio.run(read())
    assert client.made == made
