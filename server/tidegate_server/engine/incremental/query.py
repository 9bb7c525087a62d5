"""The definition query of a refresh, as analyzed by Spark at the versions to read."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import Work
from tidegate_server.core.refresh.eligibility import ALL_RULES, Obstacle, Operator, Rule, obstacles
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.incremental.aggregate_state import Totals, read_totals
from tidegate_server.engine.incremental.analysis.columns import leave_out_unused
from tidegate_server.engine.incremental.analysis.shape import Node, incomparable_columns, read_shape
from tidegate_server.engine.incremental.analysis.simplify import push_down_filters, simplify
from tidegate_server.engine.incremental.mergeable_aggregates import Algebra, read_algebra
from tidegate_server.engine.incremental.preconditions import Precondition, preconditions_of
from tidegate_server.engine.incremental.top_n import FirstRows, read_first_rows
from tidegate_server.engine.jvm.errors import to_server_error
from tidegate_server.engine.query.catalyst import Catalyst
from tidegate_server.engine.query.resolution import Tables
from tidegate_server.engine.storage.delta.files import known_bytes
from tidegate_server.engine.storage.jvm import FILES, is_instance, java, kind
from tidegate_server.engine.storage.plain import reads_plain_files

logger = logging.getLogger(__name__)

# Compressed columns take about a third of their size in memory.
_COMPRESSION = 0.3
_GROUPING = frozenset({"Aggregate", "Distinct", "Except", "Intersect", "Sort", "Window"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A definition query, as analyzed by Spark at the versions to read."""

    text: str
    shape: Node
    algebra: Algebra | None
    """How to update the table's groups from their change alone, if that is possible."""
    totals: Totals | None
    """Aggregate state from which the rows can be computed if ``algebra`` is None."""
    first: FirstRows | None
    """Its ORDER BY with LIMIT at the end, if any."""
    preconditions: tuple[Precondition, ...]
    """Preconditions of incremental refreshes on its rows."""
    incomparable: tuple[Obstacle, ...]
    """Obstacles to removing its rows from a table by their values."""
    fingerprint: str
    """Changes when the query, a view, function or source of it, or a setting changes."""
    sizes: Mapping[int, int]
    """The estimated rows of each stored leaf, by ``id()`` of the node."""
    work: Work
    """That of a full refresh, without the rows written."""

    @property
    def rows(self) -> int:
        """Estimated number of rows of its sources."""
        return self.work.rows_read

    def rows_of(self, node: Node) -> int:
        """Return the estimated number of rows of the sources below a node."""
        return sum(self.sizes.get(id(each), 0) for each in node.all_nodes())

    @property
    def stable(self) -> bool:
        """Whether it is deterministic: the same versions always give the same rows."""
        found = obstacles(self.shape.operator, frozenset())
        return not any(obstacle.code is Reason.EXPRESSION_NOT_DETERMINISTIC for obstacle in found)


def read_query(
    order: RefreshOrder, spark: SparkSession, tables: Tables, text: str, frame: DataFrame
) -> Query:
    """Read the query at the versions that ``tables`` pinned.

    :param frame: the text, analyzed by Spark.
    """
    catalyst = Catalyst(spark)
    analyzed = catalyst.analyzed_plan(frame)
    try:
        simple = simplify(catalyst, analyzed)
        plan = simple.plan
        types = _table_types(order, spark, tables)
        versions = tables.read_versions()
        read = leave_out_unused(catalyst, push_down_filters(catalyst, plan))
        shape = read_shape(
            read, types, versions, catalyst, tables.format.sources, files=tables.fingerprints
        )
        shape = _with_obstacles(simple.obstacles, shape)
        shape, first = _with_first_rows(shape, read_first_rows(shape, types, catalyst))
        algebra = read_algebra(shape, types, catalyst)
        totals = _choose_totals(read_totals(shape, catalyst), shape) if algebra is None else None
        following = totals or first
        combined = None if following is None else following.node.operator
        preconditions = () if _is_hindered(shape, combined) else preconditions_of(shape, catalyst)
    except ServerError:
        raise
    except Exception as error:
        reason = to_server_error(error).headline
        logger.warning("%s is refreshed fully: its plan cannot be read: %s", order.name, reason)
        plan, shape = analyzed, _unreadable(analyzed)
        algebra, totals, first, preconditions = None, None, None, ()
    text_of_plan = _without_versions(catalyst.text(plan), tables.read_snapshots())
    facts = [text_of_plan, *_sources(shape, tables), *_settings(order, spark)]
    fingerprint = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]
    leaves = [node for node in shape.all_nodes() if node.relation is not None]
    stored = [n for n in leaves if n.operator.source or reads_plain_files(spark, n.relation)]
    sizes = {id(each): estimated_rows(spark, each.relation) for each in stored}
    rows = sum(sizes.values())
    read = sum(sizes[id(each)] * int(each.plan.schema().defaultSize()) for each in stored)
    return Query(
        text=text,
        shape=shape,
        algebra=algebra,
        totals=totals,
        first=first,
        preconditions=preconditions,
        incomparable=incomparable_columns(shape, catalyst),
        fingerprint=fingerprint,
        sizes=sizes,
        work=Work(
            rows_read=rows,
            rows_written=0,
            row_bytes=read // max(rows, 1),
            rows_grouped=_rows_grouped(shape, sizes),
            columns=len(order.columns),
        ),
    )


