"""Carries a refresh out: versions, plan, one commit."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.engine.operations import Operation
from tidegate_server.engine.sessions import apply_settings
from tidegate_server.engine.sources import Tables
from tidegate_server.errors import Code, ServerError, error
from tidegate_server.model.names import DEFAULT_CATALOG, DEFAULT_SCHEMA
from tidegate_server.model.runs import RunMetrics, Strategy
from tidegate_server.model.versions import Source, SourceKind
from tidegate_server.refresh.planner import plan_refresh
from tidegate_server.refresh.request import (
    CommittedRefresh,
    RefreshOrder,
    RefreshOutcome,
    RefreshPlan,
)
from tidegate_server.storage.base import TableFormat

logger = logging.getLogger(__name__)


def source_versions(sources: Sequence[Source], format: TableFormat) -> Mapping[str, int]:
    """Return the newest version of every versioned source by its *current* table id.

    A source that was dropped and made anew thus appears under another id.
    """
    found = (format.find(s.name) for s in sources if s.kind is SourceKind.VERSIONED)
    return {state.table_id: state.version for state in found if state is not None}


def plan(
    order: RefreshOrder, spark: SparkSession, format: TableFormat
) -> tuple[RefreshPlan, CommittedRefresh | None, str]:
    """Return the plan, the last refresh commit, and the query at the planned versions.

    :raises ServerError: TABLE_OR_VIEW_NOT_FOUND naming a source that is gone.
    """
    _check_sources(order.sources, format)
    tables = Tables(spark, format)
    query = tables.pinned(order.expanded_query, DEFAULT_CATALOG, DEFAULT_SCHEMA)
    last = format.last_commit(order.name, order.table_id)
    chosen = plan_refresh(order, tables.vector(), last)
    if chosen.strategy is Strategy.NO_DATA and not _is_stable(spark, query):
        chosen = plan_refresh(order, tables.vector(), last, stable=False)
    return chosen, last, query


def refresh(
    order: RefreshOrder, spark: SparkSession, format: TableFormat, operation: Operation
) -> RefreshOutcome:
    """Bring a materialized table up to date once.

    :raises ServerError: MT_REFRESH_FENCED if a later epoch was committed, OPERATION_CANCELED, or
        what Spark says of the query.
    """
    session = spark.newSession()
    apply_settings(session, order.settings)
    chosen, last, query = plan(order, session, format)
    logger.info(
        "refresh %s of %s: %s, %s",
        order.refresh_id,
        order.name,
        chosen.strategy.value,
        chosen.reason_text,
    )
    before = last.version if last is not None else None
    if last is not None and last.refresh_id == order.refresh_id:
        return RefreshOutcome(plan=chosen, from_version=None, to_version=last.version)
    if last is not None and last.epoch >= order.epoch:
        raise error(
            Code.MT_REFRESH_FENCED, epoch=order.epoch, table=str(order.name), current=last.epoch
        )
    if chosen.strategy is Strategy.NO_DATA:
        return RefreshOutcome(
            plan=chosen, from_version=before, to_version=before, metrics=RunMetrics(rows_written=0)
        )
    operation.check()
    frame = session.sql(query)
    if len(frame.columns) != len(order.columns):
        raise error(
            Code.MT_COLUMN_COUNT,
            declared=len(order.columns),
            produced=len(frame.columns),
            available=", ".join(frame.columns),
        )
    operation.check()
    written = format.write(
        frame,
        order,
        chosen.vector,
        partitions=chosen.partitions,
        partial=bool(chosen.partitions) and not _is_whole(chosen, last, order),
    )
    return RefreshOutcome(
        plan=chosen,
        from_version=before,
        to_version=written.version,
        metrics=RunMetrics(rows_written=written.rows),
    )


def _is_stable(spark: SparkSession, query: str) -> bool:
    """Say whether the query gives the same rows from the same versions at any time."""
    jvm: Any = spark._jvm
    analyzed: Any = spark.sql(query)._jdf.queryExecution().analyzed()
    patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    return bool(analyzed.deterministic()) and not analyzed.containsPattern(patterns.CURRENT_LIKE())


def _is_whole(chosen: RefreshPlan, last: CommittedRefresh | None, order: RefreshOrder) -> bool:
    """Say whether the partitions not replaced were computed from the same versions already."""
    return (
        last is not None
        and not last.partial
        and last.foreign_version is None
        and last.definition_version == order.definition_version
        and dict(last.vector) == dict(chosen.vector)
        and all(source.kind is SourceKind.VERSIONED for source in order.sources)
    )


def _check_sources(sources: Sequence[Source], format: TableFormat) -> None:
    for source in sources:
        if source.kind is SourceKind.VERSIONED and format.find(source.name) is None:
            raise ServerError(
                code="TABLE_OR_VIEW_NOT_FOUND",
                sqlstate="42P01",
                message=f"Source table {source.name} does not exist any more.",
                hint="Create it again, or change the definition query.",
            )
