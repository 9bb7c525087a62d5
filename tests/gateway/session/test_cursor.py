from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.gateway.protocol.gateway import BatchResult
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.gateway.session.cursor import FetchOrientation, Page, ResultCursor

SCHEMA = Schema((Column(name="n", type="bigint"),))
NEXT = FetchOrientation.NEXT
BIG = 1 << 30


def numbers(*sizes: int) -> BatchResult:
    batches, first = [], 0
    for size in sizes:
        values = pa.array(range(first, first + size), pa.int64())
        batches.append(pa.RecordBatch.from_arrays([values], names=["n"]))
        first += size
    return BatchResult(SCHEMA, batches)


def size(batch: pa.RecordBatch) -> int:
    return 8 * int(batch.num_rows)


def values(page: Page) -> list[int]:
    return [] if page.batch is None else page.batch.column(0).to_pylist()


def fetch(
    cursor: ResultCursor, orientation: FetchOrientation = NEXT, rows: int = 3, limit: int = BIG
) -> Page:
    return cursor.fetch(orientation, rows, limit, size)


def test_pages_cross_the_borders_of_batches() -> None:
    cursor = ResultCursor(numbers(2, 0, 2, 3))
    pages = [fetch(cursor) for _ in range(4)]
    assert [values(p) for p in pages] == [[0, 1, 2], [3, 4, 5], [6], []]
    assert [p.start_row for p in pages] == [0, 3, 6, 7]
    assert [p.has_more for p in pages] == [True, True, False, False]


def test_an_empty_result_is_an_empty_page() -> None:
    page = fetch(ResultCursor(numbers()))
    assert (page.num_rows, page.has_more) == (0, False)


def test_pages_are_cut_by_bytes() -> None:
    cursor = ResultCursor(numbers(100))
    assert values(fetch(cursor, rows=100, limit=80)) == list(range(10))


def test_a_row_larger_than_the_limit_still_comes() -> None:
    cursor = ResultCursor(numbers(2))
    assert values(fetch(cursor, limit=1)) == [0]
    assert values(fetch(cursor, limit=1)) == [1]


def test_first_starts_over() -> None:
    cursor = ResultCursor(numbers(5))
    fetch(cursor)
    assert values(fetch(cursor, FetchOrientation.FIRST)) == [0, 1, 2]


def test_prior_goes_back_before_the_last_page() -> None:
    cursor = ResultCursor(numbers(9))
    fetch(cursor)
    fetch(cursor)
    assert values(fetch(cursor, FetchOrientation.PRIOR)) == [0, 1, 2]
    assert values(fetch(cursor, FetchOrientation.PRIOR)) == []


def test_other_orientations_are_refused() -> None:
    with pytest.raises(ServerError, match="does not support FETCH_LAST"):
        fetch(ResultCursor(numbers(1)), FetchOrientation.LAST)


def test_parallel_fetches_get_each_row_once() -> None:
    cursor = ResultCursor(numbers(*[7] * 100))
    got: list[int] = []

    def drain() -> None:
        while (page := fetch(cursor, rows=5)).num_rows:
            assert values(page)[0] == page.start_row
            got.extend(values(page))

    threads = [threading.Thread(target=drain) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(700))


class Breaking(BatchResult):
    """Fails once after its first batch."""

    broken = False

    def batches(self, start_row: int) -> Iterator[pa.RecordBatch]:
        for batch in super().batches(start_row):
            yield batch
            if not self.broken:
                self.broken = True
                raise OSError("the engine is gone")


def test_a_failed_fetch_can_be_repeated() -> None:
    whole = numbers(2, 2)
    cursor = ResultCursor(Breaking(SCHEMA, list(whole.batches(0))))
    with pytest.raises(OSError, match="gone"):
        fetch(cursor, rows=4)
    assert values(fetch(cursor, rows=4)) == [0, 1, 2, 3]
