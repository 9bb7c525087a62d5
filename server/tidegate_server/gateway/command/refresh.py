"""REFRESH of a materialized table, as one run, a wave or a range of partitions; CANCEL REFRESH."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.requests import ExplainRefresh
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.model.runs import RefreshRun, Strategy, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.types import Column, Schema, text_schema
from tidegate_server.core.model.versions import PartitionSpec, is_streaming
from tidegate_server.core.model.wording import number_of
from tidegate_server.core.refresh.request import (
    Recompute,
    RefreshPlan,
    RefreshPolicy,
    RefreshRequest,
)
from tidegate_server.core.refresh.waves import ancestors, descendants, needs, spread
from tidegate_server.core.sql.statements import (
    AlterCancelRefresh,
    AlterRefresh,
    Cascade,
    RefreshKind,
)
from tidegate_server.gateway.authorization.admission import admit_order
from tidegate_server.gateway.command import backfill
from tidegate_server.gateway.command.plan_rows import (
    LATER,
    PlanRow,
    check_rows,
    held_rows,
    plan_result,
    plan_rows,
)
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve
from tidegate_server.gateway.definition.checks import is_text
from tidegate_server.gateway.definition.storage import restore_lost_storage
from tidegate_server.gateway.definition.streaming import check_refresh
from tidegate_server.gateway.freshness.downstream import refreshed_with
from tidegate_server.gateway.link.targets import Target, read_target
from tidegate_server.gateway.runs.failures import raise_failures
from tidegate_server.gateway.runs.orders import informed_order, step_id
from tidegate_server.gateway.runs.waves import Step

log = logging.getLogger(__name__)

_SCHEMA = Schema(
    (Column(name="job id", type="string"), Column(name="cluster info", type="map<string,string>"))
)
_KINDS = {RefreshKind.FULL: RefreshPolicy.FULL, RefreshKind.INCREMENTAL: RefreshPolicy.INCREMENTAL}


@dataclass(frozen=True, slots=True)
class _RefreshJob:
    """The first pending run of a REFRESH, and the work that executes all of them."""

    first: RefreshRun
    work: Callable[[], Sequence[RefreshRun]]


def refresh(statement: AlterRefresh, context: Context) -> Result:
    """Refresh a table and wait for it, with CASCADE others before or after it.

    Returns one row of job id and cluster info per run; with ASYNC one row, at once.

    :raises ServerError: MT_PARTITION_UNKNOWN, MT_PARTITION_TYPE, MT_PARTITION_RANGE, MT_STATE, or
        the failed run's error.
    """
    table = resolve.materialized_table(statement.name, context)
    if table.state.status is RefreshStatus.INITIALIZING:
        raise error(
            Code.MT_STATE,
            table=table.name,
            found=RefreshStatus.INITIALIZING.value,
            action="REFRESH",
            expected="ACTIVATED or SUSPENDED",
        )
    check_refresh(statement, table)
    if statement.kind is RefreshKind.FULL and _is_whole(statement):
        restore_lost_storage(table, context)
    job = _job(statement, table, context)
    if statement.asynchronous:
        context.services.background.start(f"refresh-{job.first.refresh_id}", job.work)
        return refresh_result([job.first], context)
    with context.services.waves.queue.following(context.operation_id, context.warn):
        runs = job.work()
    raise_failures(runs)
    return refresh_result(runs, context)


def refresh_result(runs: Sequence[RefreshRun], context: Context) -> Result:
    """Return one row of job id and cluster info per run, as Flink's REFRESH does."""
    return RowsResult(_SCHEMA, [_row(run, context) for run in runs])


def _is_whole(statement: AlterRefresh) -> bool:
    """Return whether all rows are refreshed."""
    return (statement.partition, statement.range, statement.predicate) == (None, None, None)


def explain_refresh(statement: AlterRefresh, context: Context) -> Result:
    """Return the plans a refresh would execute, in order, from the engine's planner.

    Tables whose sources would be refreshed first are planned only then.
    """
    table = resolve.materialized_table(statement.name, context)
    check_refresh(statement, table)
    steps = _steps_to_explain(statement, table, context)
    wave = [step.table for step in steps]
    changed: dict[str, str] = {}
    rows: list[PlanRow] = []
    for step in steps:
        name = str(step.table.name)
        before = [changed[i] for i in needs(step.table, wave) if i in changed]
        if before:
            partitions = step.request.recompute.partitions
            what = number_of(len(partitions), "partition") if partitions else ""
            text = f"{what or 'the table'}, decided when {', '.join(before)} is refreshed"
            rows.append(
                PlanRow(
                    table=name, decision=LATER, reason_code=Reason.AFTER_UPSTREAM, reason_text=text
                )
            )
            changed[step.table.id] = name
            continue
        plan = _plan(step, context)
        rows += [*held_rows(step.table), *plan_rows(name, plan)]
        if plan.strategy is not Strategy.NO_DATA:
            rows += check_rows(step.table)
            changed[step.table.id] = name
    return plan_result(rows)


