"""Plans a refresh: versions, query, strategy and steps."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.names import DEFAULT_CATALOG, DEFAULT_SCHEMA
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import Attempt, Rejection, Strategy, Work
from tidegate_server.core.model.versions import Source, SourceKind, is_streaming
from tidegate_server.core.refresh.request import (
    Recompute,
    RefreshOrder,
    RefreshPlan,
    RefreshPolicy,
)
from tidegate_server.core.refresh.steps import Recording, Step
from tidegate_server.core.refresh.waves import forward
from tidegate_server.engine.definition.analyze import (
    analyzed_plan,
    reject_hiding_functions,
    reject_reading_functions,
)
from tidegate_server.engine.gate.gate import enforcing
from tidegate_server.engine.incremental.evidence import adds_up, merges
from tidegate_server.engine.incremental.query import Query, read_query
from tidegate_server.engine.incremental.runner import RefreshContext
from tidegate_server.engine.incremental.strategy import IncrementalWork, prepare
from tidegate_server.engine.jvm.errors import to_server_error
from tidegate_server.engine.jvm.references import release_references
from tidegate_server.engine.planning.cost import way_of
from tidegate_server.engine.planning.planner import (
    plan_refresh,
    records_totals,
    with_region,
)
from tidegate_server.engine.planning.region import ImmutableRegion, region_of
from tidegate_server.engine.planning.steps import full_steps
from tidegate_server.engine.query.determinism import time_dependent, unstable_parts
from tidegate_server.engine.query.resolution import Tables, fingerprint_of
from tidegate_server.engine.refresh.ingest import plan_ingest
from tidegate_server.engine.refresh.source_drift import (
    check_present,
    check_types,
    explain_failures,
    recorded_columns,
)
from tidegate_server.engine.refresh.unchanged import AnalyzedQueries
from tidegate_server.engine.session.sessions import apply_settings
from tidegate_server.engine.storage.base import (
    DiffMismatchError,
    SourceFormat,
    TableFormat,
    TableState,
    is_foreign,
)
from tidegate_server.engine.storage.commit_record import (
    CommitRecord,
    IncrementalState,
    RecordedRefresh,
    RowPreconditions,
    TooManyGroups,
)
from tidegate_server.engine.storage.sources import looked_up_once

logger = logging.getLogger(__name__)

analyzed_queries = AnalyzedQueries()
"""The queries of this process's last refreshes."""

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

    @property
    def known_broken(self) -> RowPreconditions | None:
        """The precondition assumed to be broken without another check.

        The check for ties may cost half as much as the query. If ties were found before, the
        policy AUTO repeats it only in a forced full refresh.
        """
        last, known = self.last, self.prepared.preconditions
        if not self.query.preconditions or self.fingerprint is None:
            return None
        if known is not None or last is None:
            return known
        tied = last.record.preconditions is RowPreconditions.TIED
        same = tied and last.record.fingerprint == self.fingerprint
        again = self.task.force or self.order.policy is not RefreshPolicy.AUTO
        return RowPreconditions.TIED if same and not again else None

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
    sources: Sequence[Source], spark: SparkSession, format: SourceFormat
) -> Mapping[str, int]:
    """Return the newest version of every versioned source by its *current* table id.

    A source that was dropped and created again thus appears under another id. Sources without
    versions have the fingerprint of their files, if one can be computed.
    """
    versioned = (source for source in sources if source.kind is SourceKind.VERSIONED)
    found = (_state_of(source, format) for source in versioned)
    plain = [source for source in sources if source.kind is SourceKind.PLAIN]
    files = {source.table_id: fingerprint_of(spark, source.name) for source in plain}
    return {key: known for key, known in files.items() if known is not None} | {
        state.table_id: state.version for state in found if state is not None
    }


def _state_of(source: Source, format: SourceFormat) -> TableState | None:
    """Return a source's state; None if its catalog cannot be used, which its refresh will say."""
    try:
        return format.find(source.name)
    except (PySparkException, Py4JError) as problem:
        if not is_foreign(source.name):
            raise
        logger.debug("the version of %s cannot be read: %s", source.name, problem)
        return None


def explain(
    order: RefreshOrder, task: Recompute, spark: SparkSession, format: TableFormat
) -> RefreshPlan:
    """Return the plan of a refresh now.

    :raises ServerError: as :func:`~.run.refresh`.
    """
    session = spark.newSession()
    apply_settings(session, order.settings)
    with release_references():
        if is_streaming(order.sources):
            return plan_ingest(order, task)
        with ExitStack() as resources, looked_up_once(session, order.tables):
            return plan_recompute(order, task, session, format, lambda: None, resources).plan


