"""Decides on an incremental refresh and makes the signed diff of the table it lands."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.engine.errors import to_server_error
from tidegate_server.engine.incremental.algebra import (
    DOUBT,
    FIRST,
    Algebra,
    changed_groups,
    combined,
    read_algebra,
)
from tidegate_server.engine.incremental.apply import Settled, settle
from tidegate_server.engine.incremental.catalyst import Catalyst
from tidegate_server.engine.incremental.changes import WEIGHT, Change, Method, source_change
from tidegate_server.engine.incremental.classify import is_key
from tidegate_server.engine.incremental.difference import ChangedSource, Difference, Replaced
from tidegate_server.engine.incremental.first_rows import (
    CLEAR,
    TIED,
    TIES,
    WHOLE,
    FirstRows,
    NotFollowingError,
    merged,
    projected,
    read_first_rows,
)
from tidegate_server.engine.incremental.keys import Keys, collect_groups, nearly, restrict
from tidegate_server.engine.incremental.shape import Node, incomparable, read_shape
from tidegate_server.engine.incremental.totals import (
    Totals,
    read_totals,
    recorded_after,
)
from tidegate_server.engine.sources import Tables
from tidegate_server.errors import ServerError
from tidegate_server.model.runs import SourceChange, Strategy
from tidegate_server.refresh.eligibility import (
    ALL_RULES,
    RULES_OPTION,
    Obstacle,
    Operator,
    Rule,
    obstacles,
    read_rules,
)
from tidegate_server.refresh.planner import (
    SOURCES_REPLACED,
    TOTALS_NOT_RECORDED,
    Evidence,
    incremental_work,
    plan_incremental,
)
from tidegate_server.refresh.request import (
    CommittedRefresh,
    RefreshOrder,
    RefreshPlan,
    RefreshPolicy,
)
from tidegate_server.storage.base import TableFormat
from tidegate_server.storage.delta_files import known_bytes
from tidegate_server.storage.exact import named
from tidegate_server.storage.jvm import FILES, is_instance, items, java, kind
from tidegate_server.storage.plain import plain_files
from tidegate_server.storage.region import moves

logger = logging.getLogger(__name__)

_KEY_LIMIT = 10_000
# A table of so many rows is looked up as a whole, which saves the job that finds the keys.
_FEW = 250_000
# Compressed columns need about a third of what a row takes in memory.
_COMPRESSION = 0.3
_ADAPTIVE = "spark.sql.adaptive.enabled"
_PARTITIONS = "spark.sql.shuffle.partitions"
# With more of them, Spark had better put small ones together.
_FEW_PARTITIONS = 16
_UNSTABLE = "EXPRESSION_NOT_DETERMINISTIC"
_UNRECORDED = Obstacle(
    code=TOTALS_NOT_RECORDED, text="the last refresh recorded no totals of the groups"
)
_UNKNOWN_CUT = Obstacle(
    code=TOTALS_NOT_RECORDED,
    text="the last refresh did not record whether rows tie where LIMIT cuts",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A definition query as Spark understands it at the versions to be read."""

    text: str
    shape: Node
    algebra: Algebra | None
    """How the table's rows follow from their change, if they do."""
    totals: Totals | None
    """What its rows can be computed from, where these are not simply added up."""
    first: FirstRows | None
    """What it takes the first rows of, if it ends so."""
    fingerprint: str
    """The same as long as query, views, functions, sources and settings are the same."""
    rows: int
    """About how many rows its sources have."""

    @property
    def stable(self) -> bool:
        """Whether it gives the same rows from the same versions at any time."""
        found = obstacles(self.shape.operator, frozenset())
        return not any(obstacle.code == _UNSTABLE for obstacle in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A plan, and the diff that carries it out when it is incremental."""

    plan: RefreshPlan
    diff: DataFrame | Settled | None = None
    """What :func:`settle` takes or, computed already, returned."""
    content: DataFrame | None = None
    """All of the table's rows, where these follow from what the last commit recorded as
    ``totals``; None if they stay the same."""
    appends: bool = False
    rows_read: int = 0
    """What the cost model took for the rows that an incremental refresh reads."""
    few: bool = False
    """Whether the sources' change is small."""
    totals: str | None = None
    """What the commit is to record for the next refresh to follow from."""


class _DeclinedError(Exception):
    """An incremental refresh does not pay."""

    def __init__(self, plan: RefreshPlan) -> None:
        super().__init__(plan.reason_text)
        self.plan = plan


@contextmanager
def planned_once(spark: SparkSession, few: bool) -> Iterator[None]:
    """Plan queries of few rows once: to plan the rest of a query anew after each of its stages is
    most of what a small refresh would cost."""
    before = spark.conf.get(_ADAPTIVE)
    if few and int(spark.conf.get(_PARTITIONS) or 0) <= _FEW_PARTITIONS:
        spark.conf.set(_ADAPTIVE, "false")
    try:
        yield
    finally:
        spark.conf.set(_ADAPTIVE, str(before))


def read_query(
    order: RefreshOrder, spark: SparkSession, tables: Tables, text: str, frame: DataFrame
) -> Query:
    """Read the query at the versions ``tables`` pinned.

    :param frame: what Spark made of the text.
    """
    catalyst = Catalyst(spark)
    analyzed = catalyst.analyzed(frame)
    try:
        plan = catalyst.simplified(analyzed)
        types = _table_types(order, spark, tables)
        versions = tables.read_versions()
        shape = read_shape(plan, types, versions, catalyst, files=tables.fingerprints)
        algebra = read_algebra(shape, types, catalyst)
        totals = _read_totals(shape, catalyst) if algebra is None else None
        first = _read_first_rows(shape, types, catalyst)
    except ServerError:
        raise
    except Exception as failed:
        told = to_server_error(failed).headline
        logger.warning("%s is refreshed fully, its plan cannot be read: %s", order.name, told)
        plan, shape = analyzed, _unreadable(analyzed)
        algebra, totals, first = None, None, None
    facts = [catalyst.text(plan), *_sources(shape, tables), *_settings(order, spark)]
    fingerprint = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]
    leaves = [node for node in shape.nodes() if not node.children]
    stored = [n.plan for n in leaves if n.operator.source or plain_files(spark, n.plan)]
    return Query(
        text=text,
        shape=shape,
        algebra=algebra,
        totals=totals,
        first=first,
        fingerprint=fingerprint,
        rows=sum(estimated_rows(spark, each) for each in stored),
    )


