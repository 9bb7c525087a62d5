"""The thread that makes the blocking calls of one connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

from tidegate.errors import Error, InterfaceError

T = TypeVar("T")


class Closable(Protocol):
    """What can be closed."""

    def close(self) -> None: ...


Opened = TypeVar("Opened", bound=Closable)

logger = logging.getLogger(__name__)

GRACE: Final = 15.0
"""Seconds that a canceled task waits until its statement has ended on the server."""


class Worker:
    """Runs calls one at a time, in order, in a thread of its own."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tidegate")
        self._ended = False

    async def run(self, call: Callable[[], T]) -> T:
        """Run ``call`` in the thread and return its result.

        If the awaiting task is canceled, a call that has not begun never does, and one that has
        runs to its end.

        :raises InterfaceError: after ``end``.
        """
        if self._ended:
            raise InterfaceError("the connection is closed", sqlstate="08003")
        return await asyncio.wrap_future(self._pool.submit(call))

    async def open(self, connect: Callable[[], Opened]) -> Opened:
        """Run the first call, which opens a connection; the thread ends if that fails.

        Opening cannot be interrupted: if the awaiting task is canceled, the connection is closed
        as soon as it is open.
        """
        job = self._pool.submit(connect)
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            self._pool.submit(_close_late, job)
            self.end(wait=False)
            raise
        except BaseException:
            self.end()
            raise

    async def settle(
        self, cancel: Callable[[], None], then: Callable[[], None], abort: Callable[[], None]
    ) -> None:
        """End the work of a task that is being canceled.

        :param cancel: ends the call in progress; runs in a thread of its own.
        :param then: follows in the thread, after that call.
        :param abort: never blocks; called where the server does not end the call in time, and if
            the task is canceled a second time.
        """
        try:
            async with asyncio.timeout(GRACE):
                try:
                    await run_aside(cancel)
                finally:
                    await self.run(then)
        except Error as error:
            logger.warning("a canceled statement could not be ended: %s", error)
        except (TimeoutError, asyncio.CancelledError) as error:
            logger.warning("the connection is dropped with its canceled statement: %r", error)
            abort()

    def end(self, *, wait: bool = True) -> None:
        """End the thread after the calls that were submitted; wait for it if it is idle."""
        self._ended = True
        self._pool.shutdown(wait=wait)


async def run_aside(call: Callable[[], T]) -> T:
    """Run ``call`` in a new thread, which ends with it: nothing can be busy with other calls."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="tidegate-aside")
    try:
        return await asyncio.wrap_future(pool.submit(call))
    finally:
        pool.shutdown(wait=False)


def _close_late(opening: Future[Opened]) -> None:
    # If it failed, no task waits for the error.
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
