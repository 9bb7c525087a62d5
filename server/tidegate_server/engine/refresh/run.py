"""Runs a refresh: its steps, and one commit."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.model.runs import RunMetrics, Strategy
from tidegate_server.core.model.versions import SourceKind, is_streaming
from tidegate_server.core.refresh.request import (
    Recompute,
    RefreshOrder,
    RefreshOutcome,
    RefreshPlan,
)
from tidegate_server.core.refresh.steps import (
    AppendRows,
    CheckRows,
    ComputeQuery,
    Recording,
    ReplaceRows,
)
from tidegate_server.engine.incremental.aggregate_state import compute_state
from tidegate_server.engine.incremental.apply import apply, consolidate
from tidegate_server.engine.incremental.job_settings import job_settings
from tidegate_server.engine.incremental.preconditions import check_of
from tidegate_server.engine.incremental.strategy import IncrementalWork
from tidegate_server.engine.incremental.top_n import compute_first_rows
from tidegate_server.engine.jvm.errors import to_server_error
from tidegate_server.engine.jvm.references import release_references
from tidegate_server.engine.planning.planner import (
    without_fingerprints,
)
from tidegate_server.engine.query.catalyst import Catalyst
from tidegate_server.engine.query.logical_time import bind_time
from tidegate_server.engine.refresh.ingest import ingest
from tidegate_server.engine.refresh.plan import (
    PlannedRefresh,
    analyzed_queries,
    full_after_failure,
    plan_recompute,
    with_steps,
)
from tidegate_server.engine.session.operations import Operation
from tidegate_server.engine.session.sessions import apply_settings
from tidegate_server.engine.storage.base import (
    DiffMismatchError,
    TableFormat,
    Written,
    check_epoch,
)
from tidegate_server.engine.storage.commit_record import (
    AggregateState,
    CommitRecord,
    IncrementalState,
    KnownRows,
    RecordedRefresh,
    RowPreconditions,
    TooManyGroups,
)
from tidegate_server.engine.storage.content.region import mutable_rows
from tidegate_server.engine.storage.jvm import temporary_settings
from tidegate_server.engine.storage.plain import list_files
from tidegate_server.engine.storage.sources import looked_up_once

logger = logging.getLogger(__name__)


def refresh(
    order: RefreshOrder,
    task: Recompute,
    spark: SparkSession,
    format: TableFormat,
    operation: Operation,
) -> RefreshOutcome:
    """Bring a materialized table up to date once.

    :raises ServerError: MT_REFRESH_FENCED if a later epoch was committed, MT_NOT_INCREMENTAL if
        the policy forbids a necessary full refresh, MT_SOURCE_NOT_FOUND or MT_SOURCE_CHANGED
        naming a source, OPERATION_CANCELED, or Spark's error for the query.
    """
    began = time.monotonic()
    with release_references(), ExitStack() as resources:
        if is_streaming(order.sources):
            return ingest(order, task, _session(order, spark), format, operation)
        with looked_up_once(spark, order.tables):
            nothing = analyzed_queries.nothing_to_do(order, task, spark, format)
            if nothing is not None:
                return _without_work(*nothing)
            session = _session(order, spark)
            planned = plan_recompute(order, task, session, format, operation.check, resources)
        plan, last = planned.plan, planned.last
        pause_at(Point.AFTER_VERSIONS)
        logger.info(
            "refresh %s of %s: %s, %s",
            order.refresh_id,
            order.name,
            plan.strategy.value,
            plan.reason_text,
        )
        if last is not None and last.refresh_id == order.refresh_id:
            return RefreshOutcome(plan=plan, from_version=None, to_version=last.version)
        check_epoch(order, last)
        operation.check()
        outcome = _execute(planned, session, format, operation, resources, began)
        return replace(outcome, sources=planned.order.sources)


def _session(order: RefreshOrder, spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    apply_settings(session, order.settings)
    return session


def _execute(
    planned: PlannedRefresh,
    session: SparkSession,
    format: TableFormat,
    operation: Operation,
    resources: ExitStack,
    began: float,
) -> RefreshOutcome:
    """Run the plan.

    :param began: when planning began, by the monotonic clock.
    """
    if planned.plan.strategy is Strategy.NO_DATA:
        return _without_work(planned.plan, planned.last)
    planned = _list_source_files(planned)
    if planned.plan.strategy is Strategy.INCREMENTAL:
        try:
            return _outcome(planned, _commit_prepared(planned, session, format))
        except ServerError:
            raise
        except Exception as failed:
            operation.check()
            logger.exception("%s is refreshed fully instead", planned.order.name)
            work = full_after_failure(
                planned.plan,
                failed,
                planned.prepared.work,
                time.monotonic() - began,
            )
            planned = with_steps(replace(planned, prepared=work))
    columns, rows = len(planned.order.columns), planned.query.rows
    settings = job_settings(session, columns=columns, rows=rows, little_changed=False)
    with temporary_settings(session, settings):
        written = _compute_and_replace(planned, session, format, operation, resources)
    return _outcome(planned, written)


def _list_source_files(planned: PlannedRefresh) -> PlannedRefresh:
    """List the files to read, then check that they match the recorded fingerprints.

    Otherwise the rows of a short-lived file could stay in the table forever. No fingerprint is
    recorded for sources that changed meanwhile, so the next refresh reads them again.
    """
    if not planned.tables.fingerprints:
        return planned
    frame: Any = planned.frame
    list_files(frame.sparkSession, frame._jdf.queryExecution().analyzed())
    moved = planned.tables.changed_sources()
    if not moved:
        return planned
    plan = without_fingerprints(planned.plan, {id_: str(name) for id_, name in moved.items()})
    if plan.strategy is planned.plan.strategy:
        return replace(planned, prepared=replace(planned.prepared, plan=plan))
    return with_steps(replace(planned, prepared=IncrementalWork(plan=plan)))


def _without_work(plan: RefreshPlan, last: RecordedRefresh | None) -> RefreshOutcome:
    before = last.version if last is not None else None
    return RefreshOutcome(
        plan=plan, from_version=before, to_version=before, metrics=RunMetrics(rows_written=0)
    )


def _commit_prepared(
    planned: PlannedRefresh, session: SparkSession, format: TableFormat
) -> Written:
    """Run the last step of an incremental refresh."""
    order, prepared, last = planned.order, planned.prepared, planned.last
    if last is None:
        raise AssertionError("an incremental refresh continues from another one")
    record = planned.record(incremental=prepared.incremental, preconditions=prepared.preconditions)
    with temporary_settings(session, prepared.settings):
        if isinstance(planned.plan.steps[-1], ReplaceRows):
            return _replace_content(planned, session, format, record, last)
        diff, appends = prepared.diff, isinstance(planned.plan.steps[-1], AppendRows)
        if diff is None:
            raise AssertionError("the steps before compute the change")
        if isinstance(diff, DataFrame):
            if appends and format.untouched_since(order, last.version):
                rows = format.fit_columns(order, diff.drop(diff.columns[-1]))
                rows = mutable_rows(rows, order, record.frozen_at)
                return format.append(rows, order, record, base=last.version)
            diff = consolidate(format, order, diff, record.frozen_at)
        return apply(session, format, order, diff, record, base=last.version)


def _replace_content(
    planned: PlannedRefresh,
    session: SparkSession,
    format: TableFormat,
    record: CommitRecord,
    last: RecordedRefresh,
) -> Written:
    """Write the rows computed from the recorded state; commit no data if they are the same."""
    order, content = planned.order, planned.prepared.content
    if content is None:
        if not format.untouched_since(order, last.version):
            raise DiffMismatchError(f"{order.name} was changed by something other than a refresh")
        return format.advance(session, order, record, base=last.version)
    strategy = Strategy.INCREMENTAL
    return format.write(content, order, record, partial=False, strategy=strategy)


def _compute_and_replace(
    planned: PlannedRefresh,
    session: SparkSession,
    format: TableFormat,
    operation: Operation,
    resources: ExitStack,
) -> Written:
    """Run the steps of a refresh that computes the query."""
    order, plan, task = planned.order, planned.plan, planned.task
    frame, record = _compute_recorded(planned, session, operation, resources)
    if frame is None:
        frame = bind_time(planned.frame, order.logical_time)
    if len(frame.columns) != len(order.columns):
        raise error(
            Code.MT_COLUMN_COUNT,
            declared=len(order.columns),
            produced=len(frame.columns),
            available=", ".join(frame.columns),
        )
    operation.check()
    return format.write(
        frame,
        order,
        record,
        partitions=plan.partitions,
        predicate=task.predicate,
        partial=task.is_partial and not _is_whole(planned),
    )


def _compute_recorded(
    planned: PlannedRefresh, session: SparkSession, operation: Operation, resources: ExitStack
) -> tuple[DataFrame | None, CommitRecord]:
    """Run the steps before the commit.

    Return the query's rows, None if nothing was recorded with them, and the record from which the
    next refresh continues. If recording fails, the rows are computed without it.
    """
    if planned.task.is_partial:
        return None, planned.record()
    catalyst, checked = Catalyst(session), planned.known_broken
    try:
        for step in planned.plan.steps:
            match step:
                case CheckRows():
                    checked = check_of(planned.query.preconditions, catalyst).run()
                    operation.check()
                    if checked is not RowPreconditions.SATISFIED:
                        break
                case ComputeQuery(recording=recording) if recording is not None:
                    rows, state = _compute_with_state(planned, recording, catalyst, resources)
                    return rows, planned.record(incremental=state, preconditions=checked)
    except Exception as failed:
        operation.check()
        headline = to_server_error(failed).headline
        logger.warning("%s is computed without a record: %s", planned.order.name, headline)
        return None, planned.record()
    return None, planned.record(preconditions=checked)


def _compute_with_state(
    planned: PlannedRefresh, recording: Recording, catalyst: Catalyst, resources: ExitStack
) -> tuple[DataFrame, IncrementalState]:
    """Return the query's rows with their partial aggregates or what is known beyond a LIMIT."""
    query = planned.query
    if recording is Recording.AGGREGATES and query.totals is not None:
        few = planned.last is not None and _has_state(planned.last)
        found = compute_state(query.totals, catalyst, resources, few=few)
        if found is None:  # from now on, Spark computes the rows
            return planned.frame, TooManyGroups()
        return catalyst.frame(found.plan), found.state
    if query.first is None:
        raise AssertionError("only totals and first rows are recorded")
    first = compute_first_rows(query.first, catalyst, resources)
    return catalyst.frame(first.plan), first.state


