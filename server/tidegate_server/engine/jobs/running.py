"""Runs jobs: each INSERT is a Spark streaming query, which writes every batch into Delta once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tidegate_server.core.connectors.changes import DELETED
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.jobs import JobInsert
from tidegate_server.core.messages.answers import JobProgress, failure
from tidegate_server.core.messages.requests import StartJob
from tidegate_server.core.model.access import Admission
from tidegate_server.core.model.names import quote_identifier, visible_name
from tidegate_server.core.sql.streams import find_stream
from tidegate_server.engine.gate.gate import enforcing, pass_own_statements, suspended
from tidegate_server.engine.jobs.changes import Changes
from tidegate_server.engine.jvm.errors import to_server_error
from tidegate_server.engine.query.job_targets import JobTarget, find_target
from tidegate_server.engine.query.streams import stream_view
from tidegate_server.engine.query.table_changes import (
    check_source,
    read_changes,
    unreadable_error,
)
from tidegate_server.engine.session.sessions import apply_settings
from tidegate_server.engine.storage.base import TableFormat

logger = logging.getLogger(__name__)

# Delta's VACUUM spares names that begin with an underscore.
_DIRECTORY = "_tidegate_jobs"
_BATCH = "__batch"
_TRANSACTION = "spark.databricks.delta.write.txn"
"""Prefix of the settings by which Delta records a batch with its rows and skips it the next time.

https://docs.delta.io/latest/delta-streaming.html#idempotent-table-writes-in-foreachbatch
"""


@dataclass(slots=True)
class _Writing:
    """Writes the batches of one INSERT."""

    key: str
    """Identifies the stream in the target's log; the same after each start."""
    insert: JobInsert
    format: TableFormat
    changes: Changes | None = None
    """How changes of a table are written; None if each row of the stream is added."""
    commits: int = 0
    failure: Exception | None = None

    def __call__(self, batch: DataFrame, number: int) -> None:
        try:
            self._write(batch, number)
        except Exception as failed:
            # Spark would keep only its text.
            self.failure = to_server_error(failed)
            raise

    def _write(self, batch: DataFrame, number: int) -> None:
        spark = batch.sparkSession
        pass_own_statements(spark)
        self.check_target(spark)
        if self.changes is None:
            self._insert(batch, number, self.insert.columns)
        else:
            columns = self.insert.columns
            if columns and self.changes.tells_deleted:
                columns = (*columns, DELETED)
            with self.changes.prepare(batch) as rows:
                if rows is not None:
                    self._insert(rows, number, columns)
        self.commits += 1

    def _insert(self, rows: DataFrame, number: int, columns: tuple[str, ...]) -> None:
        spark = rows.sparkSession
        rows.createOrReplaceTempView(_BATCH)
        spark.conf.set(f"{_TRANSACTION}AppId", self.key)
        spark.conf.set(f"{_TRANSACTION}Version", str(number))
        listed = f" ({', '.join(map(quote_identifier, columns))})" if columns else ""
        target = self.insert.target.quoted()
        spark.sql(f"INSERT INTO {target}{listed} SELECT * FROM {_BATCH}")

    def explain(self, problem: ServerError) -> ServerError:
        """Return an error of the stream in words on the table whose changes it reads."""
        return problem if self.changes is None else unreadable_error(problem, self.changes.stream)

    def check_target(self, spark: SparkSession) -> JobTarget:
        """Return the target, unless another one was created in the place of that of the INSERT.

        :raises ServerError: JOB_TARGET_LOST.
        """
        found = find_target(spark, self.format, self.insert.target)
        if found is None or found.id != self.insert.table_id:
            name = str(visible_name(self.insert.target))
            raise error(Code.JOB_TARGET_LOST, table=name)
        return found


@dataclass(slots=True)
class _Running:
    """The streams of one job."""

    writings: list[_Writing] = field(default_factory=list)
    queries: list[StreamingQuery] = field(default_factory=list)

    def stop(self) -> None:
        for query in self.queries:
            query.stop()

    def progress(self) -> JobProgress:
        problem = next(filter(None, map(_failure_of, self.queries, self.writings)), None)
        return JobProgress(
            commits=sum(writing.commits for writing in self.writings),
            failure=None if problem is None else failure(problem),
        )


def _failure_of(query: StreamingQuery, writing: _Writing) -> ServerError | None:
    """Return why a stream has ended; None while it runs."""
    if query.isActive:
        return None
    return writing.explain(to_server_error(writing.failure or error_of(query)))


def error_of(query: StreamingQuery) -> Exception:
    """Return why a stream has ended: what Spark's own exception is about, if it says so."""
    caught = query.exception()
    if caught is None:
        return error(Code.JOB_ENDED)
    cause = getattr(caught, "_cause", None)
    return cause if isinstance(cause, Exception) else caught


class Jobs:
    """The jobs of an engine; thread-safe."""

    def __init__(self, spark: SparkSession, format: TableFormat) -> None:
        self._spark = spark
        self._format = format
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}

    def start(self, request: StartJob, check: Callable[[], None]) -> None:
        """Start the streams of a job where they last committed, unless they run.

        :param check: raises the reason if the request was canceled meanwhile.
        :raises ServerError: MT_STREAM_SOURCE, ACCESS_DENIED, JOB_TARGET_LOST or Spark's error.
        """
        with self._lock:
            known = self._running.get(request.job_id)
            if known is not None and known.progress().failure is None:
                return
            if known is not None:
                known.stop()
            session = self._spark.newSession()
            apply_settings(session, request.settings)
            running = self._running[request.job_id] = _Running()
            try:
                for number, insert in enumerate(request.inserts):
                    check()
                    self._start_stream(session, request, number, insert, running)
            except BaseException:
                del self._running[request.job_id]
                running.stop()
                raise
        logger.info("the job %s runs with %d streams", request.job_id, len(running.queries))

    def progress(self) -> dict[str, JobProgress]:
        """Return what each job has done since it was started."""
        with self._lock:
            return {id: running.progress() for id, running in self._running.items()}

    def stop(self, job_id: str) -> None:
        """Stop a job; ignores an unknown one."""
        with self._lock:
            running = self._running.pop(job_id, None)
        if running is not None:
            running.stop()

    def stop_all(self) -> None:
        """Stop all jobs."""
        with self._lock:
            known = list(self._running)
        for job_id in known:
            self.stop(job_id)

    def _start_stream(
        self,
        session: SparkSession,
        request: StartJob,
        number: int,
        insert: JobInsert,
        running: _Running,
    ) -> None:
        stream = find_stream(insert.query, stored=True)
        if stream is None:
            raise AssertionError("the query of a job reads a stream")
        key = f"{request.job_id}-{number}"
        writing = _Writing(key=key, insert=insert, format=self._format)
        target = writing.check_target(session)
        if stream.table:
            check_source(self._format, stream, insert.source_id)
            writing.changes = Changes.of(stream, insert, target)
        location = target.directory
        admission: Admission | None = request.admissions[number]
        with stream_view(session, stream, insert.query, runs=True):
            with enforcing(session, admission, request.user):
                frame = session.sql(stream.with_view(insert.query))
            if stream.table:  # that was its text over the rows of the table
                with suspended(session):
                    frame = read_changes(session, stream, insert.query, self._format)
            query = (
                frame.writeStream.foreachBatch(writing)
                .option("checkpointLocation", f"{location}/{_DIRECTORY}/{key}")
                .trigger(processingTime=f"{request.interval} seconds")
                .start()
            )
        running.writings.append(writing)
        running.queries.append(query)
