"""Runs the steps of an incremental refresh up to the one that commits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.eligibility import Obstacle
from tidegate_server.core.refresh.request import RefreshOrder, RefreshPlan
from tidegate_server.core.refresh.steps import (
    AdvanceAggregates,
    CheckRows,
    ComputeChange,
    MergeFirstRows,
    MergeGroups,
    ReadChange,
    Scope,
    Step,
)
from tidegate_server.engine.incremental.aggregate_state import Recorded, Totals, advance_state
from tidegate_server.engine.incremental.analysis.classify import is_key
from tidegate_server.engine.incremental.analysis.shape import Node
from tidegate_server.engine.incremental.apply import ConsolidatedDelta, consolidate
from tidegate_server.engine.incremental.changes import WEIGHT, Change
from tidegate_server.engine.incremental.delta import (
    ChangedSource,
    DeltaBuilder,
    Replaced,
    Weighted,
)
from tidegate_server.engine.incremental.evidence import Continuation
from tidegate_server.engine.incremental.keys import Keys, collect_groups, restrict, restrict_roughly
from tidegate_server.engine.incremental.mergeable_aggregates import (
    DOUBT,
    FIRST,
    Algebra,
    changed_groups,
    combine_groups,
)
from tidegate_server.engine.incremental.preconditions import (
    NotFollowingError,
    check_of,
    require,
)
from tidegate_server.engine.incremental.query import Query
from tidegate_server.engine.incremental.top_n import FirstRows, merge_change, project_change
from tidegate_server.engine.planning.planner import Evidence, plan_incremental
from tidegate_server.engine.planning.steps import incremental_steps
from tidegate_server.engine.query.catalyst import Catalyst
from tidegate_server.engine.storage.base import TableFormat
from tidegate_server.engine.storage.commit_record import (
    AggregateState,
    IncrementalState,
    KnownRows,
    RecordedRefresh,
)
from tidegate_server.engine.storage.exact import quote_column
from tidegate_server.engine.storage.jvm import items

# Up to this many rows, reading the whole table saves the job that collects the keys.
_FEW = 250_000
_KEY_LIMIT = 10_000
_UNRECORDED = Obstacle(
    code=Reason.TOTALS_NOT_RECORDED, text="the last refresh recorded no totals of the groups"
)


T = TypeVar("T")


class DeclinedError(Exception):
    """An incremental refresh does not pay."""

    def __init__(self, plan: RefreshPlan) -> None:
        super().__init__(plan.reason_text)
        self.plan = plan
        """The full refresh to run instead."""


class _GroupsInDoubtError(Exception):
    """The stored groups and the change do not determine the new groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshContext:
    """One refresh of a table that was refreshed before."""

    order: RefreshOrder
    spark: SparkSession
    format: TableFormat
    query: Query
    last: RecordedRefresh
    frozen_at: datetime | None
    check: Callable[[], None]
    """Called between steps; raises if the refresh was canceled."""
    resources: ExitStack
    """Resources to release after the commit."""


