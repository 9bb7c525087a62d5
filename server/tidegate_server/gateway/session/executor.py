"""Runs operations on bounded pools of threads."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import Cancel
from tidegate_server.core.model.result import Result
from tidegate_server.core.model.states import OperationState
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.session.operation import Operation

logger = logging.getLogger(__name__)

_URGENT = 4
_CANCEL_ATTEMPTS = 600
_FIRST_CANCEL_PAUSE = 0.25
_LONGEST_CANCEL_PAUSE = 1.0


class Executor:
    """Pools of threads: statements may wait for Spark for hours, short calls must never wait for
    them, nor a cancel for the lists of other clients."""

    def __init__(self, engine: Engine, cancel_refresh: Callable[[str], bool], workers: int) -> None:
        """Take what stops work elsewhere, by an operation's id, and the number of threads.

        That many run statements; short calls get a quarter of it, at least four.
        """
        self._engine = engine
        self._cancel_refresh = cancel_refresh
        self._statements = ThreadPoolExecutor(workers, thread_name_prefix="statement")
        self.short = ThreadPoolExecutor(max(4, workers // 4), thread_name_prefix="call")
        """For encoding, metadata and closing."""
        self.urgent = ThreadPoolExecutor(_URGENT, thread_name_prefix="cancel")

    def submit(
        self, operation: Operation, work: Callable[[], Result], timeout: float | None = None
    ) -> None:
        """Queue a statement; ``timeout`` counts seconds from now."""
        if not operation.move(OperationState.PENDING):
            operation.work_ended.set()
            return
        timer = self._start_timer(operation, timeout) if timeout else None
        # Log lines of the work name whom the submitting thread works for.
        context = contextvars.copy_context()
        self._statements.submit(context.run, self._run, operation, work, timer)

    def run(self, operation: Operation, work: Callable[[], Result]) -> None:
        """Carry a short operation out on the calling thread."""
        operation.move(OperationState.PENDING)
        self._run(operation, work, None)

    def cancel(self, operation: Operation, by: str = "") -> bool:
        """End an operation and stop its Spark jobs; False when it had ended already.

        Blocks for one short request to the engine.
        """
        if not operation.cancel(by):
            return False
        if operation.started:
            self._interrupt(operation, 0, _FIRST_CANCEL_PAUSE)
        return True

    def shutdown(self) -> None:
        """Take no more work and forget what is queued; running threads end by themselves."""
        self._statements.shutdown(wait=False, cancel_futures=True)
        self.short.shutdown(wait=False, cancel_futures=True)
        self.urgent.shutdown(wait=False, cancel_futures=True)

    def _start_timer(self, operation: Operation, seconds: float) -> threading.Timer:
        def expire() -> None:
            if operation.time_out(seconds) and operation.started:
                self._interrupt(operation, 0, _FIRST_CANCEL_PAUSE)

        return _start_daemon_timer(seconds, expire)

    def _run(
        self, operation: Operation, work: Callable[[], Result], timer: threading.Timer | None
    ) -> None:
        try:
            if operation.move(OperationState.RUNNING):
                operation.log_start()
                self._carry_out(operation, work)
        finally:
            operation.work_ended.set()
            if timer is not None:
                timer.cancel()

    def _carry_out(self, operation: Operation, work: Callable[[], Result]) -> None:
        try:
            result = work()
        except ServerError as problem:
            logger.info("Operation %s failed: %s", operation.id, problem)
            operation.fail(problem)
        except Exception as problem:
            logger.exception("Operation %s failed inside the server", operation.id)
            reason = f"{type(problem).__name__}: {problem}"
            operation.fail(error(Code.INTERNAL, reason=reason))
        else:
            if not operation.finish(result):
                result.close()

    def _interrupt(self, operation: Operation, attempt: int, pause: float) -> None:
        """Ask again and again: a first request can come before the first job or run."""
        if operation.work_ended.is_set() or attempt >= _CANCEL_ATTEMPTS:
            return
        self._cancel_refresh(operation.id)
        try:
            self._engine.call(Cancel(operation_id=operation.id), wait=0)
        except ServerError as problem:
            logger.debug("Operation %s could not be interrupted: %s", operation.id, problem)
        following = min(pause * 2, _LONGEST_CANCEL_PAUSE)
        _start_daemon_timer(pause, lambda: self._interrupt(operation, attempt + 1, following))


def _start_daemon_timer(seconds: float, action: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
    return timer
