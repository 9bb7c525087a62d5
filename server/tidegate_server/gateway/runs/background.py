"""Work that continues after its statement returned."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tidegate_server.core.errors import Code, error

log = logging.getLogger(__name__)


class Background:
    """Runs each task on its own thread, with a bounded number at a time.

    The threads are daemons: a refresh that dies with the process is recovered from its record.
    """

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._places = threading.Semaphore(limit)

    def start(self, name: str, work: Callable[[], object]) -> None:
        """Start a task now.

        :raises ServerError: TOO_MANY.
        """
        if not self._places.acquire(blocking=False):
            hint = "Wait for one to end, or leave ASYNC out."
            raise error(
                Code.TOO_MANY, what="refreshes in the background", limit=self._limit, hint=hint
            )
        threading.Thread(target=self._run, args=(work,), name=name, daemon=True).start()

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception:
            # Nothing joins this thread, so an escaping exception would be lost.
            log.exception("work in the background failed")
        finally:
            self._places.release()