def _steps_to_explain(
    statement: AlterRefresh, table: MaterializedTable, context: Context
) -> list[Step]:
    request = _request(statement, table, context)
    if statement.range is not None:
        start, end = (
            _check_spec(spec, table) for spec in (statement.range.start, statement.range.end)
        )
        found = backfill.plan(table, start, end, request.policy, context)
        request = replace(request, task=Recompute(partitions=found.partitions))
    return _wave(statement, table, request, context)


def _plan(step: Step, context: Context) -> RefreshPlan:
    order = informed_order(
        step.table,
        step.request,
        context.services.catalog,
        context.services.ledger,
        context.services.config.engines,
        refresh_id=context.operation_id,
        epoch=0,
        asked_at=context.services.clock.now(),
    )
    order = admit_order(order, context.services, record=context.record)
    answer = context.services.engine.call(ExplainRefresh(order=order, task=step.request.recompute))
    return answer.plan


def partition_spec(written: PartitionSpec | None, table: MaterializedTable) -> PartitionSpec | None:
    """Check a partition spec and return it in the columns' own spelling.

    :raises ServerError: MT_PARTITION_UNKNOWN or MT_PARTITION_TYPE.
    """
    return None if written is None else _check_spec(written, table)


def _check_spec(written: PartitionSpec, table: MaterializedTable) -> PartitionSpec:
    definition = table.definition
    keys = {key.lower(): key for key in definition.partition_keys}
    spec = {}
    for name, value in written.items():
        if name.lower() not in keys:
            shown = ", ".join(definition.partition_keys) or "none"
            raise error(Code.MT_PARTITION_UNKNOWN, name=name, table=table.name, available=shown)
        key = keys[name.lower()]
        column = definition.schema.find(key)
        if column is not None and not is_text(column.type):
            raise error(
                Code.MT_PARTITION_TYPE, name=key, table=table.name, type=column.type.upper()
            )
        spec[key] = value
    return spec


# ---- runs to enqueue -------------------------------------------------------------------------


def _job(statement: AlterRefresh, table: MaterializedTable, context: Context) -> _RefreshJob:
    """Check a statement against its table and enqueue its runs."""
    if statement.range is not None:
        start = _check_spec(statement.range.start, table)
        end = _check_spec(statement.range.end, table)
        return _range_job(statement, table, start, end, context)
    return _enqueue(_wave(statement, table, _request(statement, table, context), context), context)


def _enqueue(steps: Sequence[Step], context: Context) -> _RefreshJob:
    services = context.services
    shown = ", ".join(str(step.table.name) for step in steps)
    services.waves.enqueue(steps)
    first = services.ledger.find(context.operation_id)
    if first is None:
        raise error(Code.REFRESH_NOT_FOUND, refresh=context.operation_id)

    def work() -> Sequence[RefreshRun]:
        context.log(f"Refreshing {shown}")
        if len(steps) == 1:
            return [services.run_refresh(steps[0].request)]
        return services.waves.run(steps)

    return _RefreshJob(first, work)


def _range_job(
    statement: AlterRefresh,
    table: MaterializedTable,
    start: PartitionSpec,
    end: PartitionSpec,
    context: Context,
) -> _RefreshJob:
    if statement.cascade is Cascade.UPSTREAM:
        what = "REFRESH PARTITION FROM ... TO ... CASCADE UPSTREAM"
        hint = "Refresh the tables it reads first."
        raise error(Code.NOT_SUPPORTED, what=what, hint=hint)
    plan = backfill.plan(table, start, end, _policy(statement), context)
    first = backfill.enqueue(plan, context)

    def work() -> Sequence[RefreshRun]:
        runs = backfill.run(plan, context)
        below = descendants(table, context.services.catalog.consumers)
        if statement.cascade is None or not below or runs[-1].state is not RunState.SUCCEEDED:
            return runs
        refreshed = replace(plan.requests[0], task=Recompute(partitions=plan.partitions))
        steps = _below(statement, table, below, refreshed, context)
        context.services.waves.enqueue(steps)
        return [*runs, *context.services.waves.run(steps)]

    return _RefreshJob(first, work)


