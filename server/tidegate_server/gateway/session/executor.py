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
from tidegate_server.core.sql.redact import redact
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.session.operation import Operation

logger = logging.getLogger(__name__)

_URGENT = 4
_CANCEL_ATTEMPTS = 600
_FIRST_CANCEL_PAUSE = 0.25
_LONGEST_CANCEL_PAUSE = 1.0


class Executor:
    """Separate pools of threads: a statement may wait for Spark for hours, but short calls must not
    wait for statements, nor cancellations for the metadata calls of other clients."""

    def __init__(self, engine: Engine, cancel_refresh: Callable[[str], bool], workers: int) -> None:
        """Create the pools.

        :param cancel_refresh: cancels the refreshes of an operation by its id.
        :param workers: threads for statements; short calls get a quarter of them, at least four.
        """
        self._engine = engine
        self._cancel_refresh = cancel_refresh
        self._statements = ThreadPoolExecutor(workers, thread_name_prefix="statement")
        self.short = ThreadPoolExecutor(max(4, workers // 4), thread_name_prefix="call")
        """Runs encoding, metadata calls and closing."""
        self.urgent = ThreadPoolExecutor(_URGENT, thread_name_prefix="cancel")

    def submit(
        self, operation: Operation, work: Callable[[], Result], timeout: float | None = None
    ) -> None:
        """Queue a statement; ``timeout`` is in seconds from now."""
        if not operation.move(OperationState.PENDING):
            operation.work_ended.set()
            return
        timer = self._start_timer(operation, timeout) if timeout else None
        # The context carries the user and ids of log lines.
        context = contextvars.copy_context()
        self._statements.submit(context.run, self._run, operation, work, timer)

    def run(self, operation: Operation, work: Callable[[], Result]) -> None:
        """Run a short operation on the calling thread."""
        operation.move(OperationState.PENDING)
        self._run(operation, work, None)

    def cancel(self, operation: Operation, by: str = "") -> bool:
        """Cancel an operation and its Spark jobs; False if it has already ended.

        Blocks for one short request to the engine.
        """
        if not operation.cancel(by):
            return False
        if operation.started:
            self._interrupt(operation, 0, _FIRST_CANCEL_PAUSE)
        return True

    def shutdown(self) -> None:
        """Accept no more work and drop queued work; running threads end on their own."""
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
        except ServerError as cause:
            logger.info("Operation %s failed: %s", operation.id, redact(str(cause)))
            operation.fail(cause)
        except Exception as cause:
            logger.exception("Operation %s failed inside the server", operation.id)
            reason = f"{type(cause).__name__}: {cause}"
            operation.fail(error(Code.INTERNAL, reason=reason))
        else:
            if not operation.finish(result):
                result.close()

    def _interrupt(self, operation: Operation, attempt: int, pause: float) -> None:
        """Cancel repeatedly: the first request can precede the first Spark job or refresh."""
        if operation.work_ended.is_set() or attempt >= _CANCEL_ATTEMPTS:
            return
        self._cancel_refresh(operation.id)
        try:
            self._engine.call(Cancel(operation_id=operation.id), wait=0)
        except ServerError as error:
            logger.debug("Operation %s could not be interrupted: %s", operation.id, error)
        following = min(pause * 2, _LONGEST_CANCEL_PAUSE)
        _start_daemon_timer(pause, lambda: self._interrupt(operation, attempt + 1, following))


def _start_daemon_timer(seconds: float, action: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
    return timer