def _has_state(last: RecordedRefresh) -> bool:
    return isinstance(last.record.incremental, AggregateState | KnownRows)


def _outcome(planned: PlannedRefresh, written: Written) -> RefreshOutcome:
    plan, last = planned.plan, planned.last
    work = planned.prepared.work or planned.query.work
    return RefreshOutcome(
        plan=plan,
        from_version=last.version if last is not None else None,
        to_version=written.version,
        metrics=RunMetrics(
            rows_read=work.rows_read,
            rows_written=written.rows,
            rows_inserted=written.rows_inserted,
            rows_deleted=written.rows_deleted,
            rows_copied=written.rows_copied,
            files_written=written.files_written,
            bytes_written=written.bytes_written,
            affected_keys=plan.affected_keys,
            predicted_seconds=plan.predicted_seconds,
            full_seconds=plan.full_seconds,
            work=work,
            attempt=planned.prepared.attempt,
            expectations=written.expectations,
        ),
        data_timestamp=planned.order.logical_time,
    )


def _is_whole(planned: PlannedRefresh) -> bool:
    """Say whether the partitions not replaced already come from the same versions."""
    last, order = planned.last, planned.order
    return (
        last is not None
        and not last.partial
        and last.foreign_version is None
        and last.record.definition_version == order.definition_version
        and last.record.fingerprint == planned.fingerprint
        and dict(last.record.vector) == dict(planned.plan.vector)
        and all(source.kind is SourceKind.VERSIONED for source in order.sources)
    )
