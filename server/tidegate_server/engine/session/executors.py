"""Notices work that waits because the cluster gives the engine no executor."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from tidegate_server.core.errors import Code, ServerError, error

NOTICE_SECONDS = 15.0
"""How long work may wait before it is mentioned; executors take some seconds to start."""
BUSY = "Other applications may have all of its cores and memory"
_EXPLAIN_SECONDS = 10.0


def _in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="executors", daemon=True).start()


class ExecutorWatch:
    """Measures for how long each operation has waited for a first executor."""

    def __init__(
        self,
        starves: Callable[[str], bool],
        *,
        master: str,
        engine: str,
        timeout: float,
        explain: Callable[[], str] = lambda: "",
        in_background: Callable[[Callable[[], None]], None] = _in_background,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``starves`` returns whether an operation has a Spark job although there is no executor.

        ``engine`` is how messages name the engine; ``timeout`` is in seconds; ``explain`` asks the
        cluster why, and returns a sentence without its full stop, or an empty text; as the cluster
        may not answer for long, it is called ``in_background``.
        """
        self._starves = starves
        self._master = master
        self._engine = engine
        self._timeout = timeout
        self._explain = explain
        self._in_background = in_background
        self._explained = ""
        self._next_explanation = 0.0
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}

    def check(self, operation_id: str) -> ServerError | None:
        """Look whether an operation waits; return the error if it has done so for too long."""
        if not self._starves(operation_id):
            self.forget(operation_id)
            return None
        with self._lock:
            waited = self._clock() - self._since.setdefault(operation_id, self._clock())
        if waited >= NOTICE_SECONDS:
            self._update_explanation()
        if waited < self._timeout:
            return None
        return error(
            Code.CLUSTER_NO_EXECUTORS,
            master=self._master,
            engine=self._engine,
            seconds=f"{waited:.0f}",
            why=f". {self._explained}" if self._explained else "",
        )

    def message(self, operation_id: str) -> str:
        """Return for whom an operation waits; empty if it does not, or not for long."""
        with self._lock:
            since = self._since.get(operation_id)
        if since is None or self._clock() - since < NOTICE_SECONDS:
            return ""
        return f"Waiting for executors: {self._master} has given {self._engine} none. {self.reason}"

    @property
    def reason(self) -> str:
        """Why the cluster gives no executor, as a sentence without its full stop."""
        return self._explained or BUSY

    def forget(self, operation_id: str) -> None:
        """Forget an operation that has ended, or has got executors."""
        with self._lock:
            self._since.pop(operation_id, None)

    def _update_explanation(self) -> None:
        with self._lock:
            if self._clock() < self._next_explanation:
                return
            self._next_explanation = math.inf
        self._in_background(self._ask)

    def _ask(self) -> None:
        try:
            self._explained = self._explain()
        finally:
            self._next_explanation = self._clock() + _EXPLAIN_SECONDS

    @property
    def seconds(self) -> float:
        """How long the operation that waits longest has done so; 0 if not for long."""
        with self._lock:
            first = min(self._since.values(), default=None)
        waited = 0.0 if first is None else self._clock() - first
        return waited if waited >= NOTICE_SECONDS else 0.0
