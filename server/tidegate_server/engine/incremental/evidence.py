"""Gathers the evidence by which an incremental refresh is chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import ChangeMethod, SourceChange
from tidegate_server.core.refresh.eligibility import (
    ALL_RULES,
    RULES_OPTION,
    Obstacle,
    Rule,
    obstacles,
    read_rules,
)
from tidegate_server.core.refresh.request import RefreshOrder, RefreshPolicy
from tidegate_server.engine.incremental.aggregate_state import Totals
from tidegate_server.engine.incremental.analysis.shape import Node
from tidegate_server.engine.incremental.changes import Change, source_change
from tidegate_server.engine.incremental.preconditions import OBSTACLES
from tidegate_server.engine.incremental.query import Query, estimated_rows
from tidegate_server.engine.incremental.top_n import TIES, FirstRows
from tidegate_server.engine.jvm.cluster_size import executor_cores
from tidegate_server.engine.planning.cost import MEASURED_CORES
from tidegate_server.engine.planning.planner import Evidence
from tidegate_server.engine.query.catalyst import Catalyst, descend
from tidegate_server.engine.query.resolution import Tables
from tidegate_server.engine.storage.base import TableFormat
from tidegate_server.engine.storage.commit_record import (
    Boundary,
    CommitRecord,
    KnownRows,
    RecordedRefresh,
    RowPreconditions,
    TooManyGroups,
)
from tidegate_server.engine.storage.content.region import has_moving_region
from tidegate_server.engine.storage.jvm import kind

_STORED = frozenset({"LogicalRelation", "DataSourceV2Relation"})
"""The leaves of plans that read the stored rows of a table."""
_UNKNOWN_CUT = Obstacle(
    code=Reason.TOTALS_NOT_RECORDED,
    text="the last refresh did not record whether rows tie where LIMIT cuts",
)
_UNKNOWN_ROWS = Obstacle(
    code=Reason.TOTALS_NOT_RECORDED,
    text="the last refresh did not record whether rows tie, or NULL is among what NOT IN excludes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What sources and table are like at the versions of one refresh."""

    changes: Mapping[str, Change]
    """Of every source with a new version, by table id."""
    obstacles: tuple[Obstacle, ...]
    """Those that do not depend on how the new rows are derived."""
    rows_in_changed: int
    rows_guessed: int
    rows_in_table: int
    cores: int = MEASURED_CORES
    """Those of the cluster."""

    @property
    def changed(self) -> frozenset[str]:
        """The table ids of the sources whose rows changed."""
        return frozenset(
            id_ for id_, c in self.changes.items() if c.method is not ChangeMethod.UNCHANGED
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """How a refresh may continue from the state that the last one recorded."""

    totals: Totals | None = None
    """The query's totals, unless they cannot be derived from that state."""
    first: FirstRows | None = None
    """The query's first rows, unless they cannot be derived from the table's."""
    obstacle: Obstacle | None = None
    """Why they cannot; replaces the operators' obstacles."""
    preconditions: RowPreconditions | None = None
    """The recorded result, if the query has preconditions."""
    recordable: bool = False
    """Whether a full refresh would record totals, from which later ones continue."""


def gather(
    order: RefreshOrder,
    spark: SparkSession,
    format: TableFormat,
    tables: Tables,
    query: Query,
    last: RecordedRefresh,
    frozen_at: datetime | None,
) -> Findings:
    """Return the findings at the versions that ``tables`` pinned; starts no Spark job."""
    changes = _read_changes(spark, format, tables, last.record.vector)
    changed = {id_: c for id_, c in changes.items() if c.method is not ChangeMethod.UNCHANGED}
    leaves = [n for n in query.shape.all_nodes() if n.operator.source in changed]
    sizes = [(str(leaf.operator.source), estimated_rows(spark, leaf.relation)) for leaf in leaves]
    largest = dict(sizes)
    return Findings(
        changes=changes,
        obstacles=_source_obstacles(order, tables, last, frozen_at, changed),
        rows_in_changed=sum(rows for _, rows in sizes),
        rows_guessed=sum(
            largest.get(id_, 0) if change.guess is None else change.guess
            for id_, change in changed.items()
            if change.rows is None
        ),
        rows_in_table=_rows_in_table(spark, format.rows(spark, order.name, last.version)),
        cores=executor_cores(spark) or MEASURED_CORES,
    )


def continuation_of(
    order: RefreshOrder,
    query: Query,
    record: CommitRecord,
    frozen_at: datetime | None,
    changed: frozenset[str] = frozenset(),
) -> Continuation:
    """Return how a refresh may continue from the last commit's record.

    :param changed: the table ids of the sources whose rows changed.
    """
    state, totals, first, obstacle, preconditions = record.incremental, None, None, None, None
    if (
        query.totals is not None
        and not isinstance(state, TooManyGroups)
        and adds_up(order)
        and not _reads_other_values(query.shape, query.totals.node, changed)
    ):
        totals = query.totals
    if (
        query.first is not None
        and merges(order, frozen_at)
        and not _reads_other_values(query.shape, query.first.node, changed)
    ):
        if not isinstance(state, KnownRows):
            obstacle = _UNKNOWN_CUT
        elif state.boundary is Boundary.TIED:
            obstacle = TIES
        else:
            first = query.first
    if query.preconditions:
        preconditions = record.preconditions
        if preconditions is None:
            obstacle = _UNKNOWN_ROWS
        elif preconditions is not RowPreconditions.SATISFIED:
            obstacle = OBSTACLES[preconditions]
    return Continuation(
        totals=totals,
        first=first,
        obstacle=obstacle,
        preconditions=preconditions,
        recordable=totals is not None,
    )


def evidence_of(
    order: RefreshOrder,
    query: Query,
    findings: Findings,
    continuation: Continuation,
    frozen_at: datetime | None,
) -> Evidence:
    """Return the evidence for a refresh that continues in this way."""
    changed = findings.changed
    keyed = _is_keyed(query, changed, continuation)
    algebra = query.algebra
    stored = (
        algebra is not None
        and _is_query(order, frozen_at)
        and not _reads_other_values(query.shape, algebra.node, changed)
    )
    recorded = continuation.totals is not None
    leading = continuation.first is not None
    reread = tuple(_reread_nodes(query, changed, continuation))
    added = all(findings.changes[id_].method is ChangeMethod.APPENDED for id_ in changed)
    found = list(findings.obstacles)
    if not added or leading or keyed or reread:
        found += query.incomparable
    found += _operator_obstacles(order, query, changed, continuation)
    return Evidence(
        changes=tuple(_as_source_change(change) for change in findings.changes.values()),
        obstacles=tuple(found),
        appends=added and not leading and not reread and _is_linear(query, changed),
        rereading=bool(reread),
        keyed=keyed,
        leading=leading,
        algebraic=keyed and adds_up(order) and (stored or recorded),
        recorded=recorded,
        conditional=bool(query.preconditions),
        whole=query.work,
        lookups=_lookups(query, changed, continuation),
        rows_in_changed=findings.rows_in_changed,
        rows_guessed=findings.rows_guessed,
        rows_reread=sum(query.rows_of(node) for node in reread),
        rows_in_table=findings.rows_in_table,
        cores=findings.cores,
    )


def adds_up(order: RefreshOrder) -> bool:
    """Say whether a change may be added to the groups' totals."""
    return Rule.ALGEBRA in _rules(order) and order.policy is not RefreshPolicy.FULL


def merges(order: RefreshOrder, frozen_at: datetime | None) -> bool:
    """Say whether a change may be merged with the table's first rows."""
    rules, policy = _rules(order), order.policy
    return _is_query(order, frozen_at) and Rule.LIMIT in rules and policy is not RefreshPolicy.FULL


def _read_changes(
    spark: SparkSession, format: TableFormat, tables: Tables, read: Mapping[str, int]
) -> dict[str, Change]:
    """Return the change of every source with a new version, by table id.

    :param read: the versions that the last refresh read.
    """
    names = {state.table_id: name for name, state in tables.states.items()}
    found = {}
    for table_id, version in tables.vector().items():
        before = read.get(table_id)
        if before is not None and before != version:
            source = tables.sources[names[table_id]]
            found[table_id] = source_change(spark, format.sources, source, before, version)
    return found


def _source_obstacles(
    order: RefreshOrder,
    tables: Tables,
    last: RecordedRefresh,
    frozen_at: datetime | None,
    changed: Mapping[str, Change],
) -> tuple[Obstacle, ...]:
    found = []
    if set(tables.vector()) != set(last.record.vector):
        text = "the query reads other tables than at the last refresh"
        found.append(Obstacle(code=Reason.SOURCES_REPLACED, text=text))
    if has_moving_region(order, frozen_at):
        text = "rows become immutable as time passes, although no source changes"
        found.append(Obstacle(code=Reason.IMMUTABLE_REGION_MOVES, text=text))
    for name in sorted(tables.travelled):
        text = f"the query itself chooses a version of {name}"
        found.append(Obstacle(code=Reason.TIME_TRAVEL, text=text))
    for change in changed.values():
        if change.read is None:
            text = f"the change of {change.source.name} is not known: {change.reason}"
            found.append(Obstacle(code=Reason.SOURCE_CHANGE_UNKNOWN, text=text))
    return tuple(found)


def _operator_obstacles(
    order: RefreshOrder, query: Query, changed: frozenset[str], continuation: Continuation
) -> tuple[Obstacle, ...]:
    follows = continuation.first or continuation.totals
    rules = _rules(order)
    if follows is None and continuation.recordable:
        rules -= {Rule.WHOLE}  # one full refresh makes the next ones cheap
    found = obstacles(
        query.shape.operator,
        changed,
        rules,
        combined=None if follows is None else follows.node.operator,
        provided=continuation.preconditions is RowPreconditions.SATISFIED,
    )
    if found and continuation.obstacle is not None:
        return (continuation.obstacle,)
    return found


def _is_keyed(query: Query, changed: frozenset[str], continuation: Continuation) -> bool:
    """Say whether rows are found by affected keys, or follow from recorded totals."""
    follows = continuation.first or continuation.totals
    return any(
        node.operator.children[index].changes(changed)
        for node in query.shape.nodes()
        for index in node.operator.keyed_by
        if node.keys[index]
        or (follows is not None and node.operator.computed_from(follows.node.operator))
    )


def _is_linear(query: Query, changed: frozenset[str]) -> bool:
    """Say whether added rows of the sources only add rows."""
    return not any(
        node.operator.changes_by_keys(changed) or node.operator.has_changed_subqueries(changed)
        for node in query.shape.nodes()
    )


def _reads_other_values(shape: Node, node: Node, changed: frozenset[str]) -> bool:
    """Say whether an operator or one above it may use another value of a subquery."""
    return any(
        each.operator.computed_from(node.operator) and each.operator.has_changed_subqueries(changed)
        for each in shape.nodes()
    )


def _reread_nodes(
    query: Query, changed: frozenset[str], continuation: Continuation
) -> Iterator[Node]:
    """Yield the topmost operators and the subqueries whose sources are read at both versions,
    because there are no keys."""
    follows = continuation.first or continuation.totals
    pending = [query.shape] if follows is None else [*follows.node.children]
    while pending:
        node = pending.pop()
        operator = node.operator
        if not operator.changes(changed):
            continue
        if operator.changes_by_keys(changed) and not any(node.keys):
            yield node
            continue
        yield from (s.node for s in node.subqueries if s.node.operator.changes(changed))
        pending += node.children


def _lookups(query: Query, changed: frozenset[str], continuation: Continuation) -> int:
    """Return the number of operators whose rows are looked up by affected keys or compared."""
    follows = continuation.first or continuation.totals
    return sum(
        node.operator.changes_by_keys(changed)
        for node in query.shape.all_nodes()
        if follows is None or not node.operator.computed_from(follows.node.operator)
    )


def _is_query(order: RefreshOrder, frozen_at: datetime | None) -> bool:
    """Say whether the table has exactly the query's rows: expectations may have dropped rows, and
    immutable ones may be out of date."""
    return not order.expectations and frozen_at is None


def _rules(order: RefreshOrder) -> frozenset[Rule]:
    written = order.options.get(RULES_OPTION)
    return ALL_RULES if written is None else read_rules(written)


def _rows_in_table(spark: SparkSession, stored: DataFrame) -> int:
    plan = Catalyst(spark).analyzed_plan(stored)
    leaves = (node for node in descend(plan) if kind(node) in _STORED)
    return sum(estimated_rows(spark, leaf) for leaf in leaves)


def _as_source_change(change: Change) -> SourceChange:
    return SourceChange(
        source=str(change.source.name),
        before=change.before,
        after=change.after,
        method=change.method,
        rows=change.rows,
    )
