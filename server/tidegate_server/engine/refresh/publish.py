"""Publishes the held version of a materialized table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.names import visible_name
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import RunMetrics, Strategy
from tidegate_server.core.refresh.request import (
    RefreshOrder,
    RefreshOutcome,
    RefreshPlan,
)
from tidegate_server.engine.session.operations import Operation
from tidegate_server.engine.storage.base import TableFormat, Written
from tidegate_server.engine.storage.commit_record import RecordedRefresh


def publish(
    order: RefreshOrder,
    refresh_id: str,
    spark: SparkSession,
    format: TableFormat,
    operation: Operation,
) -> RefreshOutcome:
    """Write the rows held by a refresh in one commit.

    The commit records that refresh's vector, definition version and time.

    :raises ServerError: MT_NOTHING_HELD if they are no longer held, or the table has other columns
        now; MT_REFRESH_FENCED if a later epoch was committed.
    """
    newest = format.last_commit(order.name, order.table_id)
    before = newest.version if newest is not None else None
    if newest is not None and newest.refresh_id == order.refresh_id:
        return _outcome(newest, refresh_id, None, newest.version, None)
    held = format.find_held(order.name, order.table_id, refresh_id)
    if held is None:
        raise _nothing(order, "it was published, discarded or overtaken by a refresh")
    operation.check()
    done = _publish(order, held, spark.newSession(), format)
    format.discard_held(order.name, order.table_id)
    return _outcome(held, refresh_id, before, done.version, done.rows)


def _publish(
    order: RefreshOrder, held: RecordedRefresh, session: SparkSession, format: TableFormat
) -> Written:
    rows = format.held_rows(order.name, held.refresh_id, session)
    fitting = format.describe(order.name).schema
    if [name.lower() for name in rows.columns] != [c.name.lower() for c in fitting]:
        raise _nothing(order, "it has other columns than the table has now; discard it")
    return format.write(
        rows,
        without_checks(order, rows.columns),
        held.record,
        partial=held.partial,
        strategy=Strategy.PUBLISH,
    )


def without_checks(order: RefreshOrder, columns: Sequence[str]) -> RefreshOrder:
    """Return an order that writes the rows of an earlier refresh without checks.

    That refresh already checked the rows and kept the immutable ones.
    """
    return replace(
        order, columns=tuple(columns), expectations=(), assertions=(), key=None, immutable=None
    )


def _outcome(
    held: RecordedRefresh, refresh_id: str, before: int | None, after: int, rows: int | None
) -> RefreshOutcome:
    plan = RefreshPlan(
        strategy=Strategy.PARTITION if held.partial else Strategy.PUBLISH,
        reason_code=Reason.PUBLISH_REQUESTED,
        reason_text=f"serves what refresh {refresh_id} left held",
        vector=dict(held.record.vector),
    )
    return RefreshOutcome(
        plan=plan,
        from_version=before,
        to_version=after,
        metrics=RunMetrics(rows_written=rows),
        data_timestamp=held.record.logical_time,
        definition_version=held.record.definition_version,
    )


def _nothing(order: RefreshOrder, reason: str) -> ServerError:
    return error(Code.MT_NOTHING_HELD, table=str(visible_name(order.name)), reason=reason)
