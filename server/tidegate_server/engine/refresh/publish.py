"""Serves the version of a materialized table that was held."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.names import visible_name
from tidegate_server.core.model.runs import RunMetrics, Strategy
from tidegate_server.core.refresh.request import (
    CommittedRefresh,
    RefreshOrder,
    RefreshOutcome,
    RefreshPlan,
    repeating,
)
from tidegate_server.engine.session.operations import Operation
from tidegate_server.engine.storage.base import TableFormat, Written


def publish(
    order: RefreshOrder, spark: SparkSession, format: TableFormat, operation: Operation
) -> RefreshOutcome:
    """Write the rows that the refresh ``order.publish`` left held, in one commit.

    The commit records what that refresh's own would have: its vector, definition version and time.

    :raises ServerError: MT_NOTHING_HELD if they are held no more, or the table has other columns
        now; MT_REFRESH_FENCED if a later epoch was committed.
    """
    newest = format.last_commit(order.name, order.table_id)
    before = newest.version if newest is not None else None
    if newest is not None and newest.refresh_id == order.refresh_id:
        return _outcome(newest, order, None, newest.version, None)
    held = None
    if order.publish is not None:
        held = format.find_held(order.name, order.table_id, order.publish)
    if held is None:
        raise _nothing(order, "it was published, discarded or overtaken by a refresh")
    operation.check()
    done = _published(order, held, spark.newSession(), format)
    format.discard_held(order.name, order.table_id)
    return _outcome(held, order, before, done.version, done.rows)


def _published(
    order: RefreshOrder, held: CommittedRefresh, session: SparkSession, format: TableFormat
) -> Written:
    rows = format.held_rows(order.name, held.refresh_id, session)
    fitting = format.describe(order.name).schema
    if [name.lower() for name in rows.columns] != [c.name.lower() for c in fitting]:
        raise _nothing(order, "it has other columns than the table has now; discard it")
    publishing = replace(repeating(order, held, rows.columns), unique=held.unique)
    return format.write(
        rows,
        publishing,
        held.vector,
        partitions=(),
        partial=held.partial,
        strategy=Strategy.PUBLISH,
    )


def _outcome(
    held: CommittedRefresh, order: RefreshOrder, before: int | None, after: int, rows: int | None
) -> RefreshOutcome:
    plan = RefreshPlan(
        strategy=Strategy.PARTITION if held.partial else Strategy.PUBLISH,
        reason_code="PUBLISH_REQUESTED",
        reason_text=f"serves what refresh {order.publish} left held",
        vector=dict(held.vector),
    )
    return RefreshOutcome(
        plan=plan,
        from_version=before,
        to_version=after,
        metrics=RunMetrics(rows_written=rows),
        data_timestamp=held.logical_time,
        definition_version=held.definition_version,
    )


def _nothing(order: RefreshOrder, reason: str) -> ServerError:
    return error(Code.MT_NOTHING_HELD, table=str(visible_name(order.name)), reason=reason)
