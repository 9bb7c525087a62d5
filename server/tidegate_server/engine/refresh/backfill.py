"""Copies the immutable rows of another table into a materialized table that is being created."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from tidegate_server.core.model.names import TableName, quote_identifier
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import RunMetrics, Strategy
from tidegate_server.core.refresh.request import RefreshOrder, RefreshOutcome, RefreshPlan
from tidegate_server.engine.gate.gate import enforcing
from tidegate_server.engine.session.operations import Operation
from tidegate_server.engine.session.sessions import apply_settings
from tidegate_server.engine.storage.base import TableFormat, TableState, fencing_error
from tidegate_server.engine.storage.commit_record import CommitRecord
from tidegate_server.engine.storage.content.predicate import select_matching
from tidegate_server.engine.storage.content.region import immutable_condition
from tidegate_server.engine.storage.entries import entry_of


def backfill(
    order: RefreshOrder,
    source: TableName,
    spark: SparkSession,
    format: TableFormat,
    operation: Operation,
) -> RefreshOutcome:
    """Write the rows of ``source`` that are immutable now, in one commit.

    Columns are matched by name. The first refresh does not change these rows.

    :raises ServerError: MT_REFRESH_FENCED if the table was already refreshed, or Spark's error if
        the source cannot be read.
    """
    chosen = immutable_condition(order, order.logical_time)
    if chosen is None:
        raise AssertionError("a backfill has a condition")
    last = format.last_commit(order.name, order.table_id)
    if last is not None and last.refresh_id != order.refresh_id:
        raise fencing_error(order, last)
    session = spark.newSession()
    apply_settings(session, order.settings)
    state = _state(source, session, format)
    plan = _plan(order, source, state)
    if last is not None:
        return RefreshOutcome(plan=plan, from_version=None, to_version=last.version)
    read = source.quoted() if state is None else format.sources.version_sql(source, state.newest)
    columns = ", ".join(quote_identifier(column) for column in order.columns)
    with enforcing(session, order.admission, order.executor):
        rows = session.sql(f"SELECT {columns} FROM {read}")
    copied = select_matching(format.fit_columns(order, rows), chosen)
    operation.check()
    written = format.write(
        copied,
        replace(order, immutable=None, expectations=(), assertions=()),
        CommitRecord(
            vector=plan.vector,
            definition_version=order.definition_version,
            logical_time=order.logical_time,
            filled=True,
            frozen_at=order.logical_time,
            backfilled_from=str(source),
        ),
        partial=True,
        strategy=Strategy.PARTITION,
    )
    return RefreshOutcome(
        plan=plan,
        from_version=None,
        to_version=written.version,
        metrics=RunMetrics(
            rows_written=written.rows,
            files_written=written.files_written,
            bytes_written=written.bytes_written,
        ),
    )


def _state(source: TableName, spark: SparkSession, format: TableFormat) -> TableState | None:
    """Return the version to read; None for views and tables without versions."""
    entry = entry_of(spark, source)
    if not source.is_foreign and (entry is None or entry.tableType().name() == "VIEW"):
        return None
    return format.sources.find(source)


def _plan(order: RefreshOrder, source: TableName, state: TableState | None) -> RefreshPlan:
    version = "" if state is None else f" version {state.newest}"
    return RefreshPlan(
        strategy=Strategy.PARTITION,
        reason_code=Reason.BACKFILL_REQUESTED,
        reason_text=f"copies the rows of {source}{version} where {order.immutable}",
        vector={} if state is None else {state.table_id: state.newest},
    )
