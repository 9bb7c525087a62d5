"""Leases of jobs: on a shared store they say which server runs a job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from tidegate_server.core.model.clock import Clock
from tidegate_server.gateway.scheduler.base import Ledger

_KEY: Final = "job/"
"""Prefix of a job's id in the key of its lease."""


class JobLeases:
    """The leases of this server's jobs; the caller makes calls on one job one after the other."""

    def __init__(
        self, ledger: Ledger, clock: Clock, server_id: str, seconds: float, *, shared: bool
    ) -> None:
        """``seconds`` is how long a lease lasts; ``shared`` whether other servers use the store."""
        self._ledger = ledger
        self._clock = clock
        self._server_id = server_id
        self._seconds = seconds
        self._shared = shared
        self._renewed: dict[str, datetime] = {}
        """When the lease of each job that runs here was last renewed."""

    def hold(self, job_id: str) -> bool:
        """Take or renew the lease of a job; False if another server has it."""
        if not self._shared:
            return True
        now, key = self._clock.now(), _KEY + job_id
        renewed = self._renewed.get(job_id)
        if renewed is not None and now - renewed < timedelta(seconds=self._seconds / 3):
            return True
        if renewed is not None:
            mine = self._ledger.extend(key, self._server_id, now, self._seconds)
        else:
            mine = self._ledger.claim(key, self._server_id, now, self._seconds) is not None
        if mine:
            self._renewed[job_id] = now
        else:
            self._renewed.pop(job_id, None)
        return mine

    def held(self, job_id: str) -> bool:
        """Return whether this server has taken the lease of a job, and not lost it since."""
        return job_id in self._renewed

    def release(self, job_id: str) -> None:
        """Release the lease of a job, if this server has it."""
        if self._renewed.pop(job_id, None) is not None:
            self._ledger.release(_KEY + job_id, self._server_id)
