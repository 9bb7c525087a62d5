"""Lists the steps of a refresh from its plan and evidence."""

from __future__ import annotations

from tidegate_server.core.model.runs import ChangeMethod
from tidegate_server.core.refresh.request import Recompute, RefreshOrder
from tidegate_server.core.refresh.steps import (
    AdvanceAggregates,
    AppendRows,
    ChangeRows,
    CheckRows,
    ComputeChange,
    ComputeQuery,
    MergeFirstRows,
    MergeGroups,
    ReadChange,
    Recording,
    ReplaceRows,
    Scope,
    Step,
)
from tidegate_server.engine.planning.planner import Evidence


def incremental_steps(order: RefreshOrder, evidence: Evidence) -> tuple[Step, ...]:
    """Return the steps of an incremental refresh."""
    reads = (
        ReadChange(
            source=change.source,
            before=change.before,
            after=change.after,
            method=change.method,
            rows=change.rows,
        )
        for change in evidence.changes
        if change.method is not ChangeMethod.UNCHANGED
    )
    scope, derive, commit = _derivation(order, evidence)
    compute = ComputeChange(
        scope=scope,
        keyed=evidence.keyed and scope is not Scope.GROUPED,
        compared=evidence.rereading,
    )
    check = [CheckRows(with_change=scope is Scope.QUERY)] if evidence.conditional else []
    return (*reads, compute, *check, *derive, commit)


def _derivation(
    order: RefreshOrder, evidence: Evidence
) -> tuple[Scope, tuple[Step, ...], ChangeRows | AppendRows | ReplaceRows]:
    """Return whose change is computed, how the table's rows follow from it, and the commit."""
    if evidence.leading:
        return Scope.ORDERED, (MergeFirstRows(),), ReplaceRows()
    if evidence.algebraic and evidence.recorded:
        return Scope.GROUPED, (AdvanceAggregates(),), ReplaceRows()
    if evidence.algebraic:
        return Scope.GROUPED, (MergeGroups(),), ChangeRows()
    checked = order.expectations or order.assertions or order.key is not None
    return Scope.QUERY, (), AppendRows() if evidence.appends and not checked else ChangeRows()


def full_steps(
    task: Recompute, *, checks: bool = False, recording: Recording | None = None
) -> tuple[Step, ...]:
    """Return the steps of a refresh that computes the query.

    :param checks: whether the query's preconditions are checked first.
    :param recording: what is recorded if they are satisfied.
    """
    return (
        *([CheckRows()] if checks else []),
        ComputeQuery(recording=recording),
        ReplaceRows(partitions=task.partitions, predicate=task.predicate),
    )
