"""Ingests the rows that a stream received since the last refresh: one batch, one commit."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tidegate_server.core.connectors.changes import change_key
from tidegate_server.core.connectors.mysql import FUNCTION as MYSQL
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.model.names import visible_name
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import RunMetrics, Strategy
from tidegate_server.core.model.wording import number_of
from tidegate_server.core.refresh.request import (
    Recompute,
    RefreshOrder,
    RefreshOutcome,
    RefreshPlan,
)
from tidegate_server.core.refresh.steps import IngestRows
from tidegate_server.core.sql.external.changes import events_of
from tidegate_server.core.sql.streams import find_stream
from tidegate_server.engine.gate.gate import enforcing
from tidegate_server.engine.query.streams import stream_view
from tidegate_server.engine.refresh.database_changes import take_changes
from tidegate_server.engine.refresh.upsert import upsert
from tidegate_server.engine.session.operations import Operation
from tidegate_server.engine.storage.base import TableFormat, Written, check_epoch
from tidegate_server.engine.storage.checkpoint import Checkpoint
from tidegate_server.engine.storage.commit_record import CommitRecord, RecordedRefresh

logger = logging.getLogger(__name__)

_TICK = 0.1


def plan_ingest(order: RefreshOrder, task: Recompute) -> RefreshPlan:
    """Return the plan for a table over a stream, assuming that rows have arrived.

    :raises ServerError: MT_STREAM_UNSUPPORTED for a refresh that would recompute rows.
    """
    refuse_recomputation(order, task)
    stream = order.sources[0].name.table
    return RefreshPlan(
        strategy=Strategy.INGEST,
        reason_code=Reason.STREAM,
        reason_text=f"takes in what has arrived in {stream} since the last refresh",
        vector={},
        steps=(IngestRows(stream=stream),),
    )


def refuse_recomputation(order: RefreshOrder, task: Recompute) -> None:
    """Reject a refresh that would recompute rows; raises MT_STREAM_UNSUPPORTED."""
    if task.force or task.is_partial:
        raise error(
            Code.MT_STREAM_UNSUPPORTED,
            what="A refresh of what was taken in already",
            table=str(visible_name(order.name)),
            hint="A stream may not have those rows any more. REFRESH takes in what has arrived; "
            "to start over, drop the table and create it again.",
        )


@dataclass(slots=True)
class _Landing:
    """Commits the batch that Spark passes in."""

    order: RefreshOrder
    format: TableFormat
    checkpoint: Checkpoint
    place: str
    base: int | None
    key: tuple[str, ...] = ()
    """The columns by which events are applied; none if rows are added."""
    written: Written | None = None
    failure: Exception | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        try:
            record = CommitRecord(
                vector={},
                definition_version=self.order.definition_version,
                logical_time=self.order.logical_time,
                offsets=self.checkpoint.offsets(self.place, batch),
                filled=False,
            )
            self.written = self._write(rows, record)
        except Exception as failed:
            # Spark would keep only its text.
            self.failure = failed
            raise

    def _write(self, rows: DataFrame, record: CommitRecord) -> Written:
        if not self.key:
            return self.format.ingest(rows, self.order, record, base=self.base)
        return upsert(rows, self.key, self.order, record, self.format, base=self.base)


def ingest(
    order: RefreshOrder,
    task: Recompute,
    session: SparkSession,
    format: TableFormat,
    operation: Operation,
) -> RefreshOutcome:
    """Ingest newly arrived rows exactly once.

    :raises ServerError: MT_REFRESH_FENCED, MT_STREAM_UNSUPPORTED, MT_EXPECTATION_FAILED,
        MT_DATA_LOST, OPERATION_CANCELED, or Spark's error for stream or query.
    """
    plan = plan_ingest(order, task)
    last = format.last_commit(order.name, order.table_id)
    pause_at(Point.AFTER_VERSIONS)
    before = last.version if last is not None else None
    if last is not None and last.refresh_id == order.refresh_id:
        return RefreshOutcome(plan=plan, from_version=None, to_version=before)
    check_epoch(order, last)
    written = _taken_in(order, last, session, format, operation)
    if written is None:
        nothing = replace(
            plan,
            strategy=Strategy.NO_DATA,
            reason_code=Reason.NOTHING_ARRIVED,
            reason_text=Reason.NOTHING_ARRIVED.meaning,
        )
        metrics = RunMetrics(rows_written=0)
        return RefreshOutcome(plan=nothing, from_version=before, to_version=before, metrics=metrics)
    metrics = RunMetrics(
        rows_read=written.rows,
        rows_written=written.rows,
        rows_inserted=written.rows_inserted,
        rows_deleted=written.rows_deleted or 0,
        files_written=written.files_written,
        bytes_written=written.bytes_written,
        expectations=written.expectations,
    )
    return RefreshOutcome(
        plan=replace(plan, reason_text=_with_count(plan.reason_text, written)),
        from_version=before,
        to_version=written.version,
        metrics=metrics,
        data_timestamp=order.logical_time,
    )


def _with_count(text: str, written: Written) -> str:
    return text if written.rows is None else f"{text}: {number_of(written.rows, 'row')}"


def _taken_in(
    order: RefreshOrder,
    last: RecordedRefresh | None,
    session: SparkSession,
    format: TableFormat,
    operation: Operation,
) -> Written | None:
    """Run one batch of the stream; None if nothing arrived."""
    key = change_key(order.expanded_query)
    text = events_of(order.expanded_query) if key else order.expanded_query
    stream = None if text is None else find_stream(text, stored=True)
    if text is None or stream is None:
        raise AssertionError("a table over a stream has it in its query")
    if stream.function == MYSQL:
        return take_changes(order, last, session, format, operation, stream, text, key)
    checkpoint = Checkpoint(session, format.describe(order.name).location)
    offsets = last.record.offsets if last is not None else None
    place = checkpoint.prepare(order.epoch, offsets, str(order.name))
    base = last.version if last is not None else None
    landing = _Landing(order, format, checkpoint, place, base, key)
    with stream_view(session, stream, text, runs=True):
        with enforcing(session, order.admission, order.executor):
            frame = session.sql(stream.with_view(text))
        writer = frame.writeStream.foreachBatch(landing).option("checkpointLocation", place)
        # One batch for all new rows, because a refresh is one commit.
        query = writer.trigger(once=True).start()
    _wait_for(query, landing, operation.check)
    return landing.written


def _wait_for(query: StreamingQuery, landing: _Landing, check: Callable[[], None]) -> None:
    try:
        while not query.awaitTermination(_TICK):
            check()
    except StreamingQueryException:
        if landing.failure is not None:
            raise landing.failure from None
        if landing.written is None:
            raise
        # Spark did not record the commit; the next refresh takes it from the table.
        logger.warning("a stream ended badly after its commit", exc_info=True)
    except ServerError:
        query.stop()
        # The cancel came too late if the batch is committed.
        if landing.written is None:
            raise
    finally:
        query.stop()
