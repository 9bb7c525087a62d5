"""How often and how long a lost connection is opened again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from time import monotonic
from typing import Final

_FIRST: Final = 0.1
_LONGEST: Final = 5.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The budget of one call: a number of attempts, and seconds from the loss on."""

    attempts: int
    seconds: float


def pause_before(attempt: int, jitter: float) -> float:
    """Return the seconds to wait before an attempt, counted from 1.

    The wait doubles each time up to 5 s. ``jitter``, from 0 to 1, takes off up to half of it, so
    that clients that lost their connections together do not come back together.
    """
    whole = min(_FIRST * 2.0 ** min(attempt - 1, 16), _LONGEST)
    return float(whole * (1 - jitter / 2))


class Budget:
    """What is left of a policy's budget during one call."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._started: float | None = None
        self.attempts = 0
        """The number of attempts so far."""

    @property
    def elapsed(self) -> float:
        """Seconds since the connection was lost."""
        return 0.0 if self._started is None else monotonic() - self._started

    def next_pause(self) -> float | None:
        """Count an attempt and return the seconds to wait before it; None if none is left."""
        if self._started is None:
            self._started = monotonic()
        if self.attempts >= self._policy.attempts:
            return None
        pause = pause_before(self.attempts + 1, random.random())
        if self.elapsed + pause > self._policy.seconds:
            return None
        self.attempts += 1
        return pause

    def __str__(self) -> str:
        times = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return f"{times} within {self.elapsed:.1f} s"
