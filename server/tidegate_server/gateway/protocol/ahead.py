"""Prefetches the page that a client will request next."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from tidegate_server.gateway.session.cursor import FetchOrientation, Page
from tidegate_server.gateway.session.operation import Operation

LARGEST: Final = 4 << 20
"""Size in bytes beyond which no page is prefetched: each operation may hold one."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page and its encoded response."""

    page: Page
    response: bytes


Fetch = Callable[[FetchOrientation, int, int], Fetched]
"""Fetches and encodes that many rows of an operation's result, from a row on; blocks."""


class _Reader:
    """The reader of an operation's result, and its prefetched page."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.rows = 0
        self.next_row = 0
        """The first row of that page."""
        self.prefetched: Future[Fetched] | None = None


class PagesAhead:
    """Fetches pages, and prefetches one for each client that reads forward.

    Only used on the event loop. Clients read page after page of the same size: while a client
    processes one, the pool can encode the next. If it requests anything else, the prefetched page
    is put back.
    """

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._readers: WeakKeyDictionary[Operation, _Reader] = WeakKeyDictionary()

    async def fetch(
        self,
        operation: Operation,
        orientation: FetchOrientation,
        rows: int,
        work: Fetch,
        *,
        start_row: int = 0,
    ) -> Fetched:
        """Return a page and start prefetching the next one; raises as ``work``.

        ``start_row`` is the first row with ABSOLUTE. An error of a prefetched page is raised when
        that page is requested.
        """
        reader = self._readers.setdefault(operation, _Reader())
        forward = orientation in (FetchOrientation.NEXT, FetchOrientation.ABSOLUTE)
        async with reader.turn:
            ahead, reader.prefetched = reader.prefetched, None
            follows = forward and rows == reader.rows
            if orientation is FetchOrientation.ABSOLUTE:
                follows = follows and start_row == reader.next_row
            if ahead is not None and not follows:
                await _put_back(operation, ahead)
                ahead = None
            ahead = ahead or self._submit(work, orientation, rows, start_row)
            fetched = ahead.result() if ahead.done() else await asyncio.wrap_future(ahead)
            if forward and fetched.page.has_more and len(fetched.response) <= LARGEST:
                reader.rows, reader.next_row = rows, fetched.page.end_row
                reader.prefetched = self._submit(work, orientation, rows, reader.next_row)
            return fetched

    def _submit(
        self, work: Fetch, orientation: FetchOrientation, rows: int, start_row: int
    ) -> Future[Fetched]:
        return self._pool.submit(contextvars.copy_context().run, work, orientation, rows, start_row)


async def _put_back(operation: Operation, prefetched: Future[Fetched]) -> None:
    [ended] = await asyncio.gather(asyncio.wrap_future(prefetched), return_exceptions=True)
    if isinstance(ended, Fetched):  # a failed fetch does not move the position
        operation.put_back(ended.page)
