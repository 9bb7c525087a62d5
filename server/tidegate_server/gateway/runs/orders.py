"""Builds engine orders from refresh requests, and the records of runs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import assert_never

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import (
    BackfillTable,
    PublishHeld,
    Refresh,
    RollBackTable,
)
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import RefreshRun, Strategy
from tidegate_server.core.model.states import RUN_MOVES, RunState, allowed
from tidegate_server.core.model.table import (
    Definition,
    Dropping,
    HeldVersion,
    Leaving,
    LogicalRefreshMode,
    MaterializedTable,
    RollingBack,
    Swapping,
)
from tidegate_server.core.refresh.request import (
    Backfill,
    CommittedRefresh,
    PastRun,
    Publish,
    Recompute,
    RefreshOrder,
    RefreshPolicy,
    RefreshRequest,
    Rollback,
    Task,
)
from tidegate_server.gateway.catalog.base import CatalogReader
from tidegate_server.gateway.runs.engines import Engines, engine_of
from tidegate_server.gateway.scheduler.base import Ledger

log = logging.getLogger(__name__)

_PAST_RUNS = 20
_RUNS_ELSEWHERE = 40

_OPTIONS = "materialized-table."
_POLICIES: Mapping[LogicalRefreshMode, RefreshPolicy] = {
    LogicalRefreshMode.AUTOMATIC: RefreshPolicy.AUTO,
    LogicalRefreshMode.CONTINUOUS: RefreshPolicy.AUTO,
    LogicalRefreshMode.FULL: RefreshPolicy.FULL,
    LogicalRefreshMode.INCREMENTAL: RefreshPolicy.INCREMENTAL,
    LogicalRefreshMode.INCREMENTAL_STRICT: RefreshPolicy.INCREMENTAL_STRICT,
}


def refuse_half_done(table: MaterializedTable, action: str) -> None:
    """Reject a table left half done by a DROP, a SWAP or a ROLLBACK of both.

    After a crash its rows may be gone, its name may be another table's, or its rows may belong to
    another definition.

    :raises ServerError: MT_STATE if so.
    """
    match table.pending:
        case Dropping():
            found, expected = "half dropped", "whole"
            hint = "Repeat DROP MATERIALIZED TABLE; the next engine completes it as well."
        case RollingBack():
            found, expected = "half rolled back", "whole"
            hint = "The next engine completes it; with several gateways, repeat the ROLLBACK."
        case Swapping():
            found, expected = "half swapped with another table", "in its place"
            hint = "The next engine puts it back; with several gateways, repeat the SWAP WITH."
        case Leaving() | None:
            return
        case other:
            assert_never(other)
    raise error(
        Code.MT_STATE,
        table=table.name,
        found=found,
        action=action,
        expected=expected,
        hint=hint,
    )


def queued_run(
    table: MaterializedTable,
    request: RefreshRequest,
    refresh_id: str,
    now: datetime,
    server_id: str,
) -> RefreshRun:
    """Return a request's initial record."""
    return RefreshRun(
        refresh_id=refresh_id,
        table_id=table.id,
        table=table.name,
        definition_version=table.definition.version,
        trigger=request.trigger,
        state=RunState.QUEUED,
        queued_at=now,
        requested_by=request.requested_by,
        server_id=server_id,
        schedule_time=request.schedule_time,
        partitions=request.recompute.partitions,
        wave_id=request.wave_id,
        requested_action=requested_action(request),
        attempt=request.attempt,
    )


def requested_action(request: RefreshRequest) -> str | None:
    """Return the action requested explicitly, in the statement's words."""
    if request.recompute.partitions:
        return Strategy.PARTITION.value
    if request.recompute.predicate is not None:
        return "WHERE"
    return request.policy.value if request.policy is not None else None


def step_id(operation_id: str, step: str) -> str:
    """Return the id of an additional run of the same operation."""
    return f"{operation_id}.{step}"


def close_run(
    ledger: Ledger,
    run: RefreshRun,
    end: RunState,
    now: datetime,
    code: Reason | None = None,
    text: str | None = None,
) -> RefreshRun:
    """Record the end of a run and return it.

    :raises ServerError: INTERNAL if the life cycle has no such move.
    """
    if not allowed(RUN_MOVES, run.state, end):
        reason = f"a run cannot move from {run.state.value} to {end.value}"
        raise error(Code.INTERNAL, reason=reason)
    ended = replace(
        run,
        state=end,
        finished_at=now,
        reason_code=code or run.reason_code,
        reason_text=text or (code.meaning if code is not None else run.reason_text),
    )
    ledger.record(ended)
    log.info("refresh %s of %s: %s %s", run.refresh_id, run.table, end.value, code or "")
    return ended


def as_committed(run: RefreshRun, commit: CommittedRefresh) -> RefreshRun:
    """Return a run filled in from the commit it made but could not report."""
    return replace(
        run,
        action=Strategy.PARTITION if commit.partial else Strategy(commit.strategy),
        definition_version=commit.definition_version,
        to_version=commit.version,
        sources=dict(commit.vector),
        reason_code=Reason.RECOVERED,
        reason_text=Reason.RECOVERED.meaning,
    )


