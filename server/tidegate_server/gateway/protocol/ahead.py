"""The page that a client will ask for next, made while it reads the one before."""

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
"""Bytes of a page beyond which none is made ahead: each operation may hold one."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page, and the response that carries it."""

    page: Page
    response: bytes


Fetch = Callable[[FetchOrientation, int], Fetched]
"""Fetches so many rows of one operation's result and encodes them; blocks."""


class _Reader:
    """The one who fetches from an operation, and the page made ahead for it."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.rows = 0
        self.ahead: Future[Fetched] | None = None


class PagesAhead:
    """Fetches pages, keeping one ahead of each client that reads forward.

    Used on the event loop alone. Clients read page after page of the same size: while one is
    reading, the pool can already encode what comes next. A client that asks for anything else
    gets it as if nothing had been made.
    """

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._readers: WeakKeyDictionary[Operation, _Reader] = WeakKeyDictionary()

    async def fetch(
        self, operation: Operation, orientation: FetchOrientation, rows: int, work: Fetch
    ) -> Fetched:
        """Return a page, and have the next one made; raises what ``work`` does.

        What goes wrong with a page made ahead is raised when that page is asked for.
        """
        reader = self._readers.setdefault(operation, _Reader())
        forward = orientation is FetchOrientation.NEXT
        async with reader.turn:
            made, reader.ahead = reader.ahead, None
            if made is not None and not (forward and rows == reader.rows):
                await _put_back(operation, made)
                made = None
            made = made or self._submit(work, orientation, rows)
            found = made.result() if made.done() else await asyncio.wrap_future(made)
            if forward and found.page.has_more and len(found.response) <= LARGEST:
                reader.rows = rows
                reader.ahead = self._submit(work, orientation, rows)
            return found

    def _submit(self, work: Fetch, orientation: FetchOrientation, rows: int) -> Future[Fetched]:
        return self._pool.submit(contextvars.copy_context().run, work, orientation, rows)


async def _put_back(operation: Operation, made: Future[Fetched]) -> None:
    [ended] = await asyncio.gather(asyncio.wrap_future(made), return_exceptions=True)
    if isinstance(ended, Fetched):  # a page that failed left the position where it was
        operation.put_back(ended.page)
