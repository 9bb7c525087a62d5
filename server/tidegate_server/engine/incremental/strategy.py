"""Plans an incremental refresh and computes its signed diff of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import ChangeMethod, SourceChange, Strategy
from tidegate_server.core.refresh.eligibility import (
    ALL_RULES,
    RULES_OPTION,
    Obstacle,
    Rule,
    obstacles,
    read_rules,
)
from tidegate_server.core.refresh.request import (
    RefreshOrder,
    RefreshPlan,
    RefreshPolicy,
)
from tidegate_server.engine.incremental.aggregate_state import Recorded, Totals, advance_state
from tidegate_server.engine.incremental.analysis.classify import is_key
from tidegate_server.engine.incremental.analysis.shape import incomparable_columns
from tidegate_server.engine.incremental.apply import ConsolidatedDelta, consolidate
from tidegate_server.engine.incremental.changes import WEIGHT, Change, source_change
from tidegate_server.engine.incremental.delta import ChangedSource, DeltaBuilder, Replaced
from tidegate_server.engine.incremental.keys import Keys, collect_groups, restrict, restrict_roughly
from tidegate_server.engine.incremental.mergeable_aggregates import (
    DOUBT,
    FIRST,
    Algebra,
    changed_groups,
    combine_groups,
)
from tidegate_server.engine.incremental.preconditions import (
    OBSTACLES,
    NotFollowingError,
    check_rows,
    require,
)
from tidegate_server.engine.incremental.query import Query, estimated_rows
from tidegate_server.engine.incremental.top_n import (
    TIES,
    FirstRows,
    merge_change,
    project_change,
)
from tidegate_server.engine.planning.planner import (
    Evidence,
    incremental_work,
    plan_incremental,
)
from tidegate_server.engine.query.catalyst import Catalyst, descend
from tidegate_server.engine.query.resolution import Tables
from tidegate_server.engine.storage.base import TableFormat
from tidegate_server.engine.storage.commit_record import (
    AggregateState,
    Boundary,
    IncrementalState,
    RecordedRefresh,
    RowPreconditions,
    TooManyGroups,
)
from tidegate_server.engine.storage.exact import column_named
from tidegate_server.engine.storage.jvm import items, kind
from tidegate_server.engine.storage.region import has_moving_region

_KEY_LIMIT = 10_000
# Up to this many rows, reading the whole table saves the job that collects the keys.
_FEW = 250_000
_ADAPTIVE = "spark.sql.adaptive.enabled"
_PARTITIONS = "spark.sql.shuffle.partitions"
# With more, Spark should coalesce small ones.
_FEW_PARTITIONS = 16
_UNRECORDED = Obstacle(
    code=Reason.TOTALS_NOT_RECORDED, text="the last refresh recorded no totals of the groups"
)
_UNKNOWN_CUT = Obstacle(
    code=Reason.TOTALS_NOT_RECORDED,
    text="the last refresh did not record whether rows tie where LIMIT cuts",
)
_UNKNOWN_ROWS = Obstacle(
    code=Reason.TOTALS_NOT_RECORDED,
    text="the last refresh did not record whether rows tie, or NULL is among what NOT IN excludes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalWork:
    """A plan, and the diff to apply if it is incremental."""

    plan: RefreshPlan
    diff: DataFrame | ConsolidatedDelta | None = None
    """The argument of :func:`consolidate` or its result."""
    content: DataFrame | None = None
    """All of the table's rows if computed from the recorded incremental state; None if they stay
    the same."""
    appends: bool = False
    rows_read: int = 0
    """The rows read according to the cost model."""
    few: bool = False
    """Whether the sources' change is small."""
    incremental: IncrementalState | None = None
    """The state to record, from which the next refresh continues."""
    preconditions: RowPreconditions | None = None
    """The result to record; None if this refresh has not checked them."""


class _DeclinedError(Exception):
    """An incremental refresh does not pay."""

    def __init__(self, plan: RefreshPlan) -> None:
        super().__init__(plan.reason_text)
        self.plan = plan


@contextmanager
def planned_once(spark: SparkSession, few: bool) -> Iterator[None]:
    """Disable adaptive execution for few rows: replanning after each stage would be most of a small
    refresh's cost."""
    before = spark.conf.get(_ADAPTIVE)
    if few and int(spark.conf.get(_PARTITIONS) or 0) <= _FEW_PARTITIONS:
        spark.conf.set(_ADAPTIVE, "false")
    try:
        yield
    finally:
        spark.conf.set(_ADAPTIVE, str(before))


