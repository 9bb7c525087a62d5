"""The refresh history and the versions of a table, from the ledger alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.model.runs import RefreshRun, Rejection, SourceChange
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.sql.statements import ShowRefreshHistory, ShowVersions
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import history, resolve

_LIMIT = 1000  # rows without a LIMIT
_SEARCHED = 10_000  # runs looked through for failures
_FAILURES = frozenset({RunState.FAILED, RunState.ABANDONED, RunState.UPSTREAM_FAILED})


@dataclass(frozen=True, slots=True)
class RunColumn:
    """A column about runs: its name, its Spark type, its Arrow type, its value."""

    name: str
    type: str
    arrow: pa.DataType
    read: Callable[[RefreshRun], object]


def _text(name: str, read: Callable[[RefreshRun], object]) -> RunColumn:
    return RunColumn(name, "string", pa.string(), read)


def _number(name: str, read: Callable[[RefreshRun], object]) -> RunColumn:
    return RunColumn(name, "bigint", pa.int64(), read)


def _seconds(name: str, read: Callable[[RefreshRun], float | None]) -> RunColumn:
    return RunColumn(name, "double", pa.float64(), read)


def _time(name: str, read: Callable[[RefreshRun], object]) -> RunColumn:
    return RunColumn(name, "timestamp", pa.timestamp("us", tz="UTC"), read)


HISTORY: tuple[RunColumn, ...] = (
    _text("refresh_id", lambda run: run.refresh_id),
    _text("catalog", lambda run: run.table.catalog),
    _text("database", lambda run: run.table.schema),
    _text("table", lambda run: run.table.table),
    _number("definition_version", lambda run: run.definition_version),
    _number("from_version", lambda run: run.from_version),
    _number("to_version", lambda run: run.to_version),
    _number("epoch", lambda run: run.epoch),
    _text("wave_id", lambda run: run.wave_id),
    _text("trigger", lambda run: run.trigger.value),
    _text("requested_action", lambda run: run.requested_action),
    _text("action", lambda run: run.action.value if run.action else None),
    _text("strategy_reason_code", lambda run: run.reason_code),
    _text("strategy_reason_text", lambda run: _reason(run)),
    _text("partitions", lambda run: json.dumps([dict(spec) for spec in run.partitions])),
    _time("schedule_time", lambda run: run.schedule_time),
    _time("data_timestamp", lambda run: run.data_timestamp),
    _time("queued_at", lambda run: run.queued_at),
    _time("started_at", lambda run: run.started_at),
    _time("finished_at", lambda run: run.finished_at),
    _text("state", lambda run: run.state.value),
    _text("error_class", lambda run: run.error_class),
    _text("sqlstate", lambda run: run.sqlstate),
    _text("error_message", lambda run: run.error_message),
    _number("attempt", lambda run: run.attempt),
    _text("sources", lambda run: contributions(run.changes, run.sources)),
    _number("rows_read", lambda run: run.metrics.rows_read),
    _number("rows_written", lambda run: run.metrics.rows_written),
    _number("rows_inserted", lambda run: run.metrics.rows_inserted),
    _number("rows_updated", lambda run: run.metrics.rows_updated),
    _number("rows_deleted", lambda run: run.metrics.rows_deleted),
    _number("rows_copied", lambda run: run.metrics.rows_copied),
    _number("bytes", lambda run: run.metrics.bytes_written),
    _number("files", lambda run: run.metrics.files_written),
    _text("expectations", lambda run: json.dumps(dict(run.metrics.expectations))),
    _text("spark_job_ids", lambda run: json.dumps(list(run.metrics.spark_job_ids))),
    _number("executor_ms", lambda run: run.metrics.executor_ms),
    _number("peak_memory", lambda run: run.metrics.peak_memory),
    _text("requested_by", lambda run: run.requested_by),
    _text("server_id", lambda run: run.server_id),
    _number("affected_keys", lambda run: run.metrics.affected_keys),
    _seconds("seconds", lambda run: run.seconds),
    _seconds("predicted_seconds", lambda run: run.metrics.predicted_seconds),
    _seconds("predicted_full_seconds", lambda run: run.metrics.full_seconds),
)
"""The columns of the refresh history, in their order."""

VERSIONS: tuple[RunColumn, ...] = (
    _number("version", lambda run: run.to_version),
    _number("epoch", lambda run: run.epoch),
    _text("action", lambda run: run.action.value if run.action else None),
    _number("definition_version", lambda run: run.definition_version),
    _number("rows", lambda run: run.metrics.rows_written),
    _time("timestamp", lambda run: run.finished_at),
    _text("trigger", lambda run: run.trigger.value),
    _text("refresh_id", lambda run: run.refresh_id),
)
"""The columns of SHOW VERSIONS, before the query of the definition version."""


def show_history(statement: ShowRefreshHistory, context: Context) -> Result:
    """List refresh runs, newest first."""
    table_id = None
    if statement.name is not None:
        table_id = resolve.materialized_table(statement.name, context).id
    limit = _LIMIT if statement.limit is None else statement.limit
    searched = max(limit, _SEARCHED) if statement.errors else limit
    runs = context.services.ledger.runs(table_id, limit=searched)
    if statement.errors:
        runs = tuple(run for run in runs if run.state in _FAILURES)[:limit]
    return _rows(HISTORY, runs)


def show_versions(statement: ShowVersions, context: Context) -> Result:
    """List the versions of a table's data that refreshes made, or of its definition.

    The newest come first.
    """
    table = resolve.materialized_table(statement.name, context)
    if statement.definition:
        return history.show(table, context.services.catalog)
    known = history.versions(table, context.services.catalog)
    queries = {entry.definition_version: entry.original_query for entry in known}
    query = _text("query", lambda run: queries.get(run.definition_version))
    return _rows(
        (*VERSIONS, query), context.services.ledger.commits(table.id, history.DATA_VERSIONS)
    )


def table_of(columns: Sequence[RunColumn], runs: Sequence[RefreshRun]) -> pa.Table:
    """Return runs as an Arrow table."""
    arrays = [pa.array([c.read(run) for run in runs], type=c.arrow) for c in columns]
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])


def _rows(columns: Sequence[RunColumn], runs: Sequence[RefreshRun]) -> Result:
    schema = Schema(tuple(Column(name=c.name, type=c.type) for c in columns))
    rows = [tuple(column.read(run) for column in columns) for run in runs]
    return RowsResult(schema, rows, types=tuple(column.arrow for column in columns))


def _reason(run: RefreshRun) -> str | None:
    """Return why this strategy was chosen, and what stood against each other one."""
    told = [run.reason_text] if run.reason_text else []
    return "; ".join([*told, *(_rejected(each, run.reason_text) for each in run.rejected)]) or None


def _rejected(rejection: Rejection, chosen_since: str | None) -> str:
    """Return what stood against a strategy, without what was said already."""
    against = f"not {rejection.strategy} ({rejection.reason_code})"
    if rejection.reason_text == chosen_since:
        return against
    cost = f"{rejection.cost:.1f} s" if rejection.cost is not None else ""
    told = f", about {cost}" if cost not in rejection.reason_text else ""
    return f"{against}: {rejection.reason_text}{told}"


def contributions(changes: Sequence[SourceChange], vector: Mapping[str, int]) -> str:
    """Return what each source contributes; without a record of that, the versions read."""
    if not changes:
        return json.dumps([{"source": source, "after": after} for source, after in vector.items()])
    return json.dumps(
        [
            {"source": c.source, "before": c.before, "after": c.after, "method": c.method}
            | ({"rows": c.rows} if c.rows is not None else {})
            for c in changes
        ]
    )