def _read_totals(shape: Node, catalyst: Catalyst) -> Totals | None:
    """Return what a query adds up, unless something else of it makes every refresh full."""
    totals = read_totals(shape, catalyst)
    if totals is None or obstacles(shape.operator, frozenset(), combined=totals.node.operator):
        return None
    return totals


def _read_first_rows(shape: Node, types: Sequence[str], catalyst: Catalyst) -> FirstRows | None:
    """Return the same of what a query takes the first rows of."""
    first = read_first_rows(shape, types, catalyst)
    if first is None or obstacles(shape.operator, frozenset(), combined=first.node.operator):
        return None
    return first


def _unreadable(plan: Any) -> Node:
    """Return the shape of a plan of which nothing is known."""
    text = "the plan cannot be read"
    obstacle = Obstacle(code="OPERATOR_NOT_INCREMENTALIZABLE", text=text)
    return Node(operator=Operator(name=kind(plan), obstacles=(obstacle,)), plan=plan)


def estimated_rows(spark: SparkSession, plan: Any) -> int:
    """Return about how many rows a stored table has, from the bytes of its files."""
    size = _stored_bytes(spark, plan)
    width = sum(int(a.dataType().defaultSize()) for a in items(plan.output()))
    return int(size / max(width * _COMPRESSION, 1))


def _stored_bytes(spark: SparkSession, plan: Any) -> int:
    """Return the size of a relation; Spark itself runs a job to ask Delta for it."""
    if kind(plan) == "LogicalRelation" and is_instance(java(spark), plan.relation(), FILES):
        location = plan.relation().location()
        if kind(location) == "TahoeLogFileIndex":
            known = known_bytes(location.getSnapshot())
            if known is not None:
                return known
    return int(str(plan.stats().sizeInBytes()))


