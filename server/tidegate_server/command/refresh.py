"""ALTER MATERIALIZED TABLE ... REFRESH: one run, or a cascade of them."""

from __future__ import annotations

import json

from tidegate_server.catalog.base import CatalogReader
from tidegate_server.command import resolve
from tidegate_server.command.context import Context
from tidegate_server.command.refresher import refresh_order, step_id
from tidegate_server.command.spark import unexpected
from tidegate_server.command.validate import is_text, not_yet
from tidegate_server.errors import Code, ServerError, error
from tidegate_server.link.messages import ExplainRefresh, Planned
from tidegate_server.model.result import Result, RowsResult
from tidegate_server.model.runs import RefreshRun, Trigger
from tidegate_server.model.states import RefreshStatus, RunState
from tidegate_server.model.table import MaterializedTable
from tidegate_server.model.types import Column, Schema, text_schema
from tidegate_server.model.versions import PartitionSpec
from tidegate_server.refresh.request import RefreshRequest
from tidegate_server.sql.statements import AlterRefresh, Cascade, RefreshKind

_SCHEMA = Schema(
    (Column(name="job id", type="string"), Column(name="cluster info", type="map<string,string>"))
)
_WHOLE = "Use REFRESH, REFRESH FULL, or REFRESH ... CASCADE."
_PARTITION = "Use REFRESH PARTITION (column = 'value') once per partition."


def refresh(statement: AlterRefresh, context: Context) -> Result:
    """Refresh a table now and wait for it; with CASCADE its descendants after it.

    Answers one row of job id and cluster info per run.

    :raises ServerError: MT_PARTITION_UNKNOWN, MT_PARTITION_TYPE, MT_STATE, or the error of the
        run that failed.
    """
    table = resolve.materialized_table(statement.name, context)
    _refuse_unsupported(statement)
    spec = partition_spec(statement.partition, table)
    if table.refresh_status is RefreshStatus.INITIALIZING:
        raise error(
            Code.MT_STATE,
            table=table.name,
            found=RefreshStatus.INITIALIZING.value,
            action="REFRESH",
            expected="ACTIVATED or SUSPENDED",
        )
    force = statement.kind is RefreshKind.FULL
    runs = [_run(table, spec, force, Trigger.MANUAL, context.operation_id, context)]
    if statement.cascade is not None:
        below = descendants(table, context.services.catalog)
        for step, descendant in enumerate(below, start=1):
            passed = travelling(spec, descendant)
            refresh_id = step_id(context.operation_id, step)
            runs.append(_run(descendant, passed, force, Trigger.CASCADE, refresh_id, context))
    return RowsResult(_SCHEMA, [_row(run, context) for run in runs])


def explain_refresh(statement: AlterRefresh, context: Context) -> Result:
    """Answer the plan a refresh would carry out, from the engine's planner."""
    table = resolve.materialized_table(statement.name, context)
    _refuse_unsupported(statement)
    spec = partition_spec(statement.partition, table)
    force = statement.kind is RefreshKind.FULL
    order = refresh_order(
        table,
        _request(table, spec, force, Trigger.MANUAL, context.operation_id, context),
        refresh_id=context.operation_id,
        epoch=0,
        asked_at=context.services.clock.now(),
    )
    answer = context.services.engine.call(ExplainRefresh(order=order))
    if not isinstance(answer, Planned):
        raise unexpected(answer)
    plan = answer.plan
    row = (str(table.name), plan.strategy.value, plan.reason_code, plan.reason_text)
    return RowsResult(text_schema("table", "strategy", "reason_code", "reason_text"), [row])


def partition_spec(written: PartitionSpec | None, table: MaterializedTable) -> PartitionSpec | None:
    """Check a partition spec and return it under the columns' own spelling.

    :raises ServerError: MT_PARTITION_UNKNOWN or MT_PARTITION_TYPE.
    """
    if written is None:
        return None
    keys = {key.lower(): key for key in table.partition_keys}
    spec = {}
    for name, value in written.items():
        if name.lower() not in keys:
            shown = ", ".join(table.partition_keys) or "none"
            raise error(Code.MT_PARTITION_UNKNOWN, name=name, table=table.name, available=shown)
        key = keys[name.lower()]
        column = table.schema.find(key)
        if column is not None and not is_text(column.type):
            raise error(
                Code.MT_PARTITION_TYPE, name=key, table=table.name, type=column.type.upper()
            )
        spec[key] = value
    return spec


