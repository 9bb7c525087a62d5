"""Chooses an incremental refresh if possible, and runs its steps up to the commit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.request import RefreshPlan
from tidegate_server.engine.incremental.apply import ConsolidatedDelta
from tidegate_server.engine.incremental.evidence import (
    Continuation,
    Findings,
    continuation_of,
    evidence_of,
    gather,
)
from tidegate_server.engine.incremental.preconditions import NotFollowingError
from tidegate_server.engine.incremental.runner import (
    DeclinedError,
    RefreshContext,
    StepRunner,
    planned_once,
)
from tidegate_server.engine.planning.planner import incremental_work, plan_incremental
from tidegate_server.engine.query.resolution import Tables
from tidegate_server.engine.storage.commit_record import IncrementalState, RowPreconditions


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalWork:
    """A plan, and what its steps computed if it is incremental."""

    plan: RefreshPlan
    diff: DataFrame | ConsolidatedDelta | None = None
    """The change of the table's rows."""
    content: DataFrame | None = None
    """All of the table's rows if computed from the recorded incremental state; None if they stay
    the same."""
    rows_read: int = 0
    """The rows read according to the cost model."""
    few: bool = False
    """Whether the sources' change is small."""
    incremental: IncrementalState | None = None
    """The state to record, from which the next refresh continues."""
    preconditions: RowPreconditions | None = None
    """The result to record; None if this refresh has not checked them."""


def prepare(context: RefreshContext, tables: Tables, full: RefreshPlan) -> IncrementalWork:
    """Return an incremental refresh if possible, else the planned full one.

    :raises pyspark.errors.PySparkException: if changes or keys cannot be read.
    """
    order, query, last, frozen_at = context.order, context.query, context.last, context.frozen_at
    findings = gather(order, context.spark, context.format, tables, query, last, frozen_at)
    continuation = continuation_of(order, query, last.record, frozen_at)
    try:
        return _choose(context, full, findings, continuation)
    except NotFollowingError as failed:
        again = Continuation(
            obstacle=failed.obstacle,
            preconditions=failed.broken or continuation.preconditions,
        )
        work = _choose(context, full, findings, again)
        return replace(work, preconditions=failed.broken)


def _choose(
    context: RefreshContext, full: RefreshPlan, findings: Findings, continuation: Continuation
) -> IncrementalWork:
    evidence = evidence_of(context.order, context.query, findings, continuation, context.frozen_at)
    plan = plan_incremental(context.order, full, evidence)
    if plan.strategy is not Strategy.INCREMENTAL:
        return IncrementalWork(plan=plan)
    runner = StepRunner(context, findings.changes, continuation, evidence, full, plan)
    try:
        with planned_once(context.spark, evidence.few):
            runner.run()
    except DeclinedError as declined:
        return IncrementalWork(plan=declined.plan)
    _, work = incremental_work(runner.evidence)
    return IncrementalWork(
        plan=runner.plan,
        diff=runner.diff,
        content=runner.content,
        rows_read=work.rows_read,
        few=evidence.few,
        incremental=runner.incremental,
        preconditions=continuation.preconditions,
    )
