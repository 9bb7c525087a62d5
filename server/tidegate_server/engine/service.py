"""Runs each request on a worker thread, and watches it while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillRunning
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Answer, EngineInfo
from tidegate_server.core.messages.requests import Request
from tidegate_server.engine.gate.gate import pass_own_statements
from tidegate_server.engine.handlers import HANDLERS, Control, Handlers, Instant, Work
from tidegate_server.engine.jvm.cluster_size import ClusterSize
from tidegate_server.engine.jvm.errors import to_server_error
from tidegate_server.engine.results.store import ResultStore
from tidegate_server.engine.session.executors import ExecutorWatch
from tidegate_server.engine.session.operations import Operation, Operations
from tidegate_server.engine.storage.formats import TableFormats

_TICK = 0.3
_WORKERS = 24
_CONTROL_WORKERS = 8
_URGENT_WORKERS = 2


class Service:
    """Runs every request in the thread pool of its kind, so that kinds do not block each other.

    Each Python thread has one JVM thread, with its job tags, for its whole life. So all Spark work
    runs on the threads of these pools, never on those of the Flight server.
    """

    def __init__(
        self,
        spark: SparkSession,
        results: ResultStore,
        formats: TableFormats,
        info: EngineInfo,
        *,
        alone: bool = True,
        name: str = "",
        executor_timeout: float = 300.0,
        explain: Callable[[], str] = lambda: "",
        size: ClusterSize | None = None,
    ) -> None:
        """``alone`` says whether no other engine changes the tables.

        ``name`` is that of the engine, empty for the gateway's own; ``executor_timeout`` is how
        many seconds work waits for a first executor of the cluster; ``explain`` returns why the
        cluster gives none; ``size`` is that of the cluster.
        """
        self.results = results
        self._operations = Operations(spark)
        self._size = size
        self._executors = ExecutorWatch(
            self._operations.starves,
            master=spark.sparkContext.master,
            engine=f"the engine {name}" if name else "the gateway's own engine",
            timeout=executor_timeout,
            explain=explain,
        )
        self._lock = threading.Lock()
        self._at_work = 0
        self._handlers = Handlers(
            spark,
            formats,
            results,
            self._operations,
            info,
            at_work=lambda: self._at_work,
            waiting=lambda: (self._executors.seconds, self._executors.reason),
            alone=alone,
        )
        self._spark = spark
        self._work = self._pool(_WORKERS, "work")
        self._control = self._pool(_CONTROL_WORKERS, "control")
        # So that a cancel does not wait for slow control requests, such as listing columns.
        self._urgent = self._pool(_URGENT_WORKERS, "urgent")

    def _pool(self, workers: int, name: str) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(
            workers,
            thread_name_prefix=name,
            initializer=pass_own_statements,
            initargs=(self._spark,),
        )

    def answers(self, request: Request[Any]) -> Iterator[Answer]:
        """Yield progress while the request runs, then its final answer.

        :raises ServerError: if the request fails.
        """
        match HANDLERS[type(request)]:
            case Instant() as instant:
                yield instant.call(self._handlers, request)
            case Control(counted=False) as control:
                yield self._run_control(control, request)
            case Control() as control:
                with self._count_work():
                    yield self._run_control(control, request)
            case Work() as work:
                with self._count_work():
                    yield from self._watch_work(work, request)

    def close(self) -> None:
        """Stop accepting work."""
        self._work.shutdown(wait=False, cancel_futures=True)
        self._control.shutdown(wait=False, cancel_futures=True)
        self._urgent.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def _count_work(self) -> Iterator[None]:
        with self._lock:
            self._at_work += 1
        try:
            yield
        finally:
            with self._lock:
                self._at_work -= 1

    def _run_control(self, control: Control, request: Request[Any]) -> Answer:
        def answer() -> Answer:
            try:
                return control.call(self._handlers, request)
            except Exception as error:
                # Converted here: a JVM exception must be read on the thread that raised it.
                raise to_server_error(error) from error

        pool = self._urgent if control.urgent else self._control
        return pool.submit(answer).result()

    def _watch_work(self, work: Work, request: Request[Any]) -> Iterator[Answer]:
        operation = self._operations.begin(work.operation_id(request))
        try:
            yield from self._watch_operation(work, request, operation)
        finally:
            self._executors.forget(operation.id)

    def _watch_operation(
        self, work: Work, request: Request[Any], operation: Operation
    ) -> Iterator[Answer]:
        future = self._work.submit(self._run_work, work, request, operation)
        excess: ServerError | None = None
        while True:
            try:
                answer = future.result(timeout=_TICK)
            except StillRunning:
                if future.done():
                    continue
                excess = excess or self._stop_beyond_limits(operation)
                if operation.canceled:
                    self._urgent.submit(self._operations.interrupt, operation).result()
                progress = self._urgent.submit(self._operations.progress, operation.id).result()
                if progress is not None:
                    yield replace(progress, message=self._executors.message(operation.id))
                continue
            except ServerError as error:
                if excess is not None:
                    raise excess from error
                raise
            yield answer
            return

    def _stop_beyond_limits(self, operation: Operation) -> ServerError | None:
        starved = self._urgent.submit(self._executors.check, operation.id).result()
        excess = self.results.quota_error(operation) or starved
        if excess is not None:
            self._operations.cancel(operation.id)
        return excess

    def _run_work(self, work: Work, request: Request[Any], operation: Operation) -> Answer:
        try:
            if self._size is not None:
                self._size.look()
            with self._operations.bind_thread(operation):
                return work.call(self._handlers, request, operation)
        except Exception as error:
            raise to_server_error(error, canceled=operation.canceled) from error
