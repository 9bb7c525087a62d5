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


Fetch = Callable[[FetchOrientation, int], Fetched]
"""Fetches and encodes that many rows of an operation's result; blocks."""


class _Reader:
    """The reader of an operation's result, and its prefetched page."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.rows = 0
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
        self, operation: Operation, orientation: FetchOrientation, rows: int, work: Fetch
    ) -> Fetched:
        """Return a page and start prefetching the next one; raises as ``work``.

        An error of a prefetched page is raised when that page is requested.
        """
        reader = self._readers.setdefault(operation, _Reader())
        forward = orientation is FetchOrientation.NEXT
        async with reader.turn:
            ahead, reader.prefetched = reader.prefetched, None
            if ahead is not None and not (forward and rows == reader.rows):
                await _put_back(operation, ahead)
                ahead = None
            ahead = ahead or self._submit(work, orientation, rows)
            fetched = ahead.result() if ahead.done() else await asyncio.wrap_future(ahead)
            if forward and fetched.page.has_more and len(fetched.response) <= LARGEST:
                reader.rows = rows
                reader.prefetched = self._submit(work, orientation, rows)
            return fetched

    def _submit(self, work: Fetch, orientation: FetchOrientation, rows: int) -> Future[Fetched]:
        return self._pool.submit(contextvars.copy_context().run, work, orientation, rows)


async def _put_back(operation: Operation, prefetched: Future[Fetched]) -> None:
    [ended] = await asyncio.gather(asyncio.wrap_future(prefetched), return_exceptions=True)
    if isinstance(ended, Fetched):  # a failed fetch does not move the position
        operation.put_back(ended.page)
