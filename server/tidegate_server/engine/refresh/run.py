"""Carries a refresh out: versions, plan, one commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.model.names import DEFAULT_CATALOG, DEFAULT_SCHEMA
from tidegate_server.core.model.runs import Rejection, RunMetrics, Strategy
from tidegate_server.core.model.versions import Source, SourceKind, is_streaming
from tidegate_server.core.refresh.request import (
    CommittedRefresh,
    RefreshOrder,
    RefreshOutcome,
    RefreshPlan,
    RefreshPolicy,
)
from tidegate_server.core.refresh.waves import forward
from tidegate_server.engine.definition.analyze import analyzed_plan, refuse_reading_functions
from tidegate_server.engine.incremental.aggregate_state import recorded_anew
from tidegate_server.engine.incremental.apply import apply, settle
from tidegate_server.engine.incremental.preconditions import HOLD, TIED, look
from tidegate_server.engine.incremental.query import Query, read_query
from tidegate_server.engine.incremental.strategy import (
    IncrementalPlanner,
    IncrementalWork,
    adds_up,
    merges,
    planned_once,
)
from tidegate_server.engine.incremental.top_n import cut_anew
from tidegate_server.engine.jvm.errors import to_server_error
from tidegate_server.engine.jvm.references import released
from tidegate_server.engine.planning.planner import (
    SOURCES_CHANGED,
    SOURCES_REPLACED,
    TOTALS_NOT_RECORDED,
    UNSTABLE_QUERY,
    plan_refresh,
    records_totals,
    telling_region,
    without_fingerprints,
)
from tidegate_server.engine.planning.region import with_region
from tidegate_server.engine.query.catalyst import Catalyst
from tidegate_server.engine.query.determinism import changes_by_itself, unstable
from tidegate_server.engine.query.logical_time import bound
from tidegate_server.engine.query.resolution import Tables, fingerprint_of
from tidegate_server.engine.refresh.ingest import ingest, plan_ingest
from tidegate_server.engine.refresh.source_drift import (
    check_present,
    check_types,
    explained,
    recorded_columns,
)
from tidegate_server.engine.refresh.unchanged import AnalyzedQueries
from tidegate_server.engine.session.operations import Operation
from tidegate_server.engine.session.sessions import apply_settings
from tidegate_server.engine.storage.base import DiffMismatchError, TableFormat, Written
from tidegate_server.engine.storage.entries import asked_once
from tidegate_server.engine.storage.plain import list_files
from tidegate_server.engine.storage.region import outside

logger = logging.getLogger(__name__)

_analyzed = AnalyzedQueries()

# Reasons for which a table that must be incremental is refreshed fully all the same.
_STARTS = frozenset(
    {
        *("FIRST_REFRESH", "FORCED", "FOREIGN_COMMIT", "DEFINITION_CHANGED"),
        *("FROM_BEGINNING", "PARTIAL_BEFORE"),
        # Once: what the source was before cannot be known any more.
        *("SOURCE_CHANGE_UNKNOWN", SOURCES_REPLACED, TOTALS_NOT_RECORDED),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRefresh:
    """A plan with what it was made from."""

    order: RefreshOrder
    prepared: IncrementalWork
    last: CommittedRefresh | None
    query: Query
    tables: Tables
    frame: DataFrame
    """The analyzed query; it reads the files that were listed when it was made."""

    @property
    def plan(self) -> RefreshPlan:
        """What is to be done."""
        return self.prepared.plan


def source_versions(
    sources: Sequence[Source], spark: SparkSession, format: TableFormat
) -> Mapping[str, int]:
    """Return the newest version of every versioned source by its *current* table id.

    A source that was dropped and made anew thus appears under another id. Of one without versions
    it is the fingerprint of its files; it is missing if none can be made.
    """
    found = (format.find(s.name) for s in sources if s.kind is SourceKind.VERSIONED)
    plain = [source for source in sources if source.kind is SourceKind.PLAIN]
    files = {source.table_id: fingerprint_of(spark, source.name) for source in plain}
    return {key: known for key, known in files.items() if known is not None} | {
        state.table_id: state.version for state in found if state is not None
    }


def explain(order: RefreshOrder, spark: SparkSession, format: TableFormat) -> RefreshPlan:
    """Return what a refresh would do now.

    :raises ServerError: as :func:`refresh`.
    """
    session = spark.newSession()
    apply_settings(session, order.settings)
    with released():
        return _explained(order, session, format)


def _explained(order: RefreshOrder, session: SparkSession, format: TableFormat) -> RefreshPlan:
    if is_streaming(order.sources):
        return plan_ingest(order)
    with ExitStack() as resources, asked_once(session, order.tables):
        return _plan(order, session, format, lambda: None, resources).plan


def refresh(
    order: RefreshOrder, spark: SparkSession, format: TableFormat, operation: Operation
) -> RefreshOutcome:
    """Bring a materialized table up to date once.

    :raises ServerError: MT_REFRESH_FENCED if a later epoch was committed, MT_NOT_INCREMENTAL if
        the policy forbids the full refresh that is needed, MT_SOURCE_NOT_FOUND or
        MT_SOURCE_CHANGED naming a source, OPERATION_CANCELED, or what Spark says of the query.
    """
    nothing = _analyzed.nothing_to_do(order, spark, format)
    if nothing is not None:
        return _without_work(*nothing)
    session = spark.newSession()
    apply_settings(session, order.settings)
    with released():
        return _refreshed(order, session, format, operation)


def _refreshed(
    order: RefreshOrder, session: SparkSession, format: TableFormat, operation: Operation
) -> RefreshOutcome:
    if is_streaming(order.sources):
        return ingest(order, session, format, operation)
    with ExitStack() as resources:
        with asked_once(session, order.tables):
            planned = _plan(order, session, format, operation.check, resources)
        plan, last = planned.plan, planned.last
        pause_at(Point.AFTER_VERSIONS)
        logger.info(
            "refresh %s of %s: %s, %s",
            order.refresh_id,
            order.name,
            plan.strategy.value,
            plan.reason_text,
        )
        if last is not None and last.refresh_id == order.refresh_id:
            return RefreshOutcome(plan=plan, from_version=None, to_version=last.version)
        if last is not None and last.epoch >= order.epoch:
            raise error(
                Code.MT_REFRESH_FENCED, epoch=order.epoch, table=str(order.name), current=last.epoch
            )
        operation.check()
        outcome = _carried_out(planned, session, format, operation, resources)
        return replace(outcome, sources=planned.order.sources)


# ---- planning ----------------------------------------------------------------------------------


def _plan(
    order: RefreshOrder,
    session: SparkSession,
    format: TableFormat,
    check: Callable[[], None],
    resources: ExitStack,
) -> PlannedRefresh:
    check_present(order, session, format)
    last = format.last_commit(order.name, order.table_id)
    order = with_region(order, last)
    tables = Tables(
        session,
        format,
        recorded=recorded_columns(order),
        wanted=forward(order.vector or {}, last),
        fingerprinted=True,
    )
    with explained(order, session):
        text = tables.pinned(order.expanded_query, DEFAULT_CATALOG, DEFAULT_SCHEMA)
        frame = session.sql(text)
        query = read_query(order, session, tables, text, frame)
        tree = analyzed_plan(frame)
    order = replace(order, sources=tables.read(order.sources))
    check_types(order, tree)
    refuse_reading_functions(tree)
    names = changes_by_itself(unstable(tree))
    stable = query.stable and not names
    # Functions such as rand get a new seed, and with it another text, each time.
    fingerprint = query.fingerprint if stable else None
    order = replace(order, fingerprint=fingerprint, commits=tables.commits())
    if last is not None and last.totals == "" and last.fingerprint == fingerprint:
        order = replace(order, totals="")  # they are too many, as was seen before
    _analyzed.remember(order, tables, session)
    others = tables.other_histories(last) if last is not None else []
    full = plan_refresh(order, tables.vector(), last, stable=stable, others=tuple(map(str, others)))
    if full.reason_code == UNSTABLE_QUERY and names:
        full = replace(full, reason_text=f"the query reads {', '.join(names)}")
    planned = PlannedRefresh(
        order=order,
        prepared=IncrementalWork(plan=full),
        last=last,
        query=query,
        tables=tables,
        frame=frame,
    )
    if last is not None and full.reason_code == SOURCES_CHANGED:
        preparation = IncrementalPlanner(
            order, session, format, tables, query, last, check=check, resources=resources
        )
        planned = replace(planned, prepared=_prepared(preparation, full))
    _check_policy(planned)
    told = telling_region(planned.plan, order)
    return replace(planned, prepared=replace(planned.prepared, plan=told))


def _prepared(preparation: IncrementalPlanner, full: RefreshPlan) -> IncrementalWork:
    try:
        return preparation.prepare(full)
    except ServerError:
        raise
    except Exception as failed:
        # Whatever a rule stumbles over, the query itself can still be computed.
        preparation.check()
        logger.exception("%s cannot be refreshed incrementally", preparation.order.name)
        return IncrementalWork(plan=_failed(full, failed))


def _failed(plan: RefreshPlan, failure: Exception) -> RefreshPlan:
    """Return a full refresh in place of an incremental one that broke."""
    if isinstance(failure, DiffMismatchError):
        code, text = "TABLE_DIFFERS", str(failure)
    else:
        headline = to_server_error(failure).headline
        code, text = "INCREMENTAL_FAILED", " ".join(headline.split())
    rejection = Rejection(strategy=Strategy.INCREMENTAL.value, reason_code=code, reason_text=text)
    return replace(
        plan,
        strategy=Strategy.FULL,
        reason_code=code,
        reason_text=text,
        rejected=(rejection,),
    )


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


# ---- carrying out ------------------------------------------------------------------------------


def _carried_out(
    planned: PlannedRefresh,
    session: SparkSession,
    format: TableFormat,
    operation: Operation,
    resources: ExitStack,
) -> RefreshOutcome:
    if planned.plan.strategy is Strategy.NO_DATA:
        return _without_work(planned.plan, planned.last)
    planned = _listed(planned)
    if planned.plan.strategy is Strategy.INCREMENTAL:
        try:
            return _outcome(planned, _applied(planned, session, format))
        except ServerError:
            raise
        except Exception as failed:
            operation.check()
            logger.exception("%s is refreshed fully instead", planned.order.name)
            plan = telling_region(_failed(planned.plan, failed), planned.order)
            planned = replace(planned, prepared=IncrementalWork(plan=plan))
            _check_policy(planned)
    return _outcome(planned, _written(planned, session, format, operation, resources))


def _listed(planned: PlannedRefresh) -> PlannedRefresh:
    """List the files to be read, then look whether they are those of the recorded fingerprints.

    One that was there for the moment between would else be in the table's rows for ever. Of what
    changed meanwhile no fingerprint is recorded, so that the next refresh reads it again.
    """
    if not planned.tables.fingerprints:
        return planned
    frame: Any = planned.frame
    list_files(frame.sparkSession, frame._jdf.queryExecution().analyzed())
    moved = planned.tables.moved()
    if not moved:
        return planned
    plan = without_fingerprints(planned.plan, {id_: str(name) for id_, name in moved.items()})
    if plan.strategy is planned.plan.strategy:
        return replace(planned, prepared=replace(planned.prepared, plan=plan))
    planned = replace(planned, prepared=IncrementalWork(plan=telling_region(plan, planned.order)))
    _check_policy(planned)
    return planned


def _without_work(plan: RefreshPlan, last: CommittedRefresh | None) -> RefreshOutcome:
    before = last.version if last is not None else None
    return RefreshOutcome(
        plan=plan, from_version=before, to_version=before, metrics=RunMetrics(rows_written=0)
    )


def _applied(planned: PlannedRefresh, session: SparkSession, format: TableFormat) -> Written:
    """Land the diff; rows that are only added need no look at it before."""
    order, prepared, last = planned.order, planned.prepared, planned.last
    order = replace(order, provisos=prepared.provisos)
    if last is not None and prepared.totals is not None:
        order = replace(order, totals=prepared.totals)
        with planned_once(session, prepared.few):
            return _followed(planned, session, format, order, last)
    if prepared.diff is None or last is None:
        raise AssertionError("an incremental refresh has a diff and something to build on")
    vector = prepared.plan.vector
    constrained = order.expectations or order.assertions or order.key is not None
    diff, appends = prepared.diff, prepared.appends and not constrained
    with planned_once(session, prepared.few):
        if isinstance(diff, DataFrame):
            if appends and format.untouched_since(order, last.version):
                rows = format.fitted(order, diff.drop(diff.columns[-1]))
                return format.append(outside(rows, order), order, vector, base=last.version)
            diff = settle(format, order, diff)
        return apply(session, format, order, diff, vector, base=last.version)


def _followed(
    planned: PlannedRefresh,
    session: SparkSession,
    format: TableFormat,
    order: RefreshOrder,
    last: CommittedRefresh,
) -> Written:
    """Replace the few rows that follow from totals, or leave them if they are the same."""
    vector, content = planned.plan.vector, planned.prepared.content
    if content is None:
        if not format.untouched_since(order, last.version):
            raise DiffMismatchError(f"{order.name} was changed by somebody else")
        return format.advance(session, order, vector, base=last.version)
    strategy = Strategy.INCREMENTAL
    return format.write(content, order, vector, partitions=(), partial=False, strategy=strategy)


def _written(
    planned: PlannedRefresh,
    session: SparkSession,
    format: TableFormat,
    operation: Operation,
    resources: ExitStack,
) -> Written:
    order, plan = planned.order, planned.plan
    some = plan.strategy is Strategy.PARTITION
    frame = None
    if not some:
        frame, order = _recorded(planned, session, operation, resources)
    if frame is None:
        frame = bound(planned.frame, order.logical_time)
    if len(frame.columns) != len(order.columns):
        raise error(
            Code.MT_COLUMN_COUNT,
            declared=len(order.columns),
            produced=len(frame.columns),
            available=", ".join(frame.columns),
        )
    operation.check()
    partial = some and not _is_whole(plan, planned.last, order)
    return format.write(frame, order, plan.vector, partitions=plan.partitions, partial=partial)


def _recorded(
    planned: PlannedRefresh, session: SparkSession, operation: Operation, resources: ExitStack
) -> tuple[DataFrame | None, RefreshOrder]:
    """Return the query's rows, if they were computed for it, and an order that says what to record
    for the next refresh to follow from."""
    order, provisos = planned.order, planned.query.provisos
    if order.fingerprint is None:
        return None, order
    if provisos and (known := _known_broken(planned)):
        return None, replace(order, provisos=known)
    if not records_totals(order, planned.query.rows):
        return None, order
    catalyst = Catalyst(session)
    try:
        if provisos:
            order = replace(order, provisos=look(provisos, catalyst))
            operation.check()
            if order.provisos != HOLD:
                return None, order
        found = _by_totals(planned, order, catalyst, resources)
        return found or _cut(planned, order, catalyst, resources) or (None, order)
    except Exception as failed:
        operation.check()
        told = to_server_error(failed).headline
        logger.warning("%s is computed without a record: %s", order.name, told)
        return None, planned.order


def _known_broken(planned: PlannedRefresh) -> str | None:
    """Return which proviso is taken to be broken without another look.

    To look for ties may cost half as much as the query: where some were, the policy AUTO does so
    only when it is told to compute everything.
    """
    order, last = planned.order, planned.last
    if planned.prepared.provisos is not None or last is None:
        return planned.prepared.provisos
    same = last.fingerprint == order.fingerprint and last.provisos == TIED
    again = order.force or order.policy is not RefreshPolicy.AUTO
    return TIED if same and not again else None


def _by_totals(
    planned: PlannedRefresh, order: RefreshOrder, catalyst: Catalyst, resources: ExitStack
) -> tuple[DataFrame, RefreshOrder] | None:
    """Return the rows and the groups' totals, to which the next refresh can add."""
    totals = planned.query.totals
    if totals is None or order.totals == "" or not adds_up(order):
        return None
    few = planned.last is not None and bool(planned.last.totals)
    recorded = recorded_anew(totals, catalyst, resources, few=few)
    if recorded is None:  # Spark's own rows, then, and from now on
        return planned.frame, replace(order, totals="")
    return catalyst.frame(recorded.plan), replace(order, totals=recorded.text)


