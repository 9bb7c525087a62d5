"""Chooses an incremental refresh if possible, and runs its steps up to the commit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame

from tidegate_server.core.model.runs import Attempt, Strategy, Work
from tidegate_server.core.refresh.request import RefreshPlan
from tidegate_server.engine.incremental.apply import ConsolidatedDelta
from tidegate_server.engine.incremental.evidence import (
    Continuation,
    Findings,
    continuation_of,
    evidence_of,
    gather,
)
from tidegate_server.engine.incremental.job_settings import job_settings
from tidegate_server.engine.incremental.preconditions import NotFollowingError
from tidegate_server.engine.incremental.runner import (
    DeclinedError,
    RefreshContext,
    StepRunner,
)
from tidegate_server.engine.planning.planner import (
    Evidence,
    incremental_work,
    plan_incremental,
    would_be_full,
)
from tidegate_server.engine.query.resolution import Tables
from tidegate_server.engine.storage.commit_record import IncrementalState, RowPreconditions
from tidegate_server.engine.storage.jvm import temporary_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalWork:
    """A plan, and what its steps computed if it is incremental."""

    plan: RefreshPlan
    diff: DataFrame | ConsolidatedDelta | None = None
    """The change of the table's rows."""
    content: DataFrame | None = None
    """All of the table's rows if computed from the recorded incremental state; None if they stay
    the same."""
    work: Work | None = None
    """That of an incremental refresh, according to the cost model."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark's settings for the commit."""
    incremental: IncrementalState | None = None
    """The state to record, from which the next refresh continues."""
    preconditions: RowPreconditions | None = None
    """The result to record; None if this refresh has not checked them."""
    attempt: Attempt | None = None
    """The incremental refresh that was given up."""
    recorded_in_vain: bool = False
    """Whether the change is too large to continue from anything that could be recorded."""


def prepare(context: RefreshContext, tables: Tables, full: RefreshPlan) -> IncrementalWork:
    """Return an incremental refresh if possible, else the planned full one.

    :raises pyspark.errors.PySparkException: if changes or keys cannot be read.
    """
    order, query, last, frozen_at = context.order, context.query, context.last, context.frozen_at
    findings = gather(order, context.spark, context.format, tables, query, last, frozen_at)
    continuation = continuation_of(order, query, last.record, frozen_at, findings.changed)
    evidence = evidence_of(order, query, findings, continuation, frozen_at)
    started = time.monotonic()
    try:
        return _choose(context, full, findings, continuation, evidence)
    except NotFollowingError as failed:
        again = Continuation(
            obstacle=failed.obstacle,
            preconditions=failed.broken or continuation.preconditions,
            recordable=continuation.recordable,
        )
        lost = _attempt(evidence, started)
        evidence = evidence_of(order, query, findings, again, frozen_at)
        work = _choose(context, full, findings, again, evidence)
        if work.plan.strategy is Strategy.FULL:
            work = replace(work, attempt=work.attempt or lost)
        return replace(work, preconditions=failed.broken)


def _choose(
    context: RefreshContext,
    full: RefreshPlan,
    findings: Findings,
    continuation: Continuation,
    evidence: Evidence,
) -> IncrementalWork:
    plan = plan_incremental(context.order, full, evidence)
    if plan.strategy is not Strategy.INCREMENTAL:
        return IncrementalWork(plan=plan, recorded_in_vain=_in_vain(context, evidence))
    started = time.monotonic()
    settings_for = partial(
        job_settings,
        context.spark,
        columns=len(context.order.columns),
        rows=evidence.rows_in_sources + evidence.rows_in_table,
        little_changed=evidence.few,
    )
    runner = StepRunner(context, findings.changes, continuation, evidence, full, plan)
    try:
        with temporary_settings(context.spark, settings_for()):
            runner.run()
    except DeclinedError as declined:
        # The way that was chosen, not the one that the runner may have turned to.
        attempt = _attempt(evidence, started)
        in_vain = _in_vain(context, runner.evidence)
        return IncrementalWork(plan=declined.plan, attempt=attempt, recorded_in_vain=in_vain)
    _, work = incremental_work(runner.evidence)
    return IncrementalWork(
        plan=runner.plan,
        diff=runner.diff,
        content=runner.content,
        work=work,
        settings=settings_for(copied=0 if evidence.appends else evidence.rows_in_table),
        incremental=runner.incremental,
        preconditions=continuation.preconditions,
    )


def _attempt(evidence: Evidence, started: float) -> Attempt:
    way, work = incremental_work(evidence)
    return Attempt(way=way.value, seconds=time.monotonic() - started, work=work)


def _in_vain(context: RefreshContext, evidence: Evidence) -> bool:
    """Say whether this refresh would be full even if the last one had recorded its state."""
    query = context.query
    continuing = replace(
        evidence,
        obstacles=(),
        algebraic=evidence.algebraic or query.totals is not None,
        recorded=query.totals is not None,
        leading=query.first is not None,
    )
    return would_be_full(context.order, continuing)