def descendants(table: MaterializedTable, catalog: CatalogReader) -> list[MaterializedTable]:
    """Return every materialized table that depends on this one, sources before consumers."""
    finished: dict[str, MaterializedTable] = {}
    waiting = [(table, iter(catalog.consumers(table.name)))]
    while waiting:
        current, consumers = waiting[-1]
        following = next((c for c in consumers if c.id not in finished), None)
        if following is None:
            finished.setdefault(current.id, current)
            waiting.pop()
        elif following.id not in {entry.id for entry, _ in waiting}:
            waiting.append((following, iter(catalog.consumers(following.name))))
    return [entry for entry in reversed(finished.values()) if entry.id != table.id]


def travelling(spec: PartitionSpec | None, table: MaterializedTable) -> PartitionSpec | None:
    """Return the part of a partition spec that names partition columns of a descendant.

    None, a refresh of the whole table, when it has none of them.
    """
    if spec is None:
        return None
    keys = {key.lower(): key for key in table.partition_keys}
    passed = {keys[name.lower()]: value for name, value in spec.items() if name.lower() in keys}
    return passed or None


def raise_failure(run: RefreshRun) -> None:
    """Raise the error of a run that did not succeed.

    :raises ServerError: with the run's own error class, or OPERATION_CANCELED.
    """
    if run.state is RunState.SUCCEEDED:
        return
    if run.state is RunState.CANCELLED:
        raise error(Code.OPERATION_CANCELED, by="")
    message = run.error_message or run.reason_text or f"the run ended {run.state.value}"
    raise ServerError(
        code=run.error_class or Code.INTERNAL.name,
        sqlstate=run.sqlstate or "XX000",
        message=f"Refresh {run.refresh_id} of {run.table} {run.state.value}: {message}",
        hint=f"SHOW REFRESH HISTORY FOR {run.table} lists its runs.",
    )


def _refuse_unsupported(statement: AlterRefresh) -> None:
    unsupported = (
        (statement.kind is RefreshKind.INCREMENTAL, "REFRESH INCREMENTAL", _WHOLE),
        (statement.range is not None, "REFRESH PARTITION FROM ... TO ...", _PARTITION),
        (statement.predicate is not None, "REFRESH WHERE", _PARTITION),
        (statement.cascade is Cascade.UPSTREAM, "REFRESH CASCADE UPSTREAM", _WHOLE),
        (statement.asynchronous, "REFRESH ASYNC", _WHOLE),
    )
    for written, what, hint in unsupported:
        if written:
            raise not_yet(what, hint)


def _request(
    table: MaterializedTable,
    spec: PartitionSpec | None,
    force: bool,
    trigger: Trigger,
    refresh_id: str,
    context: Context,
) -> RefreshRequest:
    return RefreshRequest(
        table_id=table.id,
        trigger=trigger,
        requested_by=context.session.user,
        partitions=(spec,) if spec else (),
        force=force,
        refresh_id=refresh_id,
    )


def _run(
    table: MaterializedTable,
    spec: PartitionSpec | None,
    force: bool,
    trigger: Trigger,
    refresh_id: str,
    context: Context,
) -> RefreshRun:
    context.log(f"Refreshing {table.name}" + (f" partition {dict(spec)}" if spec else ""))
    request = _request(table, spec, force, trigger, refresh_id, context)
    run = context.services.run_refresh(request)
    raise_failure(run)
    return run


def _row(run: RefreshRun, context: Context) -> tuple[str, str]:
    info = {
        "table": str(run.table),
        "action": run.action.value if run.action else "",
        "execution.mode": "embedded",
        "server": context.services.server_id,
    }
    return run.refresh_id, json.dumps(info)