@dataclass(slots=True)
class Preparation:
    """Prepares one refresh whose sources changed.

    :param check: called between steps; raises when the work is not wanted any more.
    :param resources: takes what is to be released after the commit.
    """

    order: RefreshOrder
    spark: SparkSession
    format: TableFormat
    tables: Tables
    query: Query
    last: CommittedRefresh
    check: Callable[[], None]
    resources: ExitStack
    _evidence: Evidence = field(default_factory=Evidence)
    _totals: Totals | None = None
    """What the query adds up, unless it turned out not to follow from what was recorded."""
    _first: FirstRows | None = None
    """What the query takes the first rows of, unless they turned out not to follow."""
    _unfollowed: Obstacle | None = None
    """Why they do not; but for that, the refresh could be incremental."""

    def prepare(self, full: RefreshPlan) -> Prepared:
        """Return what improves on the full refresh that was planned, or just that.

        :raises pyspark.errors.PySparkException: what Spark says of reading changes and keys.
        """
        changes = self._changes(full.vector)
        if self.last.totals != "" and adds_up(self.order):
            self._totals = self.query.totals
        if self.query.first is not None and merges(self.order):
            if self.last.totals in (WHOLE, CLEAR):
                self._first = self.query.first
            else:
                self._unfollowed = TIES if self.last.totals == TIED else _UNKNOWN_CUT
        try:
            return self._chosen(full, changes)
        except NotFollowingError as failed:
            self._totals, self._first, self._unfollowed = None, None, failed.obstacle
            return self._chosen(full, changes)

    def _chosen(self, full: RefreshPlan, changes: Mapping[str, Change]) -> Prepared:
        changed = {id_: c for id_, c in changes.items() if c.method is not Method.UNCHANGED}
        found = self._obstacles(full.vector, changed)
        self._evidence = self._gathered(changes, frozenset(changed), found)
        plan = plan_incremental(self.order, full, self._evidence)
        if plan.strategy is not Strategy.INCREMENTAL:
            return Prepared(plan=plan)
        try:
            with planned_once(self.spark, self._evidence.few):
                return self._incremental(full, changed)
        except _DeclinedError as declined:
            return Prepared(plan=declined.plan)

    def _incremental(self, full: RefreshPlan, changed: Mapping[str, Change]) -> Prepared:
        catalyst = Catalyst(self.spark)

        def accept(count: int) -> None:
            evidence = replace(self._evidence, affected_keys=count)
            plan = plan_incremental(self.order, full, evidence)
            if plan.strategy is not Strategy.INCREMENTAL:
                raise _DeclinedError(plan)

        difference = Difference(
            catalyst=catalyst,
            changed={id_: self._changed_source(change) for id_, change in changed.items()},
            key_limit=_KEY_LIMIT,
            check=self.check,
            accept=accept,
        )
        if self._first is not None:
            return self._merged(catalyst, self._first, difference, full)
        if self._evidence.algebraic and self._totals is not None:
            return self._added_up(catalyst, self._totals, difference, full)
        if self._evidence.algebraic and self.query.algebra is not None:
            combined = self._combined(catalyst, self.query.algebra, difference, full)
            if combined is not None:
                evidence = replace(self._evidence, affected_keys=difference.affected)
                plan = plan_incremental(self.order, full, evidence)
                return self._prepared(plan, combined)
        weighted = difference.of(self.query.shape)
        affected = difference.affected if self._evidence.keyed else None
        plan = plan_incremental(self.order, full, replace(self._evidence, affected_keys=affected))
        diff = self._nothing() if weighted is None else self._rows(catalyst.frame(weighted.plan))
        if difference.replaced is not None:
            diff = diff.unionAll(self._replaced(catalyst, difference.replaced))
        return self._prepared(plan, diff)

    def _prepared(self, plan: RefreshPlan, diff: DataFrame | Settled | None) -> Prepared:
        _, work = incremental_work(self._evidence)
        return Prepared(
            plan=plan,
            diff=diff,
            appends=self._evidence.appends,
            rows_read=work.rows_read,
            few=self._evidence.few,
        )

    def _added_up(
        self, catalyst: Catalyst, totals: Totals, difference: Difference, full: RefreshPlan
    ) -> Prepared:
        """Return the rows that follow from the totals.

        :raises NotFollowingError: if there are none, they do not follow, or there are too many
            groups now.
        """
        if self.last.totals is None:
            raise NotFollowingError(_UNRECORDED)
        plan = plan_incremental(self.order, full, replace(self._evidence, affected_keys=0))
        change = difference.of(totals.node.children[0])
        if change is None:
            return replace(self._prepared(plan, None), totals=self.last.totals)
        recorded = recorded_after(totals, catalyst, self.last.totals, change.plan, change.weight)
        self.check()
        if recorded is None:
            raise NotFollowingError(None)
        evidence = replace(self._evidence, affected_keys=recorded.changed)
        prepared = self._prepared(plan_incremental(self.order, full, evidence), None)
        same = recorded.text == self.last.totals
        content = None if same else catalyst.frame(recorded.plan)
        return replace(prepared, content=content, totals=recorded.text)

    def _merged(
        self, catalyst: Catalyst, first: FirstRows, difference: Difference, full: RefreshPlan
    ) -> Prepared:
        """Return the first rows as they follow from those in the table.

        :raises NotFollowingError: if they do not.
        """
        change = difference.of(first.below)
        affected = difference.affected if self._evidence.keyed else None
        plan = plan_incremental(self.order, full, replace(self._evidence, affected_keys=affected))
        prepared = replace(self._prepared(plan, None), totals=self.last.totals)
        if change is None or plan.strategy is not Strategy.INCREMENTAL:
            return prepared
        rows = projected(first, catalyst, change.plan, change.weight)
        stored = self._ordered(self._stored())
        done = merged(
            first,
            catalyst,
            stored,
            self._rows(catalyst.frame(rows)),
            self.resources,
            whole=self.last.totals == WHOLE,
        )
        self.check()
        return replace(prepared, content=done.rows, totals=done.text)

    def _combined(
        self, catalyst: Catalyst, algebra: Algebra, difference: Difference, full: RefreshPlan
    ) -> Settled | None:
        """Return the diff that follows from the groups' change; None if it does not follow.

        The keys are then known, by which the groups are computed anew.
        """
        change = difference.of(algebra.node.children[0])
        if change is None:
            return None
        groups, names = changed_groups(algebra, catalyst, change.plan, change.weight)
        self.check()
        small = self._evidence.rows_in_table <= _FEW and not algebra.often_in_doubt
        if small:
            settled = self._settled(combined(algebra, groups, self._stored_groups(algebra)))
            difference.affected = int(settled.row["affected"])
            if not settled.row["doubt"]:
                difference.accept(difference.affected)
                return settled
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
        return self._settled(combined(algebra, groups, self._stored_groups(algebra, keys)))

    def _stored_groups(self, algebra: Algebra, keys: Keys | None = None) -> DataFrame:
        """Return the table's rows, those of other groups left out where that is simple."""
        rows = self._ordered(self._stored())
        if keys is None:
            return rows
        catalyst = Catalyst(self.spark)
        plan = catalyst.analyzed(rows)
        columns = list(items(plan.output()))
        groups = zip(algebra.groups, algebra.columns, keys.columns, strict=False)
        wanted = [(columns[index], values) for group, index, values in groups if is_key(group)]
        return catalyst.frame(nearly(catalyst, plan, wanted))

    def _settled(self, diff: DataFrame) -> Settled:
        asked = (
            f"coalesce(bool_or({DOUBT}), false) AS doubt",
            f"count_if({FIRST}) AS affected",
        )
        ranged = self._evidence.rows_in_table > _FEW
        return settle(self.format, self.order, diff, distinct=True, ranged=ranged, asked=asked)

    # ---- evidence --------------------------------------------------------------------------

    def _changes(self, vector: Mapping[str, int]) -> dict[str, Change]:
        """Return the change of every source that has another version now, by table id."""
        names = {state.table_id: name for name, state in self.tables.states.items()}
        found = {}
        for table_id, version in vector.items():
            before = self.last.vector.get(table_id)
            if before is None or before == version:
                continue
            source = self.tables.sources[names[table_id]]
            found[table_id] = source_change(self.spark, self.format, source, before, version)
        return found

    def _obstacles(
        self, vector: Mapping[str, int], changed: Mapping[str, Change]
    ) -> tuple[Obstacle, ...]:
        found = []
        if set(vector) != set(self.last.vector):
            text = "the query reads other tables than at the last refresh"
            found.append(Obstacle(code=SOURCES_REPLACED, text=text))
        if moves(self.order):
            text = "rows become immutable as time goes by, of which no source tells"
            found.append(Obstacle(code="IMMUTABLE_REGION_MOVES", text=text))
        for name in sorted(self.tables.travelled):
            text = f"the query itself chooses a version of {name}"
            found.append(Obstacle(code="TIME_TRAVEL", text=text))
        for change in changed.values():
            if change.read is None:
                text = f"the change of {change.source.name} is not known: {change.reason}"
                found.append(Obstacle(code="SOURCE_CHANGE_UNKNOWN", text=text))
        appended = all(change.method is Method.APPENDED for change in changed.values())
        if not appended or self._first is not None or self._keyed(frozenset(changed)):
            found += incomparable(self.query.shape)
        follows = self._first or self._totals
        operators = obstacles(
            self.query.shape.operator,
            frozenset(changed),
            _rules(self.order),
            combined=None if follows is None else follows.node.operator,
        )
        if operators and self._unfollowed is not None:
            operators = (self._unfollowed,)
        return (*found, *operators)

    def _gathered(
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
        added = all(changes[id_].method is Method.APPENDED for id_ in changed)
        return Evidence(
            changes=tuple(_told(change) for change in changes.values()),
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
        """Say whether the table has all the groups as they are: what expectations dropped would be
        missing, what is immutable may be out of date. Totals are of all rows."""
        whole = not self.order.expectations and self.order.frozen_at is None
        stored = whole and self.query.algebra is not None
        return adds_up(self.order) and (stored or self._totals is not None)

    def _rows_in_table(self) -> int:
        plan = Catalyst(self.spark).analyzed(self._stored())
        leaves = (node for node in _descend(plan) if kind(node) == "LogicalRelation")
        return sum(estimated_rows(self.spark, leaf) for leaf in leaves)

    # ---- frames ----------------------------------------------------------------------------

    def _changed_source(self, change: Change) -> ChangedSource:
        if change.read is None:
            raise AssertionError(f"the change of {change.source.name} is not known")
        frame = change.read()
        if not self._evidence.appends:
            # Keys and rows are computed from the same change.
            frame = frame.persist()
            self.resources.callback(frame.unpersist)
        pinned = self.format.pinned(change.source.name, change.base)
        return ChangedSource(
            change=frame,
            before=lambda: self.spark.sql(f"SELECT * FROM {pinned}"),
            few=self._evidence.few,
        )

    def _stored(self) -> DataFrame:
        return self.format.rows(self.spark, self.order.name, self.last.version)

    def _replaced(self, catalyst: Catalyst, replaced: Replaced) -> DataFrame:
        plan = catalyst.analyzed(self._ordered(self._stored()))
        columns = list(items(plan.output()))
        keys = [columns[index] for index in replaced.columns]
        rows = catalyst.frame(restrict(catalyst, plan, keys, replaced.keys))
        return rows.withColumn(WEIGHT, F.lit(-1).cast("bigint"))

    def _nothing(self) -> DataFrame:
        rows = self._ordered(self._stored())
        return rows.withColumn(WEIGHT, F.lit(1).cast("bigint")).limit(0)

    def _rows(self, frame: DataFrame) -> DataFrame:
        return self._ordered(self.format.fitted(self.order, frame, WEIGHT), WEIGHT)

    def _ordered(self, frame: DataFrame, *carried: str) -> DataFrame:
        """Return the table's columns in the query's order."""
        return frame.select(*(named(column) for column in (*self.order.columns, *carried)))


def _descend(plan: Any) -> list[Any]:
    found = [plan]
    for child in items(plan.children()):
        found += _descend(child)
    return found


def _told(change: Change) -> SourceChange:
    return SourceChange(
        source=str(change.source.name),
        before=change.before,
        after=change.after,
        method=change.method.value,
        rows=change.rows,
    )


def adds_up(order: RefreshOrder) -> bool:
    """Say whether a change may be added to what groups amounted to."""
    return Rule.ALGEBRA in _rules(order) and order.policy is not RefreshPolicy.FULL


def merges(order: RefreshOrder) -> bool:
    """Say whether a change may be merged with the first rows: those that the table has are the
    query's only where none was dropped or is immutable."""
    whole = not order.expectations and order.frozen_at is None
    return whole and Rule.LIMIT in _rules(order) and order.policy is not RefreshPolicy.FULL


def _rules(order: RefreshOrder) -> frozenset[Rule]:
    written = order.options.get(RULES_OPTION)
    return ALL_RULES if written is None else read_rules(written)


def _table_types(order: RefreshOrder, spark: SparkSession, tables: Tables) -> list[str]:
    state = tables.format.find(order.name)
    if state is None:
        return []
    stored = tables.format.rows(spark, order.name, state.newest)
    found = {
        str(attribute.name()).lower(): str(attribute.dataType().catalogString())
        for attribute in items(Catalyst(spark).analyzed(stored).output())
    }
    return [found.get(column.lower(), "") for column in order.columns]


def _sources(shape: Node, tables: Tables) -> list[str]:
    """Return the tables read, but for those whose version the query chooses: at times it is the
    newest one as well, which makes no other query of it."""
    chosen = {state.table_id for name, state in tables.states.items() if name in tables.travelled}
    found = [node.operator.source for node in shape.nodes()]
    return [source for source in found if source and source not in chosen]


def _settings(order: RefreshOrder, spark: SparkSession) -> list[str]:
    """Return what of the session may change results without changing the plan."""
    keys = {"spark.sql.session.timeZone", "spark.sql.ansi.enabled", *order.settings}
    return [f"{k}={spark.conf.get(k, None)}" for k in sorted(keys) if k.startswith("spark.sql.")]
