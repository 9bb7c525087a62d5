"""Runs a refresh: versions, plan, one commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.model.names import DEFAULT_CATALOG, DEFAULT_SCHEMA
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import Rejection, RunMetrics, Strategy
from tidegate_server.core.model.versions import Source, SourceKind, is_streaming
from tidegate_server.core.refresh.request import (
    Recompute,
    RefreshOrder,
    RefreshOutcome,
    RefreshPlan,
    RefreshPolicy,
)
from tidegate_server.core.refresh.waves import forward
from tidegate_server.engine.definition.analyze import analyzed_plan, reject_reading_functions
from tidegate_server.engine.incremental.aggregate_state import compute_state
from tidegate_server.engine.incremental.apply import apply, consolidate
from tidegate_server.engine.incremental.preconditions import check_rows
from tidegate_server.engine.incremental.query import Query, read_query
from tidegate_server.engine.incremental.strategy import (
    IncrementalPlanner,
    IncrementalWork,
    adds_up,
    merges,
    planned_once,
)
from tidegate_server.engine.incremental.top_n import compute_first_rows
from tidegate_server.engine.jvm.errors import to_server_error
from tidegate_server.engine.jvm.references import release_references
from tidegate_server.engine.planning.planner import (
    plan_refresh,
    records_totals,
    with_region,
    without_fingerprints,
)
from tidegate_server.engine.planning.region import ImmutableRegion, region_of
from tidegate_server.engine.query.catalyst import Catalyst
from tidegate_server.engine.query.determinism import time_dependent, unstable_parts
from tidegate_server.engine.query.logical_time import bind_time
from tidegate_server.engine.query.resolution import Tables, fingerprint_of
from tidegate_server.engine.refresh.ingest import ingest, plan_ingest
from tidegate_server.engine.refresh.source_drift import (
    check_present,
    check_types,
    explain_failures,
    recorded_columns,
)
from tidegate_server.engine.refresh.unchanged import AnalyzedQueries
from tidegate_server.engine.session.operations import Operation
from tidegate_server.engine.session.sessions import apply_settings
from tidegate_server.engine.storage.base import DiffMismatchError, TableFormat, Written
from tidegate_server.engine.storage.commit_record import (
    AggregateState,
    Boundary,
    CommitRecord,
    IncrementalState,
    RecordedRefresh,
    RowPreconditions,
    TooManyGroups,
)
from tidegate_server.engine.storage.entries import cache_entries
from tidegate_server.engine.storage.plain import list_files
from tidegate_server.engine.storage.region import mutable_rows

logger = logging.getLogger(__name__)

_analyzed = AnalyzedQueries()

# Reasons to refresh fully even with the policy INCREMENTAL_STRICT.
_STARTS = frozenset(
    {
        *(Reason.FIRST_REFRESH, Reason.FORCED, Reason.FOREIGN_COMMIT),
        *(Reason.DEFINITION_CHANGED, Reason.FROM_BEGINNING, Reason.PARTIAL_BEFORE),
        # Once: the source's earlier rows are no longer known.
        *(Reason.SOURCE_CHANGE_UNKNOWN, Reason.SOURCES_REPLACED, Reason.TOTALS_NOT_RECORDED),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRefresh:
    """A plan with its inputs."""

    order: RefreshOrder
    task: Recompute
    region: ImmutableRegion
    prepared: IncrementalWork
    last: RecordedRefresh | None
    query: Query
    fingerprint: str | None
    """The query's; None if its rows differ each time."""
    source_commits: Mapping[str, str]
    tables: Tables
    frame: DataFrame
    """The analyzed query; it reads the files listed at analysis."""

    @property
    def plan(self) -> RefreshPlan:
        """The chosen plan."""
        return self.prepared.plan

    @property
    def has_too_many_groups(self) -> bool:
        """Whether the last refresh of the same query had too many groups to record."""
        if self.last is None or self.last.record.fingerprint != self.fingerprint:
            return False
        return isinstance(self.last.record.incremental, TooManyGroups)

    def record(
        self,
        *,
        incremental: IncrementalState | None = None,
        preconditions: RowPreconditions | None = None,
    ) -> CommitRecord:
        """Return the record for the commit."""
        if incremental is None and self.has_too_many_groups:
            incremental = TooManyGroups()
        return CommitRecord(
            vector=self.plan.vector,
            definition_version=self.order.definition_version,
            logical_time=self.order.logical_time,
            fingerprint=self.fingerprint,
            source_commits=self.source_commits,
            incremental=incremental,
            preconditions=preconditions,
            filled=self.region.filled,
            frozen_at=self.region.frozen_at,
        )


