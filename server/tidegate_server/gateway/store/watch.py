"""Watches the store while the gateway runs, and says when it fails and when it is back."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.store.database import Database

logger = logging.getLogger(__name__)

CHECK_SECONDS = 15.0
"""Seconds between two checks; with the wait for a lock a failure is noticed within a minute."""


class StoreWatch:
    """Writes to the store now and then, whether or not anything else does."""

    def __init__(self, database: Database, announce: Callable[[str], None]) -> None:
        """``announce`` gets a sentence when the store fails, and one when it answers again."""
        self._database = database
        self._announce = announce
        self._failing = ""

    def check(self) -> None:
        """Check the store once; what is wrong is announced once."""
        try:
            self._database.check()
        except ServerError as problem:
            if str(problem) != self._failing:
                logger.error("%s", problem, exc_info=problem.__cause__)
                self._announce(str(problem))
            self._failing = str(problem)
            return
        if self._failing:
            self._announce("The store answers again.")
        self._failing = ""
