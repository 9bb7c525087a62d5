"""Running operations: job tags, cancellation in every phase, progress, metrics."""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.answers import Progress
from tidegate_server.core.model.runs import RunMetrics
from tidegate_server.engine.session.canceled_plans import canceled_plans
from tidegate_server.engine.storage.jvm import compiled_instance, count_executors, java_source

logger = logging.getLogger(__name__)

_POOLS = 16
_GROUP = "spark.jobGroup.id"


class Operation:
    """One piece of work under its id; ``check`` is called between its steps."""

    def __init__(self, operation_id: str) -> None:
        self.id = operation_id
        self._canceled = threading.Event()

    @property
    def canceled(self) -> bool:
        """Whether cancellation was requested."""
        return self._canceled.is_set()

    def cancel(self) -> None:
        """Request cancellation; later calls are harmless."""
        self._canceled.set()

    def check(self) -> None:
        """:raises ServerError: OPERATION_CANCELED if cancellation was requested."""
        if self.canceled:
            raise error(Code.OPERATION_CANCELED, by="")


class Operations:
    """All running operations of the process.

    Spark jobs of an operation have its id as their tag and, unless Spark sets its own, as their
    group.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext._jsc.sc()
        self._spark = spark
        self._plans = canceled_plans(spark)
        self._local = bool(self._context.isLocal())
        self._ui: str | None = spark.sparkContext.uiWebUrl
        self._lock = threading.Lock()
        self._running: dict[str, Operation] = {}

    def begin(self, operation_id: str) -> Operation:
        """Register an operation before it has a thread, so that it can already be canceled."""
        operation = Operation(operation_id)
        with self._lock:
            self._running[operation_id] = operation
        return operation

    @contextmanager
    def bind_thread(self, operation: Operation) -> Iterator[Operation]:
        """Bind this thread's Spark jobs to the operation until the block ends."""
        try:
            operation.check()
            self._context.addJobTag(operation.id)
            self._context.setLocalProperty(_GROUP, operation.id)
            self._context.setInterruptOnCancel(True)
            # Pools share the cores evenly; within one pool jobs run first in, first out.
            pool = f"p{zlib.crc32(operation.id.encode()) % _POOLS}"
            self._context.setLocalProperty("spark.scheduler.pool", pool)
            yield operation
        finally:
            with self._lock:
                self._running.pop(operation.id, None)
            if operation.canceled:
                self._plans.remove(operation.id)
            self._context.removeJobTag(operation.id)
            self._context.setLocalProperty(_GROUP, None)

    def cancel(self, operation_id: str) -> None:
        """Cancel an operation; an unknown or finished one is ignored."""
        with self._lock:
            operation = self._running.get(operation_id)
        if operation is None:
            return
        operation.cancel()
        self.interrupt(operation)
        logger.info("canceled %s", operation_id)

    def cancel_all(self) -> None:
        """Cancel every operation."""
        with self._lock:
            running = list(self._running)
        for operation_id in running:
            self.cancel(operation_id)

    def interrupt(self, operation: Operation) -> None:
        """Stop planning and the Spark jobs of a canceled operation; called repeatedly.

        Spark rejects further jobs of the group, which adaptive execution submits one by one. In
        threads that Spark gives a group of its own, jobs have only the tag. Their later jobs are
        not rejected, so one call is not enough.
        """
        with self._lock:
            if operation.id in self._running:
                self._plans.add(operation.id)
        self._context.cancelJobGroupAndFutureJobs(operation.id)
        self._context.cancelJobsWithTag(operation.id)

    def progress(self, operation_id: str) -> Progress | None:
        """Return the progress of the operation's Spark jobs; None before the first one."""
        found = _tasks(self._spark).progress(self._context, operation_id)
        if found is None:
            return None
        first_job, *counts = map(int, found.split())
        stages_done, stages_total, tasks_done, tasks_running, tasks_total = counts
        return Progress(
            stages_done=stages_done,
            stages_total=stages_total,
            tasks_done=tasks_done,
            tasks_running=tasks_running,
            tasks_total=tasks_total,
            tracking_url=f"{self._ui}/jobs/job/?id={first_job}" if self._ui else "",
        )

    def starves(self, operation_id: str) -> bool:
        """Return whether Spark runs a job of the operation although there is no executor."""
        if self._local or count_executors(self._context):
            return False
        tracker = self._context.statusTracker()
        active = set(tracker.getActiveJobIds())
        return not active.isdisjoint(tracker.getJobIdsForTag(operation_id))

    def with_task_metrics(self, metrics: RunMetrics, operation: Operation) -> RunMetrics:
        """Add the time and memory that the tasks of the operation's Spark jobs took.

        Spark keeps only a few hundred jobs and stages. If an operation has more, the figures cover
        the latest ones.
        """
        found = _tasks(self._spark).totals(self._context, operation.id)
        executor_ms, peak_memory, *jobs = map(int, found.split())
        return replace(
            metrics, spark_job_ids=tuple(jobs), executor_ms=executor_ms, peak_memory=peak_memory
        )


def count_running_tasks(spark: SparkSession, operation_id: str) -> int:
    """Return how many tasks of an operation's Spark jobs are running."""
    return int(_tasks(spark).running(spark.sparkContext._jsc.sc(), operation_id))


def _tasks(spark: SparkSession) -> Any:
    return compiled_instance(
        spark, "tidegate.OperationTasks", java_source(__package__, "OperationTasks")
    )