def source_versions(
    sources: Sequence[Source], spark: SparkSession, format: TableFormat
) -> Mapping[str, int]:
    """Return the newest version of every versioned source by its *current* table id.

    A source that was dropped and created again thus appears under another id. Sources without
    versions have the fingerprint of their files, if one can be computed.
    """
    found = (format.find(s.name) for s in sources if s.kind is SourceKind.VERSIONED)
    plain = [source for source in sources if source.kind is SourceKind.PLAIN]
    files = {source.table_id: fingerprint_of(spark, source.name) for source in plain}
    return {key: known for key, known in files.items() if known is not None} | {
        state.table_id: state.version for state in found if state is not None
    }


def explain(
    order: RefreshOrder, task: Recompute, spark: SparkSession, format: TableFormat
) -> RefreshPlan:
    """Return the plan of a refresh now.

    :raises ServerError: as :func:`refresh`.
    """
    session = spark.newSession()
    apply_settings(session, order.settings)
    with release_references():
        if is_streaming(order.sources):
            return plan_ingest(order, task)
        with ExitStack() as resources, cache_entries(session, order.tables):
            return _plan(order, task, session, format, lambda: None, resources).plan


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
    nothing = _analyzed.nothing_to_do(order, task, spark, format)
    if nothing is not None:
        return _without_work(*nothing)
    session = spark.newSession()
    apply_settings(session, order.settings)
    with release_references():
        return _refresh(order, task, session, format, operation)


def _refresh(
    order: RefreshOrder,
    task: Recompute,
    session: SparkSession,
    format: TableFormat,
    operation: Operation,
) -> RefreshOutcome:
    if is_streaming(order.sources):
        return ingest(order, task, session, format, operation)
    with ExitStack() as resources:
        with cache_entries(session, order.tables):
            planned = _plan(order, task, session, format, operation.check, resources)
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
        if last is not None and last.epoch >= order.epoch:
            raise error(
                Code.MT_REFRESH_FENCED, epoch=order.epoch, table=str(order.name), current=last.epoch
            )
        operation.check()
        outcome = _carried_out(planned, session, format, operation, resources)
        return replace(outcome, sources=planned.order.sources)


# ---- planning ----------------------------------------------------------------------------------


def _plan(
    order: RefreshOrder,
    task: Recompute,
    session: SparkSession,
    format: TableFormat,
    check: Callable[[], None],
    resources: ExitStack,
) -> PlannedRefresh:
    check_present(order, session, format)
    last = format.last_commit(order.name, order.table_id)
    region = region_of(order, last)
    read = last.record.vector if last is not None else {}
    tables = Tables(
        session,
        format,
        recorded=recorded_columns(order),
        wanted=forward(task.vector or {}, read),
        fingerprinted=True,
    )
    with explain_failures(order, session):
        text = tables.pin(order.expanded_query, DEFAULT_CATALOG, DEFAULT_SCHEMA)
        frame = session.sql(text)
        query = read_query(order, session, tables, text, frame)
        tree = analyzed_plan(frame)
    order = replace(order, sources=tables.ordered_sources(order.sources))
    check_types(order, tree)
    reject_reading_functions(tree)
    names = time_dependent(unstable_parts(tree))
    stable = query.stable and not names
    # Functions such as rand get a new seed, and so another text, each time.
    fingerprint = query.fingerprint if stable else None
    _analyzed.remember(order, fingerprint, tables, session)
    others = tables.other_histories(last.record) if last is not None else []
    full = plan_refresh(
        order,
        task,
        tables.vector(),
        last,
        fingerprint=fingerprint,
        stable=stable,
        others=tuple(map(str, others)),
    )
    if full.reason_code is Reason.UNSTABLE_QUERY and names:
        full = replace(full, reason_text=f"the query reads {', '.join(names)}")
    planned = PlannedRefresh(
        order=order,
        task=task,
        region=region,
        prepared=IncrementalWork(plan=full),
        last=last,
        query=query,
        fingerprint=fingerprint,
        source_commits=tables.commits(),
        tables=tables,
        frame=frame,
    )
    if last is not None and full.reason_code is Reason.SOURCES_CHANGED:
        preparation = IncrementalPlanner(
            order,
            session,
            format,
            tables,
            query,
            last,
            check=check,
            resources=resources,
            frozen_at=region.frozen_at,
        )
        planned = replace(planned, prepared=_prepare(preparation, full))
    _check_policy(planned)
    plan = with_region(planned.plan, order, region)
    return replace(planned, prepared=replace(planned.prepared, plan=plan))


