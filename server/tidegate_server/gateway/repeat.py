"""Repeats a task while the gateway runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Repeat:
    """Repeats a task at an interval on its own thread while it is entered."""

    def __init__(self, work: Callable[[], None], seconds: float, name: str) -> None:
        self._work = work
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *problem: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            try:
                self._work()
            except Exception:
                # One failure must not end all later rounds.
                logger.exception("A periodic task failed")