@dataclass(slots=True)
class StepRunner:
    """Runs steps in order; each may use the results of earlier ones."""

    context: RefreshContext
    changes: Mapping[str, Change]
    """By table id."""
    continuation: Continuation
    evidence: Evidence
    full: RefreshPlan
    """The plan of a full refresh."""
    plan: RefreshPlan
    """The plan to run, with the affected keys counted so far."""
    diff: DataFrame | ConsolidatedDelta | None = None
    """The argument of :func:`consolidate` or its result."""
    content: DataFrame | None = None
    """All rows of the table; None if they stay the same."""
    incremental: IncrementalState | None = None
    """The state to record, from which the next refresh continues."""
    _change: Weighted | None = None
    _sources: dict[str, ChangedSource] = field(default_factory=dict)
    _builder: DeltaBuilder = field(init=False)
    _started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._builder = DeltaBuilder(
            catalyst=Catalyst(self.context.spark),
            changed=self._sources,
            key_limit=_KEY_LIMIT,
            check=self.context.check,
            accept=self._accept,
            resources=self.context.resources,
            rows_in_table=self.evidence.rows_in_table,
            preconditions=self.context.query.preconditions,
        )

    def run(self) -> None:
        """Run all steps but the last one, which commits.

        :raises DeclinedError: if too many keys are affected.
        :raises NotFollowingError: if the rows do not follow from the recorded state.
        """
        try:
            self._run_steps()
        except _GroupsInDoubtError:
            self.evidence = replace(self.evidence, algebraic=False)
            self._accept(self._builder.affected)
            self._run_steps()

    def _run_steps(self) -> None:
        steps = incremental_steps(self.context.order, self.evidence)
        self.plan = replace(self.plan, steps=steps)
        for step in steps[:-1]:
            self._run(step)

    def _accept(self, affected: int | None) -> None:
        """Plan again with the number of affected keys, None if rows are not found by keys."""
        spent = time.monotonic() - self._started
        evidence = replace(self.evidence, affected_keys=affected, spent=spent)
        plan = plan_incremental(self.context.order, self.full, evidence)
        if plan.strategy is not Strategy.INCREMENTAL:
            raise DeclinedError(plan)
        self.plan = replace(plan, steps=self.plan.steps)

    def _run(self, step: Step) -> None:
        match step:
            case ReadChange():
                self._read_change(step)
            case ComputeChange():
                self._compute_change(step)
            case CheckRows(with_change=True):
                self._check_with_change()
            case CheckRows():
                self._builder.check_pending()
            case MergeGroups():
                self._merge_groups()
            case AdvanceAggregates():
                self._advance_aggregates()
            case MergeFirstRows():
                self._merge_first_rows()
            case _:
                raise AssertionError(f"{step.name} is not a step of an incremental refresh")

    # ---- steps -----------------------------------------------------------------------------

    def _read_change(self, step: ReadChange) -> None:
        id_, change = next(
            (id_, c) for id_, c in self.changes.items() if str(c.source.name) == step.source
        )
        if id_ in self._sources:
            return
        if change.read is None:
            raise AssertionError(f"the change of {step.source} is not known")
        frame = change.read(names := self._columns_used(id_))
        if change.release is not None:
            self.context.resources.callback(change.release)
        if not self.evidence.appends:
            # Keys and rows must come from the same change.
            frame = frame.persist()
            self.context.resources.callback(frame.unpersist)
        spark = self.context.spark
        pinned = self.context.format.sources.version_sql(change.source.name, change.base)
        self._sources[id_] = ChangedSource(
            change=frame,
            before=lambda: spark.sql(f"SELECT {', '.join(map(quote_column, names))} FROM {pinned}"),
            few=self.evidence.few,
        )

    def _columns_used(self, source: str) -> Sequence[str]:
        """Return the names of the columns of a source that the query uses."""
        leaves = (n for n in self.context.query.shape.all_nodes() if n.operator.source == source)
        used = (self._builder.catalyst.describe(leaf.plan.output()) for leaf in leaves)
        return list(dict.fromkeys(each.name for attributes in used for each in attributes))

    def _compute_change(self, step: ComputeChange) -> None:
        builder = self._builder
        self._change = change = builder.delta_of(self._node(step.scope))
        if step.scope is Scope.QUERY:
            catalyst = builder.catalyst
            rows = self._nothing() if change is None else self._rows(catalyst.frame(change.plan))
            if builder.replaced is not None:
                rows = rows.unionAll(self._replaced_rows(builder.replaced))
            self.diff = rows
        counted = self.evidence.keyed or self.evidence.rereading
        self._accept(builder.affected if counted else None)

    def _node(self, scope: Scope) -> Node:
        """Return the operator whose rows change."""
        match scope:
            case Scope.ORDERED:
                return self._first.below
            case Scope.GROUPED if self.evidence.recorded:
                self._aggregates()  # before keys are collected in vain
                return self._totals.node.children[0]
            case Scope.GROUPED:
                return self._algebra.node.children[0]
            case Scope.QUERY:
                return self.context.query.shape

    def _check_with_change(self) -> None:
        """Check the preconditions and consolidate the diff in one job.

        :raises NotFollowingError: if one is no longer satisfied.
        """
        pending = self._builder.pending
        if not pending:
            return
        if not isinstance(self.diff, DataFrame):
            raise AssertionError("the change is computed before it is checked")
        broken = [
            check.frame.withColumnRenamed("broken", f"broken{number}")
            for number, check in enumerate(pending)
        ]
        context = self.context
        delta = consolidate(
            context.format, context.order, self.diff, context.frozen_at, beside=broken
        )
        for number, check in enumerate(pending):
            require(check.result(delta.row[f"broken{number}"]))
        self.diff = delta

    def _advance_aggregates(self) -> None:
        """Compute the rows from the recorded totals.

        :raises NotFollowingError: if none are recorded, or the new ones are unknown or too many.
        """
        state, change, totals = self._aggregates(), self._change, self._totals
        self.incremental = state
        if change is None:
            return
        catalyst = self._builder.catalyst
        recorded = advance_state(totals, catalyst, state, change.plan, change.weight)
        self.context.check()
        if recorded is None:
            raise NotFollowingError(None)
        self._check_computed(totals, recorded)
        self._accept(recorded.changed)
        self.incremental = recorded.state
        if recorded.state != state:
            self.content = catalyst.frame(recorded.plan)

    def _aggregates(self) -> AggregateState:
        """Return the recorded totals.

        :raises NotFollowingError: if there are none.
        """
        state = self.context.last.record.incremental
        if not isinstance(state, AggregateState):
            raise NotFollowingError(_UNRECORDED)
        return state

    def _check_computed(self, totals: Totals, recorded: Recorded) -> None:
        """Check the rows that operators above the totals read now.

        :raises NotFollowingError: if they no longer satisfy a precondition.
        """
        inputs = {
            id(node): plan for node, plan in zip(totals.above, recorded.plans[1:], strict=True)
        }
        own = [each for each in self.context.query.preconditions if id(each.node) in inputs]
        if own:
            rows = [inputs[id(each.node)] for each in own]
            require(check_of(own, self._builder.catalyst, rows).run())

    def _merge_first_rows(self) -> None:
        """Compute the first rows from the table's.

        :raises NotFollowingError: if that is impossible.
        """
        self.incremental = state = self.context.last.record.incremental
        if self._change is None:
            return
        if not isinstance(state, KnownRows):
            raise NotFollowingError(None)
        catalyst = self._builder.catalyst
        rows = project_change(self._first, catalyst, self._change.plan, self._change.weight)
        merged = merge_change(
            self._first,
            catalyst,
            state,
            self._in_query_order(self._stored_rows()),
            self._rows(catalyst.frame(rows)),
            self.context.resources,
        )
        self.context.check()
        self.content, self.incremental = merged.rows, merged.state

    def _merge_groups(self) -> None:
        """Compute the diff from the change of the groups.

        Raises _GroupsInDoubtError if that is impossible; the keys by which groups are recomputed
        are then known.
        """
        change, algebra, builder = self._change, self._algebra, self._builder
        if change is None:
            self.diff = self._nothing()
            return
        groups, names = changed_groups(algebra, builder.catalyst, change.plan, change.weight)
        self.context.check()
        small = self.evidence.rows_in_table <= _FEW and not algebra.often_in_doubt
        if small:
            delta = self._consolidate(combine_groups(algebra, groups, self._stored_groups(algebra)))
            builder.affected = int(delta.row["affected"])
            if not delta.row["doubt"]:
                self._accept(builder.affected)
                self.diff = delta
                return
        groups = groups.localCheckpoint(eager=False)
        keys, doubt = collect_groups(builder.catalyst, groups, names, DOUBT, _KEY_LIMIT)
        if algebra.keyed_by_groups:
            builder.known[id(algebra.node)] = keys
        builder.affected = keys.count
        if doubt:
            raise _GroupsInDoubtError
        self._accept(keys.count)
        self.diff = self._consolidate(
            combine_groups(algebra, groups, self._stored_groups(algebra, keys))
        )

    # ---- frames ----------------------------------------------------------------------------

    @property
    def _first(self) -> FirstRows:
        return _need(self.continuation.first)

    @property
    def _totals(self) -> Totals:
        return _need(self.continuation.totals)

    @property
    def _algebra(self) -> Algebra:
        return _need(self.context.query.algebra)

    def _stored_groups(self, algebra: Algebra, keys: Keys | None = None) -> DataFrame:
        """Return the table's rows, without other groups' if that is simple."""
        rows = self._in_query_order(self._stored_rows())
        if keys is None:
            return rows
        catalyst = self._builder.catalyst
        plan = catalyst.analyzed_plan(rows)
        columns = list(items(plan.output()))
        groups = zip(algebra.groups, algebra.columns, keys.columns, strict=False)
        wanted = [(columns[index], values) for group, index, values in groups if is_key(group)]
        return catalyst.frame(restrict_roughly(catalyst, plan, wanted))

    def _consolidate(self, diff: DataFrame) -> ConsolidatedDelta:
        context = self.context
        asked = (
            f"coalesce(bool_or({DOUBT}), false) AS doubt",
            f"count_if({FIRST}) AS affected",
        )
        return consolidate(
            context.format,
            context.order,
            diff,
            context.frozen_at,
            distinct=True,
            ranged=self.evidence.rows_in_table > _FEW,
            asked=asked,
        )

    def _stored_rows(self) -> DataFrame:
        context = self.context
        return context.format.rows(context.spark, context.order.name, context.last.version)

    def _replaced_rows(self, replaced: Replaced) -> DataFrame:
        catalyst = self._builder.catalyst
        plan = catalyst.analyzed_plan(self._in_query_order(self._stored_rows()))
        columns = list(items(plan.output()))
        keys = [columns[index] for index in replaced.columns]
        rows = catalyst.frame(restrict(catalyst, plan, keys, replaced.keys))
        return rows.withColumn(WEIGHT, F.lit(-1).cast("bigint"))

    def _nothing(self) -> DataFrame:
        rows = self._in_query_order(self._stored_rows())
        return rows.withColumn(WEIGHT, F.lit(1).cast("bigint")).limit(0)

    def _rows(self, frame: DataFrame) -> DataFrame:
        fitted = self.context.format.fit_columns(self.context.order, frame, WEIGHT)
        return self._in_query_order(fitted, WEIGHT)

    def _in_query_order(self, frame: DataFrame, *carried: str) -> DataFrame:
        """Return the table's columns in the query's order."""
        columns = (*self.context.order.columns, *carried)
        return frame.selectExpr(*map(quote_column, columns))


def _need(value: T | None) -> T:
    """Return what the chosen steps use."""
    if value is None:
        raise AssertionError("the steps use what this query does not have")
    return value