def _prepare(preparation: IncrementalPlanner, full: RefreshPlan) -> IncrementalWork:
    try:
        return preparation.prepare(full)
    except ServerError:
        raise
    except Exception as failed:
        # If an incremental rule fails, the full query may still succeed.
        preparation.check()
        logger.exception("%s cannot be refreshed incrementally", preparation.order.name)
        return IncrementalWork(plan=_full_after_failure(full, failed))


def _full_after_failure(plan: RefreshPlan, failure: Exception) -> RefreshPlan:
    """Return a full refresh to replace a failed incremental one."""
    if isinstance(failure, DiffMismatchError):
        code, text = Reason.TABLE_DIFFERS, str(failure)
    else:
        headline = to_server_error(failure).headline
        code, text = Reason.INCREMENTAL_FAILED, " ".join(headline.split())
    rejection = Rejection(strategy=Strategy.INCREMENTAL.value, reason_code=code, reason_text=text)
    return replace(
        plan,
        strategy=Strategy.FULL,
        reason_code=code,
        reason_text=text,
        rejected=(rejection,),
    )


def _check_policy(planned: PlannedRefresh) -> None:
    """:raises ServerError: MT_NOT_INCREMENTAL if the policy forbids this full refresh."""
    order, plan = planned.order, planned.plan
    if order.policy is not RefreshPolicy.INCREMENTAL_STRICT or plan.strategy is not Strategy.FULL:
        return
    if plan.reason_code in _STARTS:
        return
    reasons = [f"{r.reason_text} ({r.reason_code})" for r in plan.rejected]
    shown = "; ".join(reasons) or f"{plan.reason_text} ({plan.reason_code})"
    raise error(Code.MT_NOT_INCREMENTAL, table=str(order.name), reasons=shown)


# ---- execution ---------------------------------------------------------------------------------


def _carried_out(
    planned: PlannedRefresh,
    session: SparkSession,
    format: TableFormat,
    operation: Operation,
    resources: ExitStack,
) -> RefreshOutcome:
    if planned.plan.strategy is Strategy.NO_DATA:
        return _without_work(planned.plan, planned.last)
    planned = _list_source_files(planned)
    if planned.plan.strategy is Strategy.INCREMENTAL:
        try:
            return _outcome(planned, _apply_delta(planned, session, format))
        except ServerError:
            raise
        except Exception as failed:
            operation.check()
            logger.exception("%s is refreshed fully instead", planned.order.name)
            plan = with_region(
                _full_after_failure(planned.plan, failed), planned.order, planned.region
            )
            planned = replace(planned, prepared=IncrementalWork(plan=plan))
            _check_policy(planned)
    return _outcome(planned, _write_all(planned, session, format, operation, resources))


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
    plan = with_region(plan, planned.order, planned.region)
    planned = replace(planned, prepared=IncrementalWork(plan=plan))
    _check_policy(planned)
    return planned


def _without_work(plan: RefreshPlan, last: RecordedRefresh | None) -> RefreshOutcome:
    before = last.version if last is not None else None
    return RefreshOutcome(
        plan=plan, from_version=before, to_version=before, metrics=RunMetrics(rows_written=0)
    )


def _apply_delta(planned: PlannedRefresh, session: SparkSession, format: TableFormat) -> Written:
    """Apply the diff; unconstrained added rows are appended directly."""
    order, prepared, last = planned.order, planned.prepared, planned.last
    record = planned.record(incremental=prepared.incremental, preconditions=prepared.preconditions)
    if last is not None and prepared.incremental is not None:
        with planned_once(session, prepared.few):
            return _write_continued(planned, session, format, record, last)
    if prepared.diff is None or last is None:
        raise AssertionError("an incremental refresh has a diff and something to build on")
    constrained = order.expectations or order.assertions or order.key is not None
    diff, appends = prepared.diff, prepared.appends and not constrained
    with planned_once(session, prepared.few):
        if isinstance(diff, DataFrame):
            if appends and format.untouched_since(order, last.version):
                rows = format.fit_columns(order, diff.drop(diff.columns[-1]))
                rows = mutable_rows(rows, order, record.frozen_at)
                return format.append(rows, order, record, base=last.version)
            diff = consolidate(format, order, diff, record.frozen_at)
        return apply(session, format, order, diff, record, base=last.version)


