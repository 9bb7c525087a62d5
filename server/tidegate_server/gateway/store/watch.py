"""Watches the store while the gateway runs, and reports when it fails and when it recovers."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.store.database import Database

logger = logging.getLogger(__name__)

CHECK_SECONDS = 15.0
"""Seconds between checks; with the wait for a lock, a failure is noticed within a minute."""


class StoreWatch:
    """Writes to the store regularly, even if nothing else does."""

    def __init__(self, database: Database, announce: Callable[[str], None]) -> None:
        """``announce`` gets a sentence when the store fails, and one when it works again."""
        self._database = database
        self._announce = announce
        self._failing = ""

    def check(self) -> None:
        """Check the store; each problem is announced once."""
        try:
            self._database.check()
        except ServerError as problem:
            if str(problem) != self._failing:
                logger.error("%s", problem, exc_info=problem.__cause__)
                self._announce(str(problem))
            self._failing = str(problem)
            return
        if self._failing:
            self._announce("The store works again.")
        self._failing = ""