def _cut(
    planned: PlannedRefresh, order: RefreshOrder, catalyst: Catalyst, resources: ExitStack
) -> tuple[DataFrame, RefreshOrder] | None:
    """Return the first rows and whether others tie with them."""
    first = planned.query.first
    if first is None or not merges(order):
        return None
    cut = cut_anew(first, catalyst, resources)
    return catalyst.frame(cut.plan), replace(order, totals=cut.text)


def _outcome(planned: PlannedRefresh, written: Written) -> RefreshOutcome:
    plan, last = planned.plan, planned.last
    return RefreshOutcome(
        plan=plan,
        from_version=last.version if last is not None else None,
        to_version=written.version,
        metrics=RunMetrics(
            rows_read=_rows_read(planned),
            rows_written=written.rows,
            rows_inserted=written.rows_inserted,
            rows_deleted=written.rows_deleted,
            rows_copied=written.rows_copied,
            files_written=written.files_written,
            bytes_written=written.bytes_written,
            affected_keys=plan.affected_keys,
            predicted_seconds=plan.predicted_seconds,
            full_seconds=plan.full_seconds,
            expectations=written.expectations,
        ),
        data_timestamp=planned.order.logical_time,
    )


def _rows_read(planned: PlannedRefresh) -> int:
    """Return what the cost model takes for the rows read, so that it learns from the run."""
    incremental = planned.plan.strategy is Strategy.INCREMENTAL
    return planned.prepared.rows_read if incremental else planned.query.rows


def _is_whole(chosen: RefreshPlan, last: CommittedRefresh | None, order: RefreshOrder) -> bool:
    """Say whether the partitions not replaced were computed from the same versions already."""
    return (
        last is not None
        and not last.partial
        and last.foreign_version is None
        and last.definition_version == order.definition_version
        and last.fingerprint == order.fingerprint
        and dict(last.vector) == dict(chosen.vector)
        and all(source.kind is SourceKind.VERSIONED for source in order.sources)
    )