def _write_continued(
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


def _write_all(
    planned: PlannedRefresh,
    session: SparkSession,
    format: TableFormat,
    operation: Operation,
    resources: ExitStack,
) -> Written:
    order, plan = planned.order, planned.plan
    some = plan.strategy is Strategy.PARTITION
    frame, record = None, planned.record()
    if not some:
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
    partial = some and not _is_whole(planned)
    return format.write(
        frame,
        order,
        record,
        partitions=plan.partitions,
        predicate=planned.task.predicate,
        partial=partial,
    )


def _compute_recorded(
    planned: PlannedRefresh, session: SparkSession, operation: Operation, resources: ExitStack
) -> tuple[DataFrame | None, CommitRecord]:
    """Return the query's rows, if this computed them, and the record from which the next refresh
    continues."""
    order, preconditions = planned.order, planned.query.preconditions
    if planned.fingerprint is None:
        return None, planned.record()
    if preconditions and (known := _known_broken(planned)):
        return None, planned.record(preconditions=known)
    if not records_totals(order, planned.query.rows):
        return None, planned.record()
    catalyst = Catalyst(session)
    try:
        checked = None
        if preconditions:
            checked = check_rows(preconditions, catalyst)
            operation.check()
            if checked is not RowPreconditions.SATISFIED:
                return None, planned.record(preconditions=checked)
        rows, state = _computed_with_state(planned, catalyst, resources)
        return rows, planned.record(incremental=state, preconditions=checked)
    except Exception as failed:
        operation.check()
        headline = to_server_error(failed).headline
        logger.warning("%s is computed without a record: %s", order.name, headline)
        return None, planned.record()


def _known_broken(planned: PlannedRefresh) -> RowPreconditions | None:
    """Return the precondition assumed to be broken without another check.

    The check for ties may cost half as much as the query. If ties were found before, the policy
    AUTO repeats it only in a forced full refresh.
    """
    last = planned.last
    if planned.prepared.preconditions is not None or last is None:
        return planned.prepared.preconditions
    tied = last.record.preconditions is RowPreconditions.TIED
    same = tied and last.record.fingerprint == planned.fingerprint
    again = planned.task.force or planned.order.policy is not RefreshPolicy.AUTO
    return RowPreconditions.TIED if same and not again else None


def _computed_with_state(
    planned: PlannedRefresh, catalyst: Catalyst, resources: ExitStack
) -> tuple[DataFrame | None, IncrementalState | None]:
    """Return the query's rows with their partial aggregates or LIMIT boundary; (None, None) if the
    query has neither."""
    query, order = planned.query, planned.order
    if query.totals is not None and not planned.has_too_many_groups and adds_up(order):
        few = planned.last is not None and _has_state(planned.last)
        found = compute_state(query.totals, catalyst, resources, few=few)
        if found is None:  # from now on, Spark computes the rows
            return planned.frame, TooManyGroups()
        return catalyst.frame(found.plan), found.state
    if query.first is not None and merges(order, planned.region.frozen_at):
        rows = compute_first_rows(query.first, catalyst, resources)
        return catalyst.frame(rows.plan), rows.boundary
    return None, None


def _has_state(last: RecordedRefresh) -> bool:
    return isinstance(last.record.incremental, AggregateState | Boundary)


def _outcome(planned: PlannedRefresh, written: Written) -> RefreshOutcome:
    plan, last = planned.plan, planned.last
    return RefreshOutcome(
        plan=plan,
        from_version=last.version if last is not None else None,
        to_version=written.version,
        metrics=RunMetrics(
            rows_read=_rows_read(planned),
            rows_written=written.rows,
            rows_inserted=written.rows_inserted,
            rows_deleted=written.rows_deleted,
            rows_copied=written.rows_copied,
            files_written=written.files_written,
            bytes_written=written.bytes_written,
            affected_keys=plan.affected_keys,
            predicted_seconds=plan.predicted_seconds,
            full_seconds=plan.full_seconds,
            expectations=written.expectations,
        ),
        data_timestamp=planned.order.logical_time,
    )


def _rows_read(planned: PlannedRefresh) -> int:
    """Return the cost model's own row count, so that it learns from the run."""
    incremental = planned.plan.strategy is Strategy.INCREMENTAL
    return planned.prepared.rows_read if incremental else planned.query.rows


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