@dataclass(slots=True)
class IncrementalPlanner:
    """Prepares one refresh whose sources changed.

    :param check: called between steps; raises if the refresh was canceled.
    :param resources: resources to release after the commit.
    """

    order: RefreshOrder
    spark: SparkSession
    format: TableFormat
    tables: Tables
    query: Query
    last: RecordedRefresh
    check: Callable[[], None]
    resources: ExitStack
    frozen_at: datetime | None
    _evidence: Evidence = field(default_factory=Evidence)
    _totals: Totals | None = None
    """The query's totals, unless they cannot be derived from the recorded state."""
    _first: FirstRows | None = None
    """The query's first rows, unless they cannot be derived."""
    _unfollowed: Obstacle | None = None
    """Why they cannot; replaces the operators' obstacles."""
    _preconditions: RowPreconditions | None = None
    """The result recorded by the last refresh, if the query has any."""

    def prepare(self, full: RefreshPlan) -> IncrementalWork:
        """Return an incremental refresh if possible, else the planned full one.

        :raises pyspark.errors.PySparkException: if changes or keys cannot be read.
        """
        changes = self._changes(full.vector)
        state = self.last.record.incremental
        if not isinstance(state, TooManyGroups) and adds_up(self.order):
            self._totals = self.query.totals
        if self.query.first is not None and merges(self.order, self.frozen_at):
            if state in (Boundary.COMPLETE, Boundary.DISTINCT):
                self._first = self.query.first
            else:
                self._unfollowed = TIES if state is Boundary.TIED else _UNKNOWN_CUT
        if self.query.preconditions:
            self._preconditions = self.last.record.preconditions
            if self._preconditions is None:
                self._unfollowed = _UNKNOWN_ROWS
            elif self._preconditions is not RowPreconditions.SATISFIED:
                self._unfollowed = OBSTACLES[self._preconditions]
        try:
            return self._choose(full, changes)
        except NotFollowingError as failed:
            self._totals, self._first, self._unfollowed = None, None, failed.obstacle
            self._preconditions = failed.broken or self._preconditions
            return replace(self._choose(full, changes), preconditions=failed.broken)

    def _choose(self, full: RefreshPlan, changes: Mapping[str, Change]) -> IncrementalWork:
        changed = {id_: c for id_, c in changes.items() if c.method is not ChangeMethod.UNCHANGED}
        found = self._obstacles(full.vector, changed)
        self._evidence = self._gather_evidence(changes, frozenset(changed), found)
        plan = plan_incremental(self.order, full, self._evidence)
        if plan.strategy is not Strategy.INCREMENTAL:
            return IncrementalWork(plan=plan)
        try:
            with planned_once(self.spark, self._evidence.few):
                return self._incremental(full, changed)
        except _DeclinedError as declined:
            return IncrementalWork(plan=declined.plan)

    def _incremental(self, full: RefreshPlan, changed: Mapping[str, Change]) -> IncrementalWork:
        catalyst = Catalyst(self.spark)

        def accept(count: int) -> None:
            evidence = replace(self._evidence, affected_keys=count)
            plan = plan_incremental(self.order, full, evidence)
            if plan.strategy is not Strategy.INCREMENTAL:
                raise _DeclinedError(plan)

        difference = DeltaBuilder(
            catalyst=catalyst,
            changed={id_: self._changed_source(change) for id_, change in changed.items()},
            key_limit=_KEY_LIMIT,
            check=self.check,
            accept=accept,
            preconditions=self.query.preconditions,
        )
        if self._first is not None:
            return self._merge_first_rows(catalyst, self._first, difference, full)
        if self._evidence.algebraic and self._totals is not None:
            return self._added_up(catalyst, self._totals, difference, full)
        if self._evidence.algebraic and self.query.algebra is not None:
            combined = self._combine_groups(catalyst, self.query.algebra, difference, full)
            if combined is not None:
                evidence = replace(self._evidence, affected_keys=difference.affected)
                plan = plan_incremental(self.order, full, evidence)
                return self._work(plan, combined)
        weighted = difference.delta_of(self.query.shape)
        affected = difference.affected if self._evidence.keyed else None
        plan = plan_incremental(self.order, full, replace(self._evidence, affected_keys=affected))
        diff = self._nothing() if weighted is None else self._rows(catalyst.frame(weighted.plan))
        if difference.replaced is not None:
            diff = diff.unionAll(self._replaced_rows(catalyst, difference.replaced))
        return self._work(plan, self._consolidated_with_checks(diff, difference))

    def _consolidated_with_checks(
        self, diff: DataFrame, difference: DeltaBuilder
    ) -> DataFrame | ConsolidatedDelta:
        """Check the pending preconditions together with the diff, which saves an action.

        :raises NotFollowingError: if one is no longer satisfied.
        """
        if not difference.pending:
            return diff
        broken = [
            f.withColumnRenamed("broken", f"broken{n}") for n, f in enumerate(difference.pending)
        ]
        delta = consolidate(self.format, self.order, diff, self.frozen_at, beside=broken)
        for number in range(len(broken)):
            require(delta.row[f"broken{number}"])
        return delta

    def _work(
        self, plan: RefreshPlan, diff: DataFrame | ConsolidatedDelta | None
    ) -> IncrementalWork:
        _, work = incremental_work(self._evidence)
        return IncrementalWork(
            plan=plan,
            diff=diff,
            appends=self._evidence.appends,
            rows_read=work.rows_read,
            few=self._evidence.few,
            preconditions=self._preconditions,
        )

    def _added_up(
        self, catalyst: Catalyst, totals: Totals, difference: DeltaBuilder, full: RefreshPlan
    ) -> IncrementalWork:
        """Return the rows that follow from the totals.

        :raises NotFollowingError: if none are recorded, or the new ones are unknown or too many.
        """
        state = self.last.record.incremental
        if not isinstance(state, AggregateState):
            raise NotFollowingError(_UNRECORDED)
        plan = plan_incremental(self.order, full, replace(self._evidence, affected_keys=0))
        change = difference.delta_of(totals.node.children[0])
        difference.check_pending()
        if change is None:
            return replace(self._work(plan, None), incremental=state)
        recorded = advance_state(totals, catalyst, state, change.plan, change.weight)
        self.check()
        if recorded is None:
            raise NotFollowingError(None)
        self._check_computed(catalyst, totals, recorded)
        evidence = replace(self._evidence, affected_keys=recorded.changed)
        prepared = self._work(plan_incremental(self.order, full, evidence), None)
        content = None if recorded.state == state else catalyst.frame(recorded.plan)
        return replace(prepared, content=content, incremental=recorded.state)

    def _check_computed(self, catalyst: Catalyst, totals: Totals, recorded: Recorded) -> None:
        """Check the rows that operators above the totals read now.

        :raises NotFollowingError: if they no longer satisfy a precondition.
        """
        inputs = {
            id(node): plan for node, plan in zip(totals.above, recorded.plans[1:], strict=True)
        }
        own = [each for each in self.query.preconditions if id(each.node) in inputs]
        if own:
            require(check_rows(own, catalyst, [inputs[id(each.node)] for each in own]).value)

    def _merge_first_rows(
        self, catalyst: Catalyst, first: FirstRows, difference: DeltaBuilder, full: RefreshPlan
    ) -> IncrementalWork:
        """Return the first rows, derived from the table's.

        :raises NotFollowingError: if that is impossible.
        """
        change = difference.delta_of(first.below)
        difference.check_pending()
        affected = difference.affected if self._evidence.keyed else None
        plan = plan_incremental(self.order, full, replace(self._evidence, affected_keys=affected))
        state = self.last.record.incremental
        prepared = replace(self._work(plan, None), incremental=state)
        if change is None or plan.strategy is not Strategy.INCREMENTAL:
            return prepared
        rows = project_change(first, catalyst, change.plan, change.weight)
        stored = self._in_query_order(self._stored_rows())
        done = merge_change(
            first,
            catalyst,
            stored,
            self._rows(catalyst.frame(rows)),
            self.resources,
            whole=state is Boundary.COMPLETE,
        )
        self.check()
        return replace(prepared, content=done.rows, incremental=done.boundary)

    def _combine_groups(
        self, catalyst: Catalyst, algebra: Algebra, difference: DeltaBuilder, full: RefreshPlan
    ) -> ConsolidatedDelta | None:
        """Return the diff derived from the groups' change; None if that is impossible.

        The keys by which groups are recomputed are then known.
        """
        change = difference.delta_of(algebra.node.children[0])
        difference.check_pending()
        if change is None:
            return None
        groups, names = changed_groups(algebra, catalyst, change.plan, change.weight)
        self.check()
        small = self._evidence.rows_in_table <= _FEW and not algebra.often_in_doubt
        if small:
            delta = self._consolidate(combine_groups(algebra, groups, self._stored_groups(algebra)))
            difference.affected = int(delta.row["affected"])
            if not delta.row["doubt"]:
                difference.accept(difference.affected)
                return delta
        groups = groups.localCheckpoint(eager=False)
        keys, doubt = collect_groups(catalyst, groups, names, DOUBT, _KEY_LIMIT)
        if algebra.keyed_by_groups:
            difference.known[id(algebra.node)] = keys
        difference.affected = keys.count
        if doubt:
            self._evidence = replace(self._evidence, algebraic=False)
        difference.accept(keys.count)
        if doubt:
            return None
        return self._consolidate(
            combine_groups(algebra, groups, self._stored_groups(algebra, keys))
        )

    def _stored_groups(self, algebra: Algebra, keys: Keys | None = None) -> DataFrame:
        """Return the table's rows, without other groups' if that is simple."""
        rows = self._in_query_order(self._stored_rows())
        if keys is None:
            return rows
        catalyst = Catalyst(self.spark)
        plan = catalyst.analyzed_plan(rows)
        columns = list(items(plan.output()))
        groups = zip(algebra.groups, algebra.columns, keys.columns, strict=False)
        wanted = [(columns[index], values) for group, index, values in groups if is_key(group)]
        return catalyst.frame(restrict_roughly(catalyst, plan, wanted))

    def _consolidate(self, diff: DataFrame) -> ConsolidatedDelta:
        asked = (
            f"coalesce(bool_or({DOUBT}), false) AS doubt",
            f"count_if({FIRST}) AS affected",
        )
        ranged = self._evidence.rows_in_table > _FEW
        return consolidate(
            self.format,
            self.order,
            diff,
            self.frozen_at,
            distinct=True,
            ranged=ranged,
            asked=asked,
        )

    # ---- evidence --------------------------------------------------------------------------

    def _changes(self, vector: Mapping[str, int]) -> dict[str, Change]:
        """Return the change of every source with a new version, by table id."""
        names = {state.table_id: name for name, state in self.tables.states.items()}
        found = {}
        for table_id, version in vector.items():
            before = self.last.record.vector.get(table_id)
            if before is None or before == version:
                continue
            source = self.tables.sources[names[table_id]]
            found[table_id] = source_change(self.spark, self.format, source, before, version)
        return found

    def _obstacles(
        self, vector: Mapping[str, int], changed: Mapping[str, Change]
    ) -> tuple[Obstacle, ...]:
        found = []
        if set(vector) != set(self.last.record.vector):
            text = "the query reads other tables than at the last refresh"
            found.append(Obstacle(code=Reason.SOURCES_REPLACED, text=text))
        if has_moving_region(self.order, self.frozen_at):
            text = "rows become immutable as time goes by, of which no source tells"
            found.append(Obstacle(code=Reason.IMMUTABLE_REGION_MOVES, text=text))
        for name in sorted(self.tables.travelled):
            text = f"the query itself chooses a version of {name}"
            found.append(Obstacle(code=Reason.TIME_TRAVEL, text=text))
        for change in changed.values():
            if change.read is None:
                text = f"the change of {change.source.name} is not known: {change.reason}"
                found.append(Obstacle(code=Reason.SOURCE_CHANGE_UNKNOWN, text=text))
        appended = all(change.method is ChangeMethod.APPENDED for change in changed.values())
        if not appended or self._first is not None or self._keyed(frozenset(changed)):
            found += incomparable_columns(self.query.shape)
        follows = self._first or self._totals
        operators = obstacles(
            self.query.shape.operator,
            frozenset(changed),
            _rules(self.order),
            combined=None if follows is None else follows.node.operator,
            provided=self._preconditions is RowPreconditions.SATISFIED,
        )
        if operators and self._unfollowed is not None:
            operators = (self._unfollowed,)
        return (*found, *operators)

    def _gather_evidence(
        self,
        changes: Mapping[str, Change],
        changed: frozenset[str],
        found: tuple[Obstacle, ...],
    ) -> Evidence:
        keyed = self._keyed(changed)
        leaves = [n for n in self.query.shape.nodes() if n.operator.source in changed]
        sizes = {
            str(node.operator.source): estimated_rows(self.spark, node.plan) for node in leaves
        }
        added = all(changes[id_].method is ChangeMethod.APPENDED for id_ in changed)
        return Evidence(
            changes=tuple(_as_source_change(change) for change in changes.values()),
            obstacles=found,
            appends=added and not keyed and self._first is None,
            keyed=keyed,
            leading=self._first is not None,
            algebraic=keyed and self._may_combine(),
            rows_in_sources=self.query.rows,
            rows_in_changed=sum(sizes[str(node.operator.source)] for node in leaves),
            rows_guessed=sum(
                sizes.get(id_, 0) if (guess := changes[id_].guess) is None else guess
                for id_ in changed
                if changes[id_].rows is None
            ),
            rows_in_table=self._rows_in_table(),
        )

    def _keyed(self, changed: frozenset[str]) -> bool:
        """Say whether rows are found by affected keys."""
        return any(
            node.operator.children[index].changes(changed)
            for node in self.query.shape.nodes()
            for index in node.operator.keyed_by
        )

    def _may_combine(self) -> bool:
        """Say whether the table, or the recorded totals of all rows, contain all groups
        unchanged."""
        stored = self.query.algebra is not None and _is_query(self.order, self.frozen_at)
        return adds_up(self.order) and (stored or self._totals is not None)

    def _rows_in_table(self) -> int:
        plan = Catalyst(self.spark).analyzed_plan(self._stored_rows())
        leaves = (node for node in descend(plan) if kind(node) == "LogicalRelation")
        return sum(estimated_rows(self.spark, leaf) for leaf in leaves)

    # ---- frames ----------------------------------------------------------------------------

    def _changed_source(self, change: Change) -> ChangedSource:
        if change.read is None:
            raise AssertionError(f"the change of {change.source.name} is not known")
        frame = change.read()
        if not self._evidence.appends:
            # Keys and rows must come from the same change.
            frame = frame.persist()
            self.resources.callback(frame.unpersist)
        pinned = self.format.version_sql(change.source.name, change.base)
        return ChangedSource(
            change=frame,
            before=lambda: self.spark.sql(f"SELECT * FROM {pinned}"),
            few=self._evidence.few,
        )

    def _stored_rows(self) -> DataFrame:
        return self.format.rows(self.spark, self.order.name, self.last.version)

    def _replaced_rows(self, catalyst: Catalyst, replaced: Replaced) -> DataFrame:
        plan = catalyst.analyzed_plan(self._in_query_order(self._stored_rows()))
        columns = list(items(plan.output()))
        keys = [columns[index] for index in replaced.columns]
        rows = catalyst.frame(restrict(catalyst, plan, keys, replaced.keys))
        return rows.withColumn(WEIGHT, F.lit(-1).cast("bigint"))

    def _nothing(self) -> DataFrame:
        rows = self._in_query_order(self._stored_rows())
        return rows.withColumn(WEIGHT, F.lit(1).cast("bigint")).limit(0)

    def _rows(self, frame: DataFrame) -> DataFrame:
        return self._in_query_order(self.format.fit_columns(self.order, frame, WEIGHT), WEIGHT)

    def _in_query_order(self, frame: DataFrame, *carried: str) -> DataFrame:
        """Return the table's columns in the query's order."""
        return frame.select(*(column_named(column) for column in (*self.order.columns, *carried)))


def _as_source_change(change: Change) -> SourceChange:
    return SourceChange(
        source=str(change.source.name),
        before=change.before,
        after=change.after,
        method=change.method,
        rows=change.rows,
    )


def adds_up(order: RefreshOrder) -> bool:
    """Say whether a change may be added to the groups' totals."""
    return Rule.ALGEBRA in _rules(order) and order.policy is not RefreshPolicy.FULL


def merges(order: RefreshOrder, frozen_at: datetime | None) -> bool:
    """Say whether a change may be merged with the table's first rows."""
    rules, policy = _rules(order), order.policy
    return _is_query(order, frozen_at) and Rule.LIMIT in rules and policy is not RefreshPolicy.FULL


def _is_query(order: RefreshOrder, frozen_at: datetime | None) -> bool:
    """Say whether the table has exactly the query's rows: expectations may have dropped rows, and
    immutable ones may be out of date."""
    return not order.expectations and frozen_at is None


def _rules(order: RefreshOrder) -> frozenset[Rule]:
    written = order.options.get(RULES_OPTION)
    return ALL_RULES if written is None else read_rules(written)
