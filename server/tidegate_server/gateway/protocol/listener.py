"""Runs the Thrift server on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from tidegate_server.gateway.protocol.server import ThriftServer

T = TypeVar("T")


class Listener:
    """Runs the asyncio server on its own thread, away from blocking code and signals."""

    def __init__(self, server: ThriftServer) -> None:
        self._server = server
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)

    def start(self) -> tuple[str, int]:
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        try:
            return self._do(self._server.start())
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        self._do(self._server.stop())
        self._end()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