def _rows_grouped(shape: Node, sizes: Mapping[int, int]) -> int:
    """Return the rows of the sources that some operator groups, sorts or numbers.

    Those of further operators above count nothing: their rows are fewer.
    """
    grouping = (node for node in shape.all_nodes() if node.kind in _GROUPING)
    below = {id(node) for each in grouping for node in each.all_nodes()}
    return sum(size for leaf, size in sizes.items() if leaf in below)


def _with_first_rows(
    shape: Node, found: tuple[Node, FirstRows] | None
) -> tuple[Node, FirstRows | None]:
    """Return the shape to use, and the first rows that are merged with the table's, if any."""
    if found is None or not _follows(found[1], found[0]):
        return shape, None
    return found


def _choose_totals(found: Iterable[Totals], shape: Node) -> Totals | None:
    """Return the first state that suits a query, preferably for changes of any source.

    State below operators that combine groups is used only if affected keys cannot be: otherwise
    full refreshes would compute it for many groups in vain.
    """
    sources = frozenset(str(node.operator.source) for node in shape.nodes())
    rules = ALL_RULES - {Rule.WHOLE}  # reads the sources twice, which the state avoids

    def hinders(combined: Operator | None) -> bool:
        return bool(obstacles(shape.operator, sources, rules, combined=combined, provided=True))

    keyed = not hinders(None)
    possible = [each for each in found if _follows(each, shape) and (each.topmost or not keyed)]
    always = (each for each in possible if not hinders(each.node.operator))
    return next(always, possible[0] if possible else None)


def _follows(found: Totals | FirstRows, shape: Node) -> bool:
    """Say whether no other part of the query forces full refreshes."""
    return not _is_hindered(shape, found.node.operator)


def _is_hindered(shape: Node, combined: Operator | None) -> bool:
    """Say whether every refresh of a query is full, regardless of the data."""
    return bool(obstacles(shape.operator, frozenset(), combined=combined, provided=True))


def _with_obstacles(found: tuple[Obstacle, ...], shape: Node) -> Node:
    """Return a shape with further obstacles."""
    operator = shape.operator
    every = (*found, *operator.obstacles)
    return replace(shape, operator=replace(operator, obstacles=every)) if found else shape


def _unreadable(plan: Any) -> Node:
    """Return the shape of a plan that cannot be analyzed."""
    text = "the plan cannot be read"
    obstacle = Obstacle(code=Reason.OPERATOR_NOT_INCREMENTALIZABLE, text=text)
    return Node(operator=Operator(name=kind(plan), obstacles=(obstacle,)), plan=plan)


def estimated_rows(spark: SparkSession, plan: Any) -> int:
    """Estimate the number of rows of a stored table from the bytes of its files."""
    size = _stored_bytes(spark, plan)
    width = int(plan.schema().defaultSize())
    return int(size / max(width * _COMPRESSION, 1))


def _stored_bytes(spark: SparkSession, plan: Any) -> int:
    """Return the size of a relation in bytes; Spark itself would run a job to compute Delta's."""
    if kind(plan) == "LogicalRelation" and is_instance(java(spark), plan.relation(), FILES):
        location = plan.relation().location()
        if kind(location) == "TahoeLogFileIndex":
            known = known_bytes(location.getSnapshot())
            if known is not None:
                return known
    return int(str(plan.stats().sizeInBytes()))


def _table_types(order: RefreshOrder, spark: SparkSession, tables: Tables) -> list[str]:
    state = tables.format.find(order.name)
    if state is None:
        return []
    stored = tables.format.rows(spark, order.name, state.newest)
    catalyst = Catalyst(spark)
    output = catalyst.describe(catalyst.analyzed_plan(stored).output())
    found = {attribute.name.lower(): attribute.type for attribute in output}
    return [found.get(column.lower(), "") for column in order.columns]


def _without_versions(text: str, snapshots: Iterable[str]) -> str:
    """Return a plan's text without the snapshots at which it reads its sources."""
    for snapshot in snapshots:
        text = text.replace(f" VERSION AS OF '{snapshot}'", "")
    return text


def _sources(shape: Node, tables: Tables) -> list[str]:
    """Return the tables read, except those at a version the query chooses.

    They appear as sources only while that version is also the newest, which must not change the
    fingerprint.
    """
    chosen = {state.table_id for name, state in tables.states.items() if name in tables.travelled}
    found = [node.operator.source for node in shape.nodes()]
    return [source for source in found if source and source not in chosen]


def _settings(order: RefreshOrder, spark: SparkSession) -> list[str]:
    """Return the session's settings that may change results without changing the plan."""
    keys = {"spark.sql.session.timeZone", "spark.sql.ansi.enabled", *order.settings}
    return [f"{k}={spark.conf.get(k, None)}" for k in sorted(keys) if k.startswith("spark.sql.")]
