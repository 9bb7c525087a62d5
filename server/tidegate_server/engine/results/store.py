"""Results: small ones are sent inline, larger ones are spooled as chunks."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import Execute
from tidegate_server.engine.jvm.errors import exceeds_result_limit
from tidegate_server.engine.results.local_rows import constant_rows, local_rows, with_schema
from tidegate_server.engine.results.projection import arrow_schema, wire_frame
from tidegate_server.engine.results.spool import Spool
from tidegate_server.engine.results.staging import Staging
from tidegate_server.engine.session.operations import Operation
from tidegate_server.engine.storage.jvm import compiled_instance, java, java_source, kind

logger = logging.getLogger(__name__)

_BATCH_BYTES = 8 << 20
_BATCH_ROWS = 50_000
"""What the driver fetches at once of an Arrow result: pages of one batch are not copied."""
_RENAMED_ONCE = {"mapreduce.fileoutputcommitter.algorithm.version": "2"}
"""Tasks move their files to their place; else the driver moves them once more, one by one."""
_ROWS_WRITTEN = "numOutputRows"
_ASSUMED_VALUE = 64  # bytes; a result that turns out to be larger than allowed is spooled


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored result: inline bytes, or chunks under its id."""

    result_id: str
    rows: int
    chunks: int
    inline: bytes | None = None


