"""Columns of refresh runs, shared by SHOW and the system tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate_server.core.model.runs import RefreshRun, Rejection, SourceChange


@dataclass(frozen=True, slots=True)
class RunColumn:
    """A column of a run: its name, Spark type, Arrow type and value."""

    name: str
    type: str
    arrow: pa.DataType
    read: Callable[[RefreshRun], object]


def text_column(name: str, read: Callable[[RefreshRun], object]) -> RunColumn:
    return RunColumn(name, "string", pa.string(), read)


def number_column(name: str, read: Callable[[RefreshRun], object]) -> RunColumn:
    return RunColumn(name, "bigint", pa.int64(), read)


def seconds_column(name: str, read: Callable[[RefreshRun], float | None]) -> RunColumn:
    return RunColumn(name, "double", pa.float64(), read)


def time_column(name: str, read: Callable[[RefreshRun], object]) -> RunColumn:
    return RunColumn(name, "timestamp", pa.timestamp("us", tz="UTC"), read)


HISTORY: tuple[RunColumn, ...] = (
    text_column("refresh_id", lambda run: run.refresh_id),
    text_column("catalog", lambda run: run.table.catalog),
    text_column("database", lambda run: run.table.schema),
    text_column("table", lambda run: run.table.table),
    number_column("definition_version", lambda run: run.definition_version),
    number_column("from_version", lambda run: run.from_version),
    number_column("to_version", lambda run: run.to_version),
    number_column("epoch", lambda run: run.epoch),
    text_column("wave_id", lambda run: run.wave_id),
    text_column("trigger", lambda run: run.trigger.value),
    text_column("requested_action", lambda run: run.requested_action),
    text_column("action", lambda run: run.action.value if run.action else None),
    text_column("strategy_reason_code", lambda run: run.reason_code),
    text_column("strategy_reason_text", lambda run: _reason(run)),
    text_column("partitions", lambda run: json.dumps([dict(spec) for spec in run.partitions])),
    time_column("schedule_time", lambda run: run.schedule_time),
    time_column("data_timestamp", lambda run: run.data_timestamp),
    time_column("queued_at", lambda run: run.queued_at),
    time_column("started_at", lambda run: run.started_at),
    time_column("finished_at", lambda run: run.finished_at),
    text_column("state", lambda run: run.state.value),
    text_column("error_class", lambda run: run.error_class),
    text_column("sqlstate", lambda run: run.sqlstate),
    text_column("error_message", lambda run: run.error_message),
    number_column("attempt", lambda run: run.attempt),
    text_column("sources", lambda run: contributions(run.changes, run.sources)),
    number_column("rows_read", lambda run: run.metrics.rows_read),
    number_column("rows_written", lambda run: run.metrics.rows_written),
    number_column("rows_inserted", lambda run: run.metrics.rows_inserted),
    number_column("rows_updated", lambda run: run.metrics.rows_updated),
    number_column("rows_deleted", lambda run: run.metrics.rows_deleted),
    number_column("rows_copied", lambda run: run.metrics.rows_copied),
    number_column("bytes", lambda run: run.metrics.bytes_written),
    number_column("files", lambda run: run.metrics.files_written),
    text_column("expectations", lambda run: json.dumps(dict(run.metrics.expectations))),
    text_column("spark_job_ids", lambda run: json.dumps(list(run.metrics.spark_job_ids))),
    number_column("executor_ms", lambda run: run.metrics.executor_ms),
    number_column("peak_memory", lambda run: run.metrics.peak_memory),
    text_column("requested_by", lambda run: run.requested_by),
    text_column("server_id", lambda run: run.server_id),
    text_column("execution_target", lambda run: run.execution_target),
    number_column("affected_keys", lambda run: run.metrics.affected_keys),
    seconds_column("seconds", lambda run: run.seconds),
    seconds_column("predicted_seconds", lambda run: run.metrics.predicted_seconds),
    seconds_column("predicted_full_seconds", lambda run: run.metrics.full_seconds),
)
"""The columns of the refresh history, in order."""


VERSIONS: tuple[RunColumn, ...] = (
    number_column("version", lambda run: run.to_version),
    number_column("epoch", lambda run: run.epoch),
    text_column("action", lambda run: run.action.value if run.action else None),
    number_column("definition_version", lambda run: run.definition_version),
    number_column("rows", lambda run: run.metrics.rows_written),
    time_column("timestamp", lambda run: run.finished_at),
    text_column("trigger", lambda run: run.trigger.value),
    text_column("refresh_id", lambda run: run.refresh_id),
)
"""The columns of SHOW VERSIONS that precede the definition's query."""


def table_of(columns: Sequence[RunColumn], runs: Sequence[RefreshRun]) -> pa.Table:
    """Return runs as an Arrow table."""
    arrays = [pa.array([c.read(run) for run in runs], type=c.arrow) for c in columns]
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])


def _reason(run: RefreshRun) -> str | None:
    """Return why this strategy was chosen and why each other one was rejected."""
    told = [run.reason_text] if run.reason_text else []
    return (
        "; ".join([*told, *(_rejections(each, run.reason_text) for each in run.rejected)]) or None
    )


def _rejections(rejection: Rejection, chosen_since: str | None) -> str:
    """Return why a strategy was rejected, without text already shown."""
    against = f"not {rejection.strategy} ({rejection.reason_code})"
    if rejection.reason_text == chosen_since:
        return against
    cost = f"{rejection.cost:.1f} s" if rejection.cost is not None else ""
    told = f", about {cost}" if cost not in rejection.reason_text else ""
    return f"{against}: {rejection.reason_text}{told}"


def contributions(changes: Sequence[SourceChange], vector: Mapping[str, int]) -> str:
    """Return each source's changes as JSON; if none were recorded, the versions read."""
    if not changes:
        return json.dumps([{"source": source, "after": after} for source, after in vector.items()])
    return json.dumps(
        [
            {"source": c.source, "before": c.before, "after": c.after, "method": c.method}
            | ({"rows": c.rows} if c.rows is not None else {})
            | ({"snapshot": c.snapshot} if c.snapshot is not None else {})
            for c in changes
        ]
    )
