"""Keeps a lease of the store while work goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType

from tidegate_server.core.model.clock import Clock
from tidegate_server.gateway.scheduler.base import Ledger

logger = logging.getLogger(__name__)


class LeaseKeeper:
    """Renews a lease on a thread of its own, as long as a ``with`` block runs.

    Renewals come at a third of the lease's life, so that two may fail. A store that cannot be
    reached does not end the work: until it answers again, the epoch guards the table.
    """

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        key: str,
        owner: str,
        seconds: float,
        *,
        at_least_every: float | None = None,
        after_renewal: Callable[[LeaseKeeper], float | None] = lambda keeper: None,
    ) -> None:
        """Take the lease's key, owner and life in seconds.

        :param at_least_every: seconds between renewals, where a third of the life is too long.
        :param after_renewal: called after each renewal and after :meth:`wake`; may return the
            seconds until the next one.
        """
        self._ledger = ledger
        self._clock = clock
        self._key = key
        self.owner = owner
        self._seconds = seconds
        self._pause = min(seconds / 3, at_least_every or seconds)
        self._after_renewal = after_renewal
        self._wake = threading.Event()
        self._finished = False
        self._thread = threading.Thread(target=self._keep, name=f"lease-{key}", daemon=True)
        self.lost = False
        """Whether another owner has the lease by now."""

    def __enter__(self) -> LeaseKeeper:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._finished = True
        self._wake.set()
        self._thread.join()

    def wake(self) -> None:
        """Renew the lease now."""
        self._wake.set()

    def _keep(self) -> None:
        pause = self._pause
        while True:
            self._wake.wait(pause)
            self._wake.clear()
            if self._finished:
                return
            try:
                self._renew()
                pause = self._after_renewal(self) or self._pause
            except Exception:
                # The next renewal tries again.
                logger.warning("the lease %s of %s", self._key, self.owner, exc_info=True)

    def _renew(self) -> None:
        if self.lost:
            return
        now = self._clock.now()
        self.lost = not self._ledger.extend(self._key, self.owner, now, self._seconds)
        if self.lost:
            logger.warning("%s lost its lease %s", self.owner, self._key)