class Chunks(Protocol):
    """A spooled result."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of every batch."""
        ...

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        ...

    def read(self, chunk: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one chunk, counted from 0."""
        ...


class ArrowFiles:
    """Batches in Arrow IPC files, which are memory-mapped for reading; a chunk is one batch."""

    def __init__(self, schema: pa.Schema, paths: Iterable[Path]) -> None:
        """Take complete files, in the order of their rows, and count these."""
        self._schema = schema
        self._batches: list[tuple[Path, int]] = []
        self.rows = 0
        # Counting takes one column, so that no more of a compressed file is decompressed.
        options = pa.ipc.IpcReadOptions(included_fields=[0] if len(schema) else [])
        for path in paths:
            with pa.memory_map(str(path)) as source:
                file = pa.ipc.open_file(source, options=options)
                for number in range(file.num_record_batches):
                    self.rows += file.get_batch(number).num_rows
                    self._batches.append((path, number))

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def chunks(self) -> int:
        return len(self._batches)

    def read(self, chunk: int) -> Iterator[pa.RecordBatch]:
        path, number = self._batches[chunk]
        with pa.memory_map(str(path)) as source:
            yield pa.ipc.open_file(source).get_batch(number)


def _write_table(path: Path, table: pa.Table) -> None:
    rows = min(_BATCH_ROWS, max(1, table.num_rows * _BATCH_BYTES // max(table.nbytes, 1)))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        for batch in table.combine_chunks().to_batches(max_chunksize=rows):
            writer.write_batch(batch)


def write_files(
    frame: DataFrame, schema: pa.Schema, place: str, *, compressed: bool = False
) -> int:
    """Write a frame as Arrow files into a new directory; return how many rows its tasks wrote.

    Spark adds up the counts that the tasks return, whichever disk they wrote to.

    :param schema: the schema of the files, whose types are those of the frame.
    :param place: a path or URI of Spark.
    """
    spark = frame.sparkSession
    jvm: Any = java(spark)
    source = java_source(__package__, "ArrowFiles")
    files = compiled_instance(spark, "tidegate.ArrowFiles", source, executors=True)
    query = frame._jdf.queryExecution().analyzed()
    path = jvm.org.apache.hadoop.fs.Path(place)
    options = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(_RENAMED_ONCE)
    message = bytes(schema.serialize())
    command = files.command(path, query, options, message, _BATCH_ROWS, _BATCH_BYTES, compressed)
    done = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, command)
    plan = _write_operator(done.queryExecution().executedPlan().commandPhysicalPlan())
    return int(plan.metrics().apply(_ROWS_WRITTEN).value())


def _write_operator(plan: Any) -> Any:
    """Return the operator that wrote; adaptive execution wraps it in others without metrics."""
    name = kind(plan)
    if name == "AdaptiveSparkPlanExec":
        return _write_operator(plan.executedPlan())
    return _write_operator(plan.plan()) if name.endswith("QueryStageExec") else plan


def require_complete(written: int, read: int) -> None:
    """Reject a result with missing or duplicate rows.

    :raises ServerError: RESULT_INCOMPLETE.
    """
    if written != read:
        raise error(Code.RESULT_INCOMPLETE, written=written, read=read)


class ResultStore:
    """All results of the process, by id and by session."""

    def __init__(self, spool: Spool, *, direct_bytes: int, staging: Staging | None = None) -> None:
        """Take where results are stored.

        :param direct_bytes: the estimated size up to which results are collected in memory.
        :param staging: where executors write that do not share the spool.
        """
        self._spool = spool
        self._direct_bytes = direct_bytes
        self._staging = staging
        self._lock = threading.Lock()
        self._results: dict[str, Chunks] = {}

    def store(self, frame: DataFrame, operation: Operation, request: Execute) -> Stored:
        """Run a query once and store its rows.

        :raises ServerError: RESULT_TOO_LARGE, RESULTS_OF_USER_TOO_LARGE, RESULT_INCOMPLETE or
            OPERATION_CANCELED. Exceptions of Spark pass through.
        """
        wire = wire_frame(frame)
        session = frame.sparkSession
        time_zone = _time_zone(session, str(session.conf.get("spark.sql.session.timeZone")))
        schema = arrow_schema(wire, time_zone)
        table = constant_rows(wire, schema, time_zone)
        if table is not None:
            return self._store_direct(table, operation, request)
        if not _is_small(wire, self._direct_bytes):
            return self._store_spooled(wire, schema, operation, request)
        try:
            table = local_rows(wire, schema, time_zone)
            if table is None:
                table = with_schema(wire.toArrow(), schema)
        except Exception as caught:
            if not exceeds_result_limit(caught):
                raise
            logger.info("the result of %s is larger than estimated", operation.id)
            return self._store_spooled(wire, schema, operation, request)
        return self._store_direct(table, operation, request)

    def read(self, result_id: str, chunk: int) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema and the batches of one chunk.

        :raises ServerError: INVALID_REQUEST if there is no such result or chunk.
        """
        with self._lock:
            found = self._results.get(result_id)
        if found is None or not 0 <= chunk < found.chunks:
            raise error(
                Code.INVALID_REQUEST, reason=f"there is no chunk {chunk} of result {result_id}"
            )
        return found.schema, found.read(chunk)

    def close(self, result_id: str) -> None:
        """Delete a result; an unknown one is harmless."""
        with self._lock:
            self._results.pop(result_id, None)
        self._spool.release(result_id)

    def close_session(self, session_id: str) -> None:
        """Delete every result of a session."""
        for result_id in self._spool.results_of_session(session_id):
            self.close(result_id)

    def close_all(self) -> None:
        """Delete all results."""
        with self._lock:
            known = list(self._results)
        for result_id in known:
            self.close(result_id)

    def count(self) -> int:
        """Return the number of spooled results."""
        with self._lock:
            return len(self._results)

    def quota_error(self, operation: Operation) -> ServerError | None:
        """Return the error of an operation that has written more than a quota, or None."""
        return self._spool.quota_error(operation.id)

    def _store_direct(self, table: pa.Table, operation: Operation, request: Execute) -> Stored:
        if table.nbytes <= request.inline_bytes:
            inline = _ipc_stream(table)
            return Stored(str(uuid.uuid4()), table.num_rows, chunks=0, inline=inline)
        result_id, place = self._spool.allocate(operation.id, request.session_id, request.owner)
        place.mkdir()
        path = place / "result.arrow"
        _write_table(path, table)
        files = ArrowFiles(table.schema, [path])
        self._add(result_id, files)
        self._close_if_unwanted(result_id, operation)
        return Stored(result_id, table.num_rows, files.chunks)

    def _store_spooled(
        self, wire: DataFrame, schema: pa.Schema, operation: Operation, request: Execute
    ) -> Stored:
        result_id, place = self._spool.allocate(operation.id, request.session_id, request.owner)
        try:
            written = self._write(wire, schema, result_id, place, operation)
            files = ArrowFiles(schema, sorted(place.glob("part-*.arrow")))
            require_complete(written, files.rows)
        except BaseException:
            self.close(result_id)
            raise
        self._add(result_id, files)
        self._close_if_unwanted(result_id, operation)
        return Stored(result_id, written, files.chunks)

    def _write(
        self,
        frame: DataFrame,
        schema: pa.Schema,
        result_id: str,
        place: Path,
        operation: Operation,
    ) -> int:
        """Write a frame into a directory of the spool; return how many rows its tasks wrote."""
        staging = self._staging
        if staging is None:
            return write_files(frame, schema, f"file:{place}")

        def check() -> None:
            operation.check()
            if (excess := self.quota_error(operation)) is not None:
                raise excess

        try:
            written = write_files(frame, schema, staging.place(result_id), compressed=True)
            staging.fetch(result_id, place, check)
        except BaseException:
            staging.delete(result_id)
            raise
        return written

    def _add(self, result_id: str, chunks: Chunks) -> None:
        with self._lock:
            self._results[result_id] = chunks

    def _close_if_unwanted(self, result_id: str, operation: Operation) -> None:
        """Delete a result that was canceled or exceeds a quota, and raise the error."""
        excess = self.quota_error(operation)
        if operation.canceled or excess is not None:
            self.close(result_id)
            operation.check()
        if excess is not None:
            raise excess


def _time_zone(session: SparkSession, given: str) -> str:
    """Return a session's time zone in a notation that Arrow and its readers support.

    Spark also accepts Java's ``GMT+8``, ``+8`` and short names such as ``PST``.
    """
    if "/" in given or given == "UTC":
        return given
    zone = java(session).org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(given)
    known = str(zone.normalized().getId())
    return "UTC" if known == "Z" else known


def _is_small(wire: DataFrame, direct_bytes: int) -> bool:
    """Say whether the rows fit in memory, by Spark's row limit or its size estimate."""
    plan = wire._jdf.queryExecution().optimizedPlan()
    most = plan.maxRows()
    if most.isDefined() and most.get() * len(wire.columns) * _ASSUMED_VALUE <= direct_bytes:
        return True
    return int(str(plan.stats().sizeInBytes())) <= direct_bytes


def _ipc_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
