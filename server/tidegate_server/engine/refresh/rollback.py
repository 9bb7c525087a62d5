"""Restores the rows of an earlier version of a materialized table."""

from __future__ import annotations

from dataclasses import replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import RunMetrics, Strategy
from tidegate_server.core.refresh.request import (
    RefreshOrder,
    RefreshOutcome,
    RefreshPlan,
)
from tidegate_server.engine.refresh.publish import without_checks
from tidegate_server.engine.session.operations import Operation
from tidegate_server.engine.storage.base import TableFormat, Written
from tidegate_server.engine.storage.commit_record import RecordedRefresh
from tidegate_server.engine.storage.retention import is_gone

_HINT = "SHOW VERSIONS {table} lists the versions that can be read."


def roll_back(
    order: RefreshOrder,
    version: int,
    spark: SparkSession,
    format: TableFormat,
    operation: Operation,
) -> RefreshOutcome:
    """Write the rows of an earlier version as a new version, in one commit.

    The commit records the vector of that version; the next refresh continues from it.

    :raises ServerError: MT_ROLLBACK_IMPOSSIBLE if that version holds no refresh, had other columns
        or is no longer readable; MT_REFRESH_FENCED if a later epoch was committed.
    """
    newest = format.last_commit(order.name, order.table_id)
    if newest is None:
        raise _impossible(order, version, "it was never refreshed")
    commit = format.last_commit(order.name, order.table_id, at=version)
    if newest.refresh_id == order.refresh_id:
        return _outcome(newest, None, newest.version, None)
    state = format.find(order.name)
    if state is None or version > state.newest:
        raise _impossible(order, version, "there is no such version")
    if commit is None:
        raise _impossible(order, version, "no refresh is recorded at or before it")
    if commit.foreign_version is not None:
        raise _impossible(
            order, version, f"version {commit.foreign_version} was not written by a refresh"
        )
    operation.check()
    try:
        done = _restore(order, commit, version, state.newest, spark.newSession(), format)
    except (PySparkException, Py4JJavaError) as failed:
        if not is_gone(failed):
            raise
        raise _impossible(order, version, "its files were removed") from failed
    return _outcome(commit, newest.version, done.version, done.rows)


def _restore(
    order: RefreshOrder,
    commit: RecordedRefresh,
    version: int,
    newest: int,
    session: SparkSession,
    format: TableFormat,
) -> Written:
    rows = format.rows(session, order.name, version)
    present = format.rows(session, order.name, newest)
    if [(f.name, f.dataType) for f in rows.schema] != [
        (f.name, f.dataType) for f in present.schema
    ]:
        raise _impossible(order, version, "it had other columns")
    return format.write(
        rows,
        without_checks(order, rows.columns),
        replace(commit.record, unique=(), rolled_back_to=version),
        partial=commit.partial,
        strategy=Strategy.ROLLBACK,
    )


def _outcome(
    commit: RecordedRefresh, before: int | None, after: int, rows: int | None
) -> RefreshOutcome:
    plan = RefreshPlan(
        strategy=Strategy.ROLLBACK,
        reason_code=Reason.ROLLBACK_REQUESTED,
        reason_text=f"restores version {commit.version}",
        vector=dict(commit.record.vector),
    )
    return RefreshOutcome(
        plan=plan,
        from_version=before,
        to_version=after,
        metrics=RunMetrics(rows_written=rows),
        data_timestamp=commit.record.logical_time,
    )


def _impossible(order: RefreshOrder, version: int, reason: str) -> ServerError:
    return error(
        Code.MT_ROLLBACK_IMPOSSIBLE,
        table=str(order.name),
        version=version,
        reason=reason,
        hint=_HINT.format(table=order.name),
    )
