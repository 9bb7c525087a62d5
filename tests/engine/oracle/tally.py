"""What the oracle has done so far."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tidegate_server.core.refresh.request import RefreshPlan


@dataclass
class Tally:
    """Numbers of many streams, which may run at the same time."""

    comparisons: int = 0
    streams: int = 0
    strategies: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    rejections: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    invalid: Counter[str] = field(default_factory=Counter)
    mismatches: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count_comparison(self, plan: RefreshPlan) -> None:
        """Count a table that was refreshed and compared."""
        with self._lock:
            self.comparisons += 1
            self.strategies[plan.strategy.value] += 1
            self.reasons[plan.reason_code] += 1
            self.rejections.update(rejected.reason_code for rejected in plan.rejected)
            self.changes.update(change.method for change in plan.changes)

    def left_out(self, why: Exception) -> None:
        """Count a query or a change that Spark itself refuses."""
        with self._lock:
            told = str(getattr(why, "java_exception", why)).strip()
            self.invalid[told.split("]")[0][:60]] += 1

    def count_stream(self, mismatches: list[str]) -> None:
        """Count a stream."""
        with self._lock:
            self.streams += 1
            self.mismatches += mismatches

    def lines(self) -> Iterator[str]:
        """Yield the numbers for people."""
        yield (
            f"{self.comparisons} comparisons in {self.streams} streams,"
            f" {len(self.mismatches)} mismatches"
        )
        for name, counter in (
            ("strategies", self.strategies),
            ("reasons", self.reasons),
            ("rejections", self.rejections),
            ("changes read by", self.changes),
            ("refused by Spark", self.invalid),
        ):
            if counter:
                yield f"{name}: {', '.join(f'{k} {n}' for k, n in counter.most_common())}"
        yield from self.mismatches