def plan_recompute(
    order: RefreshOrder,
    task: Recompute,
    session: SparkSession,
    format: TableFormat,
    check: Callable[[], None],
    resources: ExitStack,
) -> PlannedRefresh:
    """Plan a refresh and run the steps of an incremental one up to its commit.

    :param check: called between steps; raises if the refresh was canceled.
    :param resources: resources to release after the commit.
    :raises ServerError: as :func:`~.run.refresh`.
    """
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
        with enforcing(session, order.admission, order.executor):
            text = tables.pin(order.expanded_query, DEFAULT_CATALOG, DEFAULT_SCHEMA)
            reject_hiding_functions(tables.functions)  # a view may be another one by now
            frame = session.sql(text)
        # Reads the stored table as well, by its path, which the query's admission does not allow.
        query = read_query(order, session, tables, text, frame)
        tree = analyzed_plan(frame)
    defined = order.sources
    order = replace(order, sources=tables.ordered_sources(defined))
    check_types(order, tree)
    reject_reading_functions(tree)
    names = time_dependent(unstable_parts(tree))
    stable = query.stable and not names
    # Functions such as rand get a new seed, and so another text, each time.
    fingerprint = query.fingerprint if stable else None
    analyzed_queries.remember(order, fingerprint, tables, session)
    others = () if last is None else _other_sources(tables, defined, last.record)
    full = plan_refresh(
        order,
        task,
        tables.vector(),
        last,
        fingerprint=fingerprint,
        stable=stable,
        others=others,
        snapshots=tables.snapshots(),
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
        context = RefreshContext(
            order=order,
            spark=session,
            format=format,
            query=query,
            last=last,
            frozen_at=region.frozen_at,
            check=check,
            resources=resources,
        )
        planned = replace(planned, prepared=_prepare(context, tables, full))
    return with_steps(planned)


def _other_sources(
    tables: Tables, defined: Sequence[Source], last: CommitRecord
) -> tuple[str, ...]:
    """Return the sources that are not those of the last refresh, each with the difference."""
    now = {source.name.folded(): source for source in tables.sources.values()}
    replaced = [
        f"{source.name} is another table than the one read last"
        for source in defined
        if source.kind is SourceKind.VERSIONED and source.table_id in last.vector
        if (found := now.get(source.name.folded())) is not None
        if found.kind is SourceKind.VERSIONED and found.table_id != source.table_id
    ]
    return (*replaced, *tables.other_histories(last))


def _prepare(context: RefreshContext, tables: Tables, full: RefreshPlan) -> IncrementalWork:
    started = time.monotonic()
    try:
        return prepare(context, tables, full)
    except ServerError:
        raise
    except Exception as failed:
        # If an incremental rule fails, the full query may still succeed.
        context.check()
        logger.exception("%s cannot be refreshed incrementally", context.order.name)
        seconds = time.monotonic() - started
        return full_after_failure(full, failed, context.query.work, seconds)


def with_steps(planned: PlannedRefresh) -> PlannedRefresh:
    """Complete a plan by its steps and the immutable rows.

    :raises ServerError: MT_NOT_INCREMENTAL if the policy forbids this full refresh.
    """
    _check_policy(planned)
    plan = with_region(planned.plan, planned.order, planned.region)
    if plan.strategy in (Strategy.FULL, Strategy.PARTITION):
        plan = replace(plan, steps=_full_steps(planned))
    return replace(planned, prepared=replace(planned.prepared, plan=plan))


def _full_steps(planned: PlannedRefresh) -> tuple[Step, ...]:
    order, query, task = planned.order, planned.query, planned.task
    if (
        task.is_partial
        or planned.fingerprint is None
        or planned.known_broken is not None
        or not records_totals(order, query.work, in_vain=planned.prepared.recorded_in_vain)
    ):
        return full_steps(task)
    recording = None
    if query.totals is not None and not planned.has_too_many_groups and adds_up(order):
        recording = Recording.AGGREGATES
    elif query.first is not None and merges(order, planned.region.frozen_at):
        recording = Recording.BOUNDARY
    return full_steps(task, checks=bool(query.preconditions), recording=recording)


def full_after_failure(
    plan: RefreshPlan, failure: Exception, work: Work | None, seconds: float
) -> IncrementalWork:
    """Return the full refresh that replaces a failed incremental one.

    :param plan: of the failed refresh, or the full one from which it was derived.
    :param work: what the failed refresh was to do.
    :param seconds: its duration until it failed.
    """
    if isinstance(failure, DiffMismatchError):
        code, text = Reason.TABLE_DIFFERS, str(failure)
    else:
        headline = to_server_error(failure).headline
        code, text = Reason.INCREMENTAL_FAILED, " ".join(headline.split())
    rejection = Rejection(strategy=Strategy.INCREMENTAL.value, reason_code=code, reason_text=text)
    full = replace(
        plan,
        strategy=Strategy.FULL,
        reason_code=code,
        reason_text=text,
        rejected=(rejection,),
    )
    way = way_of(plan.reason_code)
    attempt = Attempt(way=way.value, seconds=seconds, work=work)
    return IncrementalWork(plan=full, attempt=attempt)


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
