"""Waits on the event loop for changes that other threads make to an operation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tidegate_server.gateway.session.operation import Operation

STATUS_WAIT = 5.0
"""Seconds that a status call waits for the end of the operation."""
NEWS_WAIT = 0.5
"""Seconds after which news of a running operation is returned."""


async def wait_until_ended(operation: Operation, seconds: float | None) -> bool:
    """Wait until the operation ends in any state; False after ``seconds`` (None: no limit)."""
    with _watch(operation) as changed:
        try:
            async with asyncio.timeout(seconds):
                while not operation.state.terminal:
                    changed.clear()
                    if not operation.state.terminal:
                        await changed.wait()
        except TimeoutError:
            return operation.state.terminal
    return True


async def wait_for_news(operation: Operation) -> None:
    """Wait for the end, at most STATUS_WAIT, or NEWS_WAIT after a log line or progress."""
    with _watch(operation) as changed:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (NEWS_WAIT if operation.log.has_news else STATUS_WAIT)
        try:
            while not operation.state.terminal:
                changed.clear()
                if operation.state.terminal:
                    return
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
                deadline = min(deadline, loop.time() + NEWS_WAIT)
        except TimeoutError:
            return


@contextmanager
def _watch(operation: Operation) -> Iterator[asyncio.Event]:
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(changed.set)

    unsubscribe = operation.subscribe(wake)
    try:
        yield changed
    finally:
        unsubscribe()