def held_version(run: RefreshRun, failure: ServerError, now: datetime) -> HeldVersion:
    """Return the mark of a run whose result is held."""
    return HeldVersion(refresh_id=run.refresh_id, since=now, reason=failure.message)


def version_held(run: RefreshRun, commit: CommittedRefresh) -> ServerError:
    """Return the error of a run that held its result but could not report it."""
    return error(Code.MT_VERSION_HELD, table=str(run.table), reason=commit.breaks or "an assertion")


def nothing_held(table: MaterializedTable) -> ServerError:
    """Return the error for a decision when no version is held."""
    return error(Code.MT_NOTHING_HELD, table=table.name, reason="nothing waits to be published")


def refresh_order(
    table: MaterializedTable,
    request: RefreshRequest,
    *,
    refresh_id: str,
    epoch: int,
    asked_at: datetime,
    history: Iterable[RefreshRun] = (),
    elsewhere: Iterable[RefreshRun] = (),
    has_consumers: bool = False,
    engine: str = "",
) -> RefreshOrder:
    """Return the engine's order for a run of the table, or for EXPLAIN."""
    definition, state = table.definition, table.state
    return RefreshOrder(
        refresh_id=refresh_id,
        table_id=table.id,
        name=table.storage,
        definition_version=definition.version,
        expanded_query=definition.expanded_query,
        columns=definition.schema.names(),
        partition_keys=definition.partition_keys,
        sources=definition.sources,
        epoch=epoch,
        trigger=request.trigger,
        logical_time=request.schedule_time or asked_at,
        settings={
            **definition.settings,
            **resume_settings(state.resume_options),
            **request.settings,
        },
        policy=request.policy or _POLICIES[definition.logical_refresh_mode],
        wave_id=request.wave_id,
        key=table.enforced_key,
        immutable=definition.immutable,
        expectations=definition.expectations,
        assertions=definition.assertions,
        options={**_session_options(definition), **definition.options, **state.resume_options},
        distribution=definition.distribution,
        checkpoint_floor=state.checkpoint_floor,
        history=past_runs(history),
        elsewhere=past_runs(elsewhere),
        has_consumers=has_consumers,
        executor=table.executor,
        engine=engine,
    )


def resume_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of Spark among the options of RESUME, which accepts other names, too."""
    return {key: value for key, value in options.items() if key.lower().startswith("spark.")}


RunRequest = Refresh | RollBackTable | PublishHeld | BackfillTable
"""A request to the engine for one run of a table."""


def run_request(table: MaterializedTable, task: Task, order: RefreshOrder) -> RunRequest:
    """Return the engine's request for a task.

    :raises ServerError: MT_NOTHING_HELD if there is no version to publish.
    """
    match task:
        case Recompute():
            return Refresh(order=order, task=task)
        case Rollback():
            return RollBackTable(order=order, version=task.version)
        case Backfill():
            return BackfillTable(order=order, source=task.source)
        case Publish():
            if table.state.held is None:
                raise nothing_held(table)
            return PublishHeld(order=order, held_by=table.state.held.refresh_id)


def _session_options(definition: Definition) -> dict[str, str]:
    """Return the options set in the session of CREATE."""
    return {key: value for key, value in definition.settings.items() if key.startswith(_OPTIONS)}


def informed_order(
    table: MaterializedTable,
    request: RefreshRequest,
    catalog: CatalogReader,
    ledger: Ledger,
    engines: Engines,
    *,
    refresh_id: str,
    epoch: int,
    asked_at: datetime,
) -> RefreshOrder:
    """Return an order with history, consumers and engine, so that EXPLAIN plans like a run."""
    return refresh_order(
        table,
        request,
        refresh_id=refresh_id,
        epoch=epoch,
        asked_at=asked_at,
        # Not those without an effect: a table that is refreshed often would soon have no others.
        history=ledger.commits(table.id, _PAST_RUNS),
        elsewhere=[r for r in ledger.commits(None, _RUNS_ELSEWHERE) if r.table_id != table.id],
        has_consumers=bool(catalog.consumers(table.storage)),
        engine=engine_of(table, request, ledger.last_success, engines),
    )


def past_runs(runs: Iterable[RefreshRun]) -> tuple[PastRun, ...]:
    """Return the successful runs with an effect; cost estimates are based on them."""
    return tuple(
        PastRun(
            strategy=run.action,
            seconds=run.seconds,
            metrics=run.metrics,
            reason_code=run.reason_code or "",
        )
        for run in runs
        if run.state is RunState.SUCCEEDED
        and run.action not in (None, Strategy.NO_DATA)
        and run.seconds is not None
    )


def with_error(run: RefreshRun, failure: ServerError) -> RefreshRun:
    """Return a run with the error that ended it."""
    return replace(
        run,
        error_class=failure.code,
        sqlstate=failure.sqlstate,
        error_message=failure.message,
    )


def as_undecided(run: RefreshRun, failure: ServerError) -> RefreshRun:
    """Return a failed run to report; the store keeps it RUNNING until recovery decides."""
    return replace(with_error(run, failure), state=RunState.FAILED)
