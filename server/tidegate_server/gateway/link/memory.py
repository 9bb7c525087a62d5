"""Watches the engine's memory, and replaces an engine that spends too long collecting garbage.

It also announces that work waits for executors.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import EngineMemory
from tidegate_server.core.messages.requests import InspectMemory
from tidegate_server.gateway.link.client import Engine

logger = logging.getLogger(__name__)

CHECK_SECONDS = 15.0
"""Seconds between two samples."""
_WINDOW = 5
"""Samples over which the share of collections is measured: one minute."""
_SUSTAINED = 8
"""Consecutive samples with too large a share before the engine is replaced: two more minutes."""
_MOST_COLLECTING = 0.1
_MOST_LIVE = 0.5
"""Share of the heap in use after a full collection, below which collections are slow for another
reason: the processors are busy, or the heap is still growing."""
_MOST_DIRECT = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """The memory of the running engine."""

    memory: EngineMemory
    collecting: float
    """Share of the last minute spent in garbage collections, from 0 to 1."""

    @property
    def heap_too_small(self) -> bool:
        """Whether collections take long because what is in use leaves little of the heap free."""
        live = self.memory.heap_live / self.memory.heap_limit
        return self.collecting > _MOST_COLLECTING and live > _MOST_LIVE

    @property
    def problem(self) -> str | None:
        """What is wrong, as a sentence; None if nothing is."""
        if self.heap_too_small:
            return (
                f"The engine spends {self.collecting:.0%} of its time in garbage collections, "
                f"which leave {self.memory.heap_live >> 20} of {self.memory.heap_limit >> 20} MiB "
                "of its heap in use: raise engine.driver_memory."
            )
        if self.memory.direct_used > _MOST_DIRECT * self.memory.direct_limit:
            return (
                f"The engine uses {self.memory.direct_used >> 20} of "
                f"{self.memory.direct_limit >> 20} MiB of direct memory: raise "
                "engine.driver_memory, or -XX:MaxDirectMemorySize in "
                "engine.settings.spark.driver.extraJavaOptions."
            )
        return None

    @property
    def starvation(self) -> str | None:
        """That work waits for executors, as a sentence; None if it does not."""
        if not self.memory.waiting_seconds:
            return None
        why = f" {self.memory.waiting_reason}." if self.memory.waiting_reason else ""
        return (
            f"Work has waited for {self.memory.waiting_seconds:.0f} s, as the cluster has given "
            f"the engine no executor.{why}"
        )


class MemoryWatch:
    """Samples the running engine's memory."""

    def __init__(
        self,
        engine: Engine,
        *,
        replace: Callable[[str], bool],
        announce: Callable[[str], None],
    ) -> None:
        """``replace`` ends the engine for a reason, unless that would interrupt or lose work.

        ``announce`` gets a sentence when a problem appears, and one when it is over.
        """
        self._engine = engine
        self._replace = replace
        self._announce = announce
        self._samples: deque[EngineMemory] = deque(maxlen=_WINDOW)
        self._generation = 0
        self._collecting = 0
        self._reported: set[str] = set()

    @property
    def state(self) -> MemoryState | None:
        """The memory at the last sample; None while no engine is up."""
        samples = tuple(self._samples)
        return _state(samples) if samples and self._engine.ready else None

    def check(self) -> None:
        """Take one sample, and report or act on a problem."""
        if self._generation != self._engine.generation:
            self._generation = self._engine.generation
            self._samples.clear()
            self._collecting = 0
        sample = self._inspect()
        if sample is None:
            return
        self._samples.append(sample)
        state = _state(tuple(self._samples))
        self._report(state.problem, "The engine has enough memory again.")
        self._report(state.starvation, "No work of the engine waits for executors any more.")
        sustained = len(self._samples) == _WINDOW and state.heap_too_small
        self._collecting = self._collecting + 1 if sustained else 0
        if self._collecting >= _SUSTAINED and state.problem is not None:
            self._replace(state.problem)

    def _inspect(self) -> EngineMemory | None:
        if not self._engine.ready:
            return None
        try:
            answer = self._engine.call(InspectMemory(), wait=0)
        except ServerError as error:
            logger.info("the engine's memory could not be inspected: %s", error)
            return None
        return answer

    def _report(self, problem: str | None, over: str) -> None:
        """Announce a problem once, and ``over`` when it has gone."""
        if problem is not None and over not in self._reported:
            logger.warning("%s", problem)
            self._announce(problem)
            self._reported.add(over)
        if problem is None and over in self._reported:
            self._announce(over)
            self._reported.remove(over)


def _state(samples: tuple[EngineMemory, ...]) -> MemoryState:
    first, last = samples[0], samples[-1]
    passed = last.uptime_ms - first.uptime_ms
    share = (last.collecting_ms - first.collecting_ms) / passed if passed > 0 else 0.0
    return MemoryState(memory=last, collecting=min(share, 1.0))