def _request(statement: AlterRefresh, table: MaterializedTable, context: Context) -> RefreshRequest:
    """Return the request for the named table itself; its run has the operation's id."""
    spec = partition_spec(statement.partition, table)
    return RefreshRequest(
        table_id=table.id,
        trigger=Trigger.MANUAL,
        requested_by=context.session.user,
        task=Recompute(
            partitions=(spec,) if spec else (),
            predicate=statement.predicate,
            force=statement.kind is RefreshKind.FULL,
        ),
        policy=_policy(statement),
        refresh_id=context.operation_id,
    )


def _wave(
    statement: AlterRefresh, table: MaterializedTable, request: RefreshRequest, context: Context
) -> list[Step]:
    """Return the steps of a refresh, sources before consumers.

    A full-table refresh includes the upstream tables refreshed with it.
    """
    catalog = context.services.catalog
    above: list[MaterializedTable] = []
    below: list[MaterializedTable] = []
    if statement.cascade is Cascade.UPSTREAM:
        above = ancestors(table, catalog.find)
    elif not request.recompute.is_partial:
        above = refreshed_with(table, catalog.find)
    if statement.cascade is Cascade.DOWNSTREAM:
        below = descendants(table, catalog.consumers)
    if above or below:
        request = replace(request, wave_id=context.operation_id)
    return [
        *_steps(statement, _refreshable(above), {}, context, "u"),
        Step(table=table, request=request),
        *_below(statement, table, below, request, context),
    ]


def _below(
    statement: AlterRefresh,
    table: MaterializedTable,
    below: Sequence[MaterializedTable],
    request: RefreshRequest,
    context: Context,
) -> list[Step]:
    """Return the steps of downstream tables, with the partitions that propagate."""
    tables = _refreshable(below)
    replaced = spread([table, *tables], {table.id: request.recompute.partitions})
    return _steps(statement, tables, replaced, context, "t")


def _steps(
    statement: AlterRefresh,
    tables: Sequence[MaterializedTable],
    replaced: dict[str, tuple[PartitionSpec, ...]],
    context: Context,
    mark: str,
) -> list[Step]:
    whole = statement.kind is RefreshKind.FULL
    return [
        Step(
            table=table,
            request=RefreshRequest(
                table_id=table.id,
                trigger=Trigger.CASCADE,
                requested_by=context.session.user,
                task=Recompute(
                    partitions=replaced.get(table.id, ()),
                    # The stream may no longer have the rows it delivered.
                    force=whole and not is_streaming(table.definition.sources),
                ),
                policy=_policy(statement),
                wave_id=context.operation_id,
                refresh_id=step_id(context.operation_id, f"{mark}{number}"),
            ),
        )
        for number, table in enumerate(tables, start=1)
    ]


def _refreshable(tables: Sequence[MaterializedTable]) -> list[MaterializedTable]:
    """Leave out INITIALIZING tables, whose first refresh is already running."""
    return [t for t in tables if t.state.status is not RefreshStatus.INITIALIZING]


def _policy(statement: AlterRefresh) -> RefreshPolicy | None:
    return None if statement.kind is None else _KINDS[statement.kind]


def _row(run: RefreshRun, context: Context) -> tuple[str, str]:
    table = context.services.catalog.by_id(run.table_id)
    used = run.execution_target or (None if table is None else table.execution_target)
    target = Target() if used is None else read_target(used)
    info = {
        "table": str(run.table),
        "state": run.state.value,
        "action": run.action.value if run.action else "",
        **target.info,
        "server": context.services.server_id,
    }
    return run.refresh_id, json.dumps(info)


_PATIENCE = 30.0
"""Seconds for runs to end; Spark stops at the next task."""


def cancel_refresh(statement: AlterCancelRefresh, context: Context) -> Result:
    """Stop all refreshes of a table, whoever requested them; its data stays as it was.

    Returns the job id and state of each stopped run. Runs of other servers stop within a third
    of a lease.
    """
    table = resolve.materialized_table(statement.name, context)
    services = context.services
    unfinished = [run for run in services.ledger.unfinished_runs() if run.table_id == table.id]
    for run in unfinished:
        services.ledger.request_cancel(run.refresh_id)
    here = services.waves.queue.cancel_table(table.id)
    if not services.waves.queue.wait_ended(here, _PATIENCE):
        context.note("A refresh has not stopped yet; it stops when its Spark tasks end.")
    found = dict.fromkeys([*here, *(run.refresh_id for run in unfinished)])
    states = [(refresh_id, services.ledger.find(refresh_id)) for refresh_id in found]
    log.info("Canceled %d refreshes of %s", len(found), table.name)
    rows = [(refresh_id, run.state.value if run else None) for refresh_id, run in states]
    return RowsResult(text_schema("job id", "state"), rows)
